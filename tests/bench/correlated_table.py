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
from tests.bench.datasets import FASHION, MNIST, Package
from tests.bench.idx import CLASSES, images
from trainer_adapter.dpsgd.correlated.correlated_engine import CorrelatedEngine
from trainer_adapter.dpsgd.correlated.plan_proposals import Proposal, chosen, proposals
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.job.privacy_target import PrivacyTarget

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "correlated_noise.jsonl"
SEEDS: Final = {"least": range(5), "chosen": range(5, 10)}
"""By the rule for bands: the second was made of what the first one's runs show, so it has seeds of its own."""
TUNING_SEEDS: Final = (1_000, 1_001, 1_002)
RATES: Final = (0.5, 1.0, 2.0, 4.0)
EPOCHS: Final = (1, 4)
EPSILONS: Final = (1, 2, 3)
SETTINGS: Final = (
    ("mnist", 256),
    ("adult", 128),
    ("mnist", 2_048),
    ("adult", 1_024),
    ("fashion", 256),
    ("adult, wide", 128),
)
"""Small batches, where sampling hides little; such as DP-SGD prefers; and small ones of a network of more numbers."""
RECORDS: Final = {"mnist": 60_000, "fashion": 60_000, "adult": 32_561}
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
        return _adult("data"), _adult("test")
    package = FASHION if data == "fashion" else MNIST
    return _pictures(package, "train"), _pictures(package, "t10k")


def _adult(part: str) -> Records:
    records, labels = adult.load(part)
    return torch.from_numpy(records), torch.from_numpy(labels)


def _pictures(package: Package, part: str) -> Records:
    pictures, labels = images(package, part)
    small = avg_pool2d(torch.from_numpy(pictures.astype(np.float32) / 127.5 - 1)[:, None], 2)
    return small.flatten(1), torch.from_numpy(labels.astype(np.int64))


def network(inputs: int, outputs: int, hidden: int, seed: int) -> nn.Module:
    """One hidden layer."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))


@cache
def proposed(data: str, batch: int, epochs: int, epsilon: int) -> list[Proposal]:
    """DP-SGD's plan, and those of correlated noise."""
    records = RECORDS[data.removesuffix(WIDE)]
    target = PrivacyTarget(Fraction(epsilon), batch, Fraction(1), epochs * records // batch)

    def priced(part: PrivacyTarget) -> Any:  # noqa: ANN401 - a plan
        if part.batch_size_expected > records:
            raise Malformed("train.privacy.batch_size_expected", "more than there are")
        probability = Fraction(part.batch_size_expected, records)
        return part.plan(probability, calibrate_noise(probability, part.steps, part.epsilon, DELTA, RELATION), RELATION)

    return proposals(target, priced)


def plan_of(run: Run) -> Proposal:
    """What a run trains with."""
    first, *others = proposed(run.data, run.batch, run.epochs, run.epsilon)
    return first if run.method == "dp_sgd" else min(others, key=lambda one: one.error)


def by_rule(run: Run, rule: str) -> Run:
    """The same where correlated noise is what the rule takes; else the run of DP-SGD."""
    found = proposed(run.data, run.batch, run.epochs, run.epsilon)
    return run if rule == "least" or chosen(found).bands > 1 else replace(run, method="dp_sgd")


def train(run: Run, data: tuple[Records, Records]) -> dict[str, Any]:
    """One run, and its measures on both halves of the test records."""
    (inputs, targets), (test_inputs, test_targets) = data
    assert len(inputs) == RECORDS[run.data.removesuffix(WIDE)]
    proposal, first = plan_of(run), proposed(run.data, run.batch, run.epochs, run.epsilon)[0]
    plan = proposal.plan
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
        "bands": proposal.bands,
        "epsilon_reported": ceil_decimal(epsilon, 4),
        "error_of_noise": round(proposal.error / first.error, 3),
        "first_half": round(_measured(outputs[:half], test_targets[:half]), 5),
        "noise_multiplier": float(plan.noise_multiplier),
        "processor_s": round(time.process_time() - start, 1),
        "second_half": round(_measured(outputs[half:], test_targets[half:]), 5),
    }


def _measured(outputs: Tensor, targets: Tensor) -> float:
    """The area under the curve of two classes, accuracy of ten."""
    found = measure(outputs, targets)
    return found.get("auc", found["accuracy"])


def runs(done: dict[Run, dict[str, Any]], rule: str) -> Iterator[Run]:
    """All runs of a table in their order, each after those that it follows from."""
    for data, batch in SETTINGS:
        for epsilon in EPSILONS:
            best = {}
            grids = {method: _grid(data, batch, epsilon, method, rule) for method in METHODS}
            for method, grid in grids.items() if grids["dp_sgd"] != grids["correlated"] else ():
                yield from grid
                two = sorted(grid, key=lambda one: float(done[one]["first_half"]))[-2:]
                tried = {one: [replace(one, seed=seed) for seed in TUNING_SEEDS] for one in two}
                for again in tried.values():
                    yield from again[1:]
                best[method] = max(tried, key=lambda one: sum(float(done[run]["first_half"]) for run in tried[one]))
            for seed in SEEDS[rule] if best else ():
                for method in METHODS:
                    yield replace(best[method], seed=seed)


def _grid(data: str, batch: int, epsilon: int, method: str, rule: str) -> list[Run]:
    whole = (Run(data, batch, epsilon, method, epochs, rate, TUNING_SEEDS[0]) for epochs in EPOCHS for rate in RATES)
    return [by_rule(one, rule) for one in whole]


def known(into: Path) -> dict[Run, dict[str, Any]]:
    """What has its line."""
    if not into.is_file():
        return {}
    lines = [json.loads(line) for line in into.read_text(encoding="utf-8").splitlines()]
    return {Run(**{name: one[name] for name in Run.__dataclass_fields__}): one for one in lines}


def finals(done: dict[Run, dict[str, Any]], rule: str) -> dict[tuple[str, int, int], list[list[dict[str, Any]]]]:
    """The five runs of both methods, by setting and ε, where all are there."""
    found: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    try:
        for run in runs(done, rule):
            if run.seed in SEEDS[rule] and run in done:
                found.setdefault((run.data, run.batch, run.epsilon), []).append(done[run])
    except KeyError:
        pass  # a run that others follow from is missing: what comes after it is not known
    whole = 2 * len(SEEDS[rule])
    return {key: [one[::2], one[1::2]] for key, one in found.items() if len(one) == whole}


def summary(done: dict[Run, dict[str, Any]], rule: str) -> list[str]:
    """A row for each setting and ε that has all its runs."""
    rows = []
    for (data, batch, epsilon), pair in finals(done, rule).items():
        values = [[float(one["second_half"]) for one in each] for each in pair]
        won = sum(two >= one for one, two in zip(*values, strict=True))
        parts = [f"{statistics.fmean(found):.4f} ({min(found):.4f} to {max(found):.4f})" for found in values]
        terms = [f"{one[0]['epochs']}, {one[0]['rate']:g}" for one in pair]
        last = pair[1][0]
        rows.append(
            f"| {data} | {batch} | {epsilon} | {terms[0]} | {parts[0]} | {last['bands']} | {last['error_of_noise']} "
            f"| {terms[1]} | {parts[1]} | {won} of {len(values[0])} |"
        )
    return rows


def same_plan() -> list[str]:
    """The settings where DP-SGD's plan is chosen, with the least noise that bands would leave."""
    rows = []
    for data, batch in SETTINGS:
        for epsilon in EPSILONS:
            if all(one.method == "dp_sgd" for one in _grid(data, batch, epsilon, "correlated", "chosen")):
                first, *others = proposed(data, batch, EPOCHS[-1], epsilon)
                least = min(others, key=lambda one: one.error)
                rows.append(f"| {data} | {batch} | {epsilon} | {least.bands} | {least.error / first.error:.3f} |")
    return rows


def main() -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.correlated_table", description=__doc__)
    parser.add_argument("--into", type=Path, default=RESULTS, help="JSON lines")
    parser.add_argument("--rule", choices=sorted(SEEDS), default="chosen", help="for the number of bands")
    parser.add_argument("--summary", action="store_true", help="run nothing")
    given = parser.parse_args()
    done, loaded = known(given.into), dict[str, tuple[Records, Records]]()
    for run in () if given.summary else runs(done, given.rule):
        if run in done:
            continue
        if run.data not in loaded:
            loaded[run.data] = load(run.data)
        done[run] = train(run, loaded[run.data])
        write(given.into, done[run])
    for rows in (summary(done, given.rule), same_plan() if given.rule == "chosen" else []):
        sys.stdout.write("".join(row + "\n" for row in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
