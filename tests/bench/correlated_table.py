"""Correlated noise beside DP-SGD at the same ε, on MNIST and Adult: ``python -m tests.bench.correlated_table``.

Both train the same network of one hidden layer by plain SGD with the same batch and clipping norm. Of every setting and
ε each first tries one grid of learning rates and epochs by a run each, then its two best by two runs more, all on the
first half of the test records; five runs of other seeds, of the one that was best in the mean, are measured on the
second half. How many bands correlated noise has is not in the grid: it is the plan of least error of those that
`epsilon job noise` proposes, which looks at no record.

One JSON object a run; what is in the file of ``--into`` is not run again. At its end, and with ``--summary`` alone, it
prints the table of docs/correlated_noise.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy

from ledger.accounting.calibration import calibrate_noise
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.wire.exact_numbers import ceil_decimal
from ledger.wire.malformed import Malformed
from tests.bench import adult
from tests.bench.accuracy import measure, two_classes, write
from tests.bench.charged import DELTA, RELATION
from tests.bench.datasets import MNIST
from tests.bench.idx import CLASSES, images
from trainer_adapter.dpsgd.correlated.correlated_engine import CorrelatedEngine
from trainer_adapter.dpsgd.correlated.plan_proposals import Proposal, proposals
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.job.privacy_target import PrivacyTarget

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "correlated_noise.jsonl"
SEEDS: Final = 5
TUNING_SEEDS: Final = (1_000, 1_001, 1_002)
RATES: Final = (0.5, 1.0, 2.0, 4.0)
EPOCHS: Final = (1, 4)
EPSILONS: Final = (1, 2, 3)
SETTINGS: Final = (
    ("mnist", 256),
    ("adult", 128),
    ("mnist", 2_048),
    ("adult", 1_024),
    ("adult, wide", 128),
)
"""Small batches, where sampling hides little; such as DP-SGD prefers; and small ones of a network of more numbers."""
WIDE: Final = ", wide"
HIDDEN: Final = {False: 32, True: 256}
METHODS: Final = ("dp_sgd", "correlated")
Records = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Run:
    """What is trained. ``seed`` is the tuning's, or one of five."""

    data: str
    batch: int
    epsilon: int
    method: str
    epochs: int
    rate: float
    seed: int


def load(data: str) -> tuple[Records, Records]:
    """Training and test records; pictures are brought to 14 by 14, each by itself, with values from -1 to 1."""
    if data.startswith("adult"):
        found = [adult.load(part) for part in ("data", "test")]
        return tuple((torch.from_numpy(one), torch.from_numpy(two)) for one, two in found)  # type: ignore[return-value]
    return tuple(_pictures(part) for part in ("train", "t10k"))  # type: ignore[return-value]


def _pictures(part: str) -> Records:
    pictures, labels = images(MNIST, part)
    small = avg_pool2d(torch.from_numpy(pictures.astype(np.float32) / 127.5 - 1)[:, None], 2)
    return small.flatten(1), torch.from_numpy(labels.astype(np.int64))


def network(inputs: int, outputs: int, hidden: int, seed: int) -> nn.Module:
    """One hidden layer."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


@cache
def plans(records: int, batch: int, epochs: int, epsilon: int) -> dict[str, Proposal]:
    """What each method trains with, and what it was chosen among."""
    target = PrivacyTarget(Fraction(epsilon), batch, Fraction(1), epochs * records // batch)

    def priced(part: PrivacyTarget) -> Any:  # noqa: ANN401 - a plan
        if part.batch_size_expected > records:
            raise Malformed("train.privacy.batch_size_expected", "more than there are")
        probability = Fraction(part.batch_size_expected, records)
        return part.plan(probability, calibrate_noise(probability, part.steps, part.epsilon, DELTA, RELATION), RELATION)

    first, *others = proposals(target, priced)
    return {"dp_sgd": first, "correlated": min(others, key=lambda one: one.error)}


def train(run: Run, data: tuple[Records, Records]) -> dict[str, Any]:
    """One run, and its measures on both halves of the test records."""
    (inputs, targets), (test_inputs, test_targets) = data
    chosen = plans(len(inputs), run.batch, run.epochs, run.epsilon)
    plan = chosen[run.method].plan
    two = targets.is_floating_point()
    model = network(inputs.shape[1], 1 if two else CLASSES, HIDDEN[run.data.endswith(WIDE)], run.seed)
    loss: Callable[[Tensor, Tensor], Tensor] = two_classes if two else cross_entropy
    start, places = time.process_time(), run.batch + 3 * int(run.batch**0.5)
    engine: Engine
    if isinstance(plan, CorrelatedPlan):
        engine = CorrelatedEngine(plan, model, loss, (inputs, targets), places)
    else:
        engine = Engine(plan, model, loss, (inputs, targets), places)
    optimiser = torch.optim.SGD(model.parameters(), lr=run.rate)
    randomness = CsprngRandomness(hashlib.sha256(json.dumps(asdict(run)).encode()).digest())
    for step in range(1, plan.steps + 1):
        engine.step(step, optimiser, randomness)
    with torch.no_grad():
        outputs = model(test_inputs)
    half = len(test_targets) // 2
    epsilon = reported_epsilon(plan.whole, DELTA, RELATION)
    return {
        **asdict(run),
        "bands": chosen[run.method].bands,
        "epsilon_reported": ceil_decimal(epsilon, 4),
        "error_of_noise": round(chosen[run.method].error / chosen["dp_sgd"].error, 3),
        "first_half": round(_measured(outputs[:half], test_targets[:half]), 5),
        "noise_multiplier": float(plan.noise_multiplier),
        "processor_s": round(time.process_time() - start, 1),
        "second_half": round(_measured(outputs[half:], test_targets[half:]), 5),
    }


def _measured(outputs: Tensor, targets: Tensor) -> float:
    """The area under the curve of two classes, accuracy of ten."""
    found = measure(outputs, targets)
    return found.get("auc", found["accuracy"])


def runs(done: dict[Run, dict[str, Any]]) -> Iterator[Run]:
    """All runs in their order, each after those that it follows from."""
    for data, batch in SETTINGS:
        for epsilon in EPSILONS:
            best = {}
            for method in METHODS:
                grid = [
                    Run(data, batch, epsilon, method, epochs, rate, TUNING_SEEDS[0])
                    for epochs in EPOCHS
                    for rate in RATES
                ]
                yield from grid
                two = sorted(grid, key=lambda one: float(done[one]["first_half"]))[-2:]
                tried = {one: [replace(one, seed=seed) for seed in TUNING_SEEDS] for one in two}
                for again in tried.values():
                    yield from again[1:]
                best[method] = max(tried, key=lambda one: sum(float(done[run]["first_half"]) for run in tried[one]))
            for seed in range(SEEDS):
                for method in METHODS:
                    yield replace(best[method], seed=seed)


def known(into: Path) -> dict[Run, dict[str, Any]]:
    """What has its line."""
    if not into.is_file():
        return {}
    lines = [json.loads(line) for line in into.read_text(encoding="utf-8").splitlines()]
    return {Run(**{name: one[name] for name in Run.__dataclass_fields__}): one for one in lines}


def chosen(done: dict[Run, dict[str, Any]]) -> dict[tuple[str, int, int], dict[str, list[dict[str, Any]]]]:
    """The five runs of each method, by setting and ε, where all are there."""
    found: dict[tuple[str, int, int], dict[str, list[dict[str, Any]]]] = {}
    try:
        for run in runs(done):
            if run.seed < SEEDS and run in done:
                place = found.setdefault((run.data, run.batch, run.epsilon), {})
                place.setdefault(run.method, []).append(done[run])
    except KeyError:
        pass  # a run that others follow from is missing: what comes after it is not known
    return {key: one for key, one in found.items() if all(len(one.get(method, [])) == SEEDS for method in METHODS)}


def summary(done: dict[Run, dict[str, Any]]) -> list[str]:
    """A row for each setting and ε that has all its runs."""
    rows = []
    for (data, batch, epsilon), finals in chosen(done).items():
        values = {method: [float(one["second_half"]) for one in finals[method]] for method in METHODS}
        won = sum(two >= one for one, two in zip(*values.values(), strict=True))
        parts = [f"{statistics.fmean(found):.4f} ({min(found):.4f} to {max(found):.4f})" for found in values.values()]
        terms = [f"{one[0]['epochs']}, {one[0]['rate']:g}" for one in finals.values()]
        last = finals["correlated"][0]
        rows.append(
            f"| {data} | {batch} | {epsilon} | {terms[0]} | {parts[0]} | {last['bands']} | {last['error_of_noise']} "
            f"| {terms[1]} | {parts[1]} | {won} of {SEEDS} |"
        )
    return rows


def main() -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.correlated_table", description=__doc__)
    parser.add_argument("--into", type=Path, default=RESULTS, help="JSON lines")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    given = parser.parse_args()
    done, loaded = known(given.into), dict[str, tuple[Records, Records]]()
    for run in () if given.summary else runs(done):
        if run in done:
            continue
        if run.data not in loaded:
            loaded[run.data] = load(run.data)
        done[run] = train(run, loaded[run.data])
        write(given.into, done[run])
    for row in summary(done):
        sys.stdout.write(row + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
