"""PATE on MNIST by the rooms' own teachers and noise: ``python -m tests.bench.pate_student``.

250 teachers learn from the 60,000 training pictures, in chunks by position; the first 9,000 of the 10,000 test pictures
are public and unlabelled. One picture of each of 400 clusters of these is asked about, and answered by noisy plurality
at the price of the plan; the student is a network of :mod:`trainer_adapter.students` that learns from all 9,000. It is
measured on the last 1,000, which neither it nor the ensemble nor the clusters have seen. One JSON object a seed.

Clusters, neighbours and teachers see scattering coefficients in the public pictures' leading directions, which look at
one picture only. What was set: PATE's own 250 teachers and 40 votes of noise; the rest before any look at a result.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.ensembles import EnsemblePlan, Plurality
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire.exact_numbers import ceil_decimal
from tests.bench import features
from tests.bench.accuracy import write
from tests.bench.basis import LENGTH, Basis
from tests.bench.datasets import MNIST
from tests.bench.idx import CLASSES, SIDE, images
from trainer_adapter.ensembles.answer_noise import noisy_answer
from trainer_adapter.ensembles.chunks import chunks_of
from trainer_adapter.ensembles.teachers import Training, train_teachers
from trainer_adapter.students import Lessons, choose_questions, learn_student, spread_labels, turned_and_shifted

TEACHERS: Final = 250
QUESTIONS: Final = 400
PUBLIC: Final = 9_000
SEEDS: Final = 3
DELTA: Final = Fraction(1, 100_000)
DIRECTIONS: Final = 256
"""Of the scattering coefficients, for the teachers."""
NEAR: Final = 64
"""As many of them for clusters and neighbours."""


def plan(questions: int = QUESTIONS, classes: int = CLASSES) -> EnsemblePlan:
    """So many answers of 250 teachers at 40 votes of noise."""
    return EnsemblePlan.of(
        parse_plan(
            {
                "answer": {"classes": classes, "kind": "plurality", "noise": "40"},
                "chunks_by": "position",
                "kind": "ensemble",
                "questions": questions,
                "relation": "REPLACE_SPECIAL",
                "teachers": TEACHERS,
                "v": 1,
            }
        )
    )


@dataclass(frozen=True)
class Pictures:
    """Governed and public pictures as teachers see them, and the public ones as the student does.

    Attributes:
        train, targets: of the governed ones: coordinates (60000, 256), classes (60000,).
        test, answers: of the test pictures, of which the first 9,000 are public without their answers.
        pixels: of the test pictures, shape (10000, 1, 28, 28), from 0 to 1.
    """

    train: Tensor
    targets: Tensor
    test: Tensor
    answers: NDArray[np.int64]
    pixels: Tensor

    @classmethod
    def load(cls) -> Pictures:
        """Raises: Malformed; OSError."""
        (train, targets), (test, answers) = (features.load("mnist", part) for part in ("train", "t10k"))
        basis = Basis.of(test[:PUBLIC], DIRECTIONS)
        pixels = torch.from_numpy(images(MNIST, "t10k")[0].astype(np.float32) / 255)[:, None]
        seen = (basis.of_records(part) / LENGTH for part in (train, test))
        return cls(next(seen), targets, next(seen), answers.numpy(), pixels)


def network() -> nn.Module:
    """Two convolutions, 90,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * ((SIDE - 4) // 2 - 4) ** 2 // 4, 128),
        nn.ReLU(),
        nn.Linear(128, CLASSES),
    )


def answers_of(terms: EnsemblePlan, train: Tensor, targets: Tensor, asked: Tensor, seed: int) -> NDArray[np.int64]:
    """What the ensemble answers: linear teachers, each on its chunk, and the noise of the answering room."""
    assert isinstance(terms.answer, Plurality)
    model = nn.Linear(train.shape[1], terms.answer.classes)
    for value in model.parameters():
        nn.init.zeros_(value)
    chunks = chunks_of(seed.to_bytes(32, "big"), "bench", terms.chunks_by, terms.teachers, (targets, targets), None)
    how = Training(cross_entropy, lambda one: torch.optim.SGD(one.parameters(), 1.0, momentum=0.9), 200, 64, seed)
    outputs = train_teachers(model, (train, targets), chunks, terms.teachers, how).outputs(asked)
    return np.array([noisy_answer(terms, outputs[:, place])["class"] for place in range(len(asked))], np.int64)


def run(pictures: Pictures, questions: int, seed: int) -> dict[str, Any]:
    """One world: questions, their charged answers, a student."""
    terms, started = plan(questions), time.process_time()
    near = pictures.test[:PUBLIC, :NEAR].numpy()
    asked = choose_questions(near, questions, seed)
    labels = answers_of(terms, pictures.train, pictures.targets, pictures.test[asked], seed)
    answered = time.process_time()
    beliefs = spread_labels(near, asked, labels, CLASSES)
    torch.manual_seed(seed)
    public = pictures.pixels[:PUBLIC]
    student = learn_student(network, public, torch.from_numpy(beliefs), turned_and_shifted, Lessons(seed=seed))
    learned = time.process_time()
    with torch.no_grad():
        found = student(pictures.pixels[PUBLIC:]).argmax(dim=1).numpy()
    truth = pictures.answers
    return {
        "accuracy": _share(found == truth[PUBLIC:]),
        "answers_right": _share(labels == truth[asked]),
        "epsilon": ceil_decimal(reported_epsilon(terms.whole, DELTA, terms.relation), 2),
        "processor_s_ensemble": round(answered - started),
        "processor_s_student": round(learned - answered),
        "questions": questions,
        "seed": seed,
        "spread_right": _share(beliefs.argmax(axis=1) == truth[:PUBLIC]),
    }


def _share(right: NDArray[np.bool_]) -> float:
    return round(float(right.mean()) * 100, 2)


def main() -> None:
    """Write what each seed's student reaches."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pate_student")
    parser.add_argument("--questions", type=int, default=QUESTIONS, help="that are answered")
    parser.add_argument("--seeds", type=int, nargs="*", default=list(range(SEEDS)), help="one run of each")
    parser.add_argument("--into", type=Path, default=Path("/dev/stdout"), help="JSON lines")
    given = parser.parse_args()
    pictures = Pictures.load()
    for seed in given.seeds:
        write(given.into, run(pictures, given.questions, seed))


if __name__ == "__main__":
    main()
