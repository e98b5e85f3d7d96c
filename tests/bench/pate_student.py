"""PATE on MNIST by the rooms' own teachers and noise: ``python -m tests.bench.pate_student``.

250 teachers learn from the 60,000 training pictures, in chunks by position; the first of the 10,000 test pictures are
public and unlabelled. The ensemble labels some of them by noisy plurality, at the price of the plan; the student is a
classifier of all 9,000, whose labels spread from the answered ones along nearest neighbours, and is measured on the
last 1,000, which neither it nor the ensemble has seen. One JSON object a seed. Features are scattering coefficients,
which look at one picture only. What was set: PATE's own 250 teachers and 40 votes of noise; the rest before any look.
"""

from __future__ import annotations

import json
import sys
from fractions import Fraction
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.semi_supervised import LabelSpreading
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, group_norm

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.ensembles import EnsemblePlan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire.exact_numbers import ceil_decimal
from tests.bench.datasets import MNIST
from tests.bench.idx import CLASSES, images
from tests.bench.scattering import PATHS, scatter
from trainer_adapter.ensembles.answer_noise import noisy_answer
from trainer_adapter.ensembles.chunks import chunks_of
from trainer_adapter.ensembles.teachers import Training, train_teachers

TEACHERS: Final = 250
QUESTIONS: Final = 400
PUBLIC: Final = 9_000
SEEDS: Final = 3
DELTA: Final = Fraction(1, 100_000)
PLAN: Final = EnsemblePlan.of(
    parse_plan(
        {
            "answer": {"classes": CLASSES, "kind": "plurality", "noise": "40"},
            "chunks_by": "position",
            "kind": "ensemble",
            "questions": QUESTIONS,
            "relation": "REPLACE_SPECIAL",
            "teachers": TEACHERS,
            "v": 1,
        }
    )
)


def features(pictures: NDArray[np.uint8]) -> Tensor:
    """Scattering coefficients, normalised in groups of each picture: shape (records, 3969)."""
    parts = (torch.from_numpy(part.astype(np.float32) / 255) for part in np.array_split(pictures, 70))
    return torch.cat([group_norm(scatter(part), PATHS // 3).flatten(1) for part in parts])


def labels_of(train: Tensor, targets: Tensor, asked: Tensor, seed: int) -> NDArray[np.int64]:
    """What the ensemble answers."""
    model = nn.Linear(train.shape[1], CLASSES)
    nn.init.zeros_(model.weight)
    chunks = chunks_of(seed.to_bytes(32, "big"), "mnist", "position", TEACHERS, (targets, targets), None)
    how = Training(cross_entropy, lambda one: torch.optim.SGD(one.parameters(), 0.05, momentum=0.9), 60, 32, seed)
    outputs = train_teachers(model, (train, targets), chunks, TEACHERS, how).outputs(asked)
    return np.array(
        [noisy_answer(PLAN, outputs[:, place], may_answer=True)["class"] for place in range(len(asked))], np.int64
    )


def student(public: Tensor, labels: NDArray[np.int64]) -> LogisticRegression:
    """A classifier of the public pictures, whose labels spread from the answered ones."""
    known = np.full(len(public), -1)
    known[: len(labels)] = labels
    spread = LabelSpreading(kernel="knn", n_neighbors=7, alpha=0.5).fit(public.numpy(), known)
    return LogisticRegression(C=0.05, max_iter=200).fit(public.numpy(), spread.transduction_)


def main() -> None:
    """Print what each seed's student reaches."""
    (pictures, digits), (others, answers) = images(MNIST, "train"), images(MNIST, "t10k")
    train, test = features(pictures), features(others)
    epsilon = ceil_decimal(reported_epsilon(PLAN.whole, DELTA, PLAN.relation), 2)
    basis = PCA(100, random_state=0).fit(test[:PUBLIC].numpy())
    seen = torch.from_numpy(basis.transform(test.numpy()))
    for seed in range(SEEDS):
        labels = labels_of(train, torch.from_numpy(digits.astype(np.int64)), test[:QUESTIONS], seed)
        right = student(seen[:PUBLIC], labels).predict(seen[PUBLIC:].numpy()) == answers[PUBLIC:]
        found = {
            "accuracy": round(float(right.mean()) * 100, 2),
            "answers_right": round(float((labels == answers[:QUESTIONS]).mean()) * 100, 2),
            "epsilon": epsilon,
            "questions": QUESTIONS,
            "seed": seed,
        }
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
