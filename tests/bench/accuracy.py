"""Accuracy at a price: real data, the project's engine, each run charged to a ledger and posted to it.

    python -m tests.bench.accuracy                 every run that is not yet in docs/training.jsonl
    python -m tests.bench.accuracy mnist-3 --seeds 1 --into /dev/stdout

A run whose line is there is not run again; a line is written whole, after the charge was posted. Five runs on the same
records would add up; here each stands for a world in which it is the only one, and has a book of its own.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from torch import Tensor, nn

from ledger.accounting.calibration import calibrate_noise
from ledger.mechanisms.plan import Plan
from ledger.wire.exact_numbers import format_number
from tests.bench import adult, basis
from tests.bench.charged import DELTA, RELATION, charged
from tests.trainer_adapter.local_training import train
from trainer_adapter.cli.train import best_device, device_in_words
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.job.step_log import StepLog

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "training.jsonl"
SEEDS: Final = 5
BLOCK_STEPS: Final = 20
MICROBATCH: Final = 2_048
Data = tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]
OnStep = Callable[[int, int], None]


@dataclass(frozen=True)
class Recipe:
    """How one model is trained.

    Attributes:
        data: ``mnist``, ``fashion-mnist`` or ``adult``. epochs: expected passes over the records.
    """

    data: str
    epsilon: Fraction
    epochs: int
    batch: int
    learning_rate: float
    clipping_norm: Fraction
    momentum: float = 0.9

    def plan(self, records: int) -> Plan:
        """The least noise that keeps (ε, δ)."""
        steps = round(self.epochs * records / self.batch)
        probability = Fraction(self.batch, records)
        noise = calibrate_noise(probability, steps, self.epsilon, DELTA, RELATION)
        return Plan(probability, noise, self.clipping_norm, steps, self.batch)

    def to_json(self) -> dict[str, Any]:
        """As a result names it."""
        return {
            "batch": self.batch,
            "clipping_norm": format_number(self.clipping_norm),
            "data": self.data,
            "epochs": self.epochs,
            "epsilon": format_number(self.epsilon),
            "learning_rate": self.learning_rate,
            "momentum": self.momentum,
        }


_PICTURES: Final = Recipe("mnist", Fraction(3), 40, 8_192, 8.0, Fraction(1, 10))
"""On both sets of pictures, each of its numbers chosen where the *other* set was trained on; see docs/training.md."""
RECIPES: Final = {
    "mnist-3": _PICTURES,
    "mnist-1": replace(_PICTURES, epsilon=Fraction(1), epochs=20, learning_rate=4.0),
    "fashion-mnist-3": replace(_PICTURES, data="fashion-mnist"),
    "adult-1": Recipe("adult", Fraction(1), 20, 1_024, 1.0, Fraction(1, 2)),
}


FLOORS: Final = {"mnist-3": 0.986, "mnist-1": 0.982, "fashion-mnist-3": 0.897}
"""The mean accuracy that each must pass."""


def load(data: str) -> Data:
    """Training and test records as a linear model reads them; labels of two classes are floats."""
    if data != "adult":
        return basis.load(data)
    train_set, test_set = (tuple(torch.from_numpy(one) for one in adult.load(part)) for part in ("data", "test"))
    return (train_set[0], train_set[1]), (test_set[0], test_set[1])


def measure(outputs: Tensor, targets: Tensor) -> dict[str, float]:
    """Accuracy on public records; of two classes the area under the curve too."""
    if targets.is_floating_point():
        from sklearn.metrics import roc_auc_score

        scores = outputs[:, 0]
        right = (scores > 0) == (targets > 0.5)
        return {"accuracy": float(right.double().mean()), "auc": float(roc_auc_score(targets, scores))}
    return {"accuracy": float((outputs.argmax(dim=1) == targets).double().mean())}


def without_privacy(data: Data) -> dict[str, float]:
    """What scikit-learn's logistic regression reaches on the same records, of two classes."""
    from sklearn.linear_model import LogisticRegression

    (inputs, targets), (test_inputs, test_targets) = data
    fitted = LogisticRegression(max_iter=2_000).fit(inputs.numpy(), targets.numpy())
    found = measure(torch.from_numpy(fitted.decision_function(test_inputs.numpy()))[:, None], test_targets)
    return {f"{name}_without_privacy": value for name, value in found.items()}


def two_classes(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of one score (records, 1)."""
    return nn.functional.binary_cross_entropy_with_logits(outputs[:, 0], targets)


def run(recipe: Recipe, plan: Plan, seed: int, data: Data, folder: Path, on_step: OnStep) -> dict[str, Any]:  # noqa: PLR0913, PLR0917
    """One run, from its charge to its result."""
    (inputs, targets), (test_inputs, test_targets) = data
    device = best_device()
    two = targets.is_floating_point()
    model = nn.Linear(inputs.shape[1], 1 if two else 10).to(device)
    for value in model.parameters():
        nn.init.zeros_(value)
    optimiser = torch.optim.SGD(model.parameters(), lr=recipe.learning_rate, momentum=recipe.momentum)
    name = f"{recipe.data}-{format_number(recipe.epsilon)}-{seed}"
    start, used = time.perf_counter(), time.process_time()

    with (
        charged(folder, name, plan, len(inputs), recipe.epsilon) as told,
        closing(StepLog.create(folder / "steps.log", name, plan, BLOCK_STEPS)) as log,
    ):
        told.steps = train(
            plan,
            model,
            two_classes if two else nn.functional.cross_entropy,
            (inputs, targets),
            optimiser,
            log,
            on_step=on_step,
            microbatch=MICROBATCH,
            randomness=CsprngRandomness(hashlib.sha256(f"accuracy {name}".encode()).digest()),
        )
    with torch.no_grad():
        found = measure(model(test_inputs.to(device)).cpu(), test_targets)
    if two:
        found |= without_privacy(data)
    return {
        **recipe.to_json(),
        **{key: round(value, 5) for key, value in found.items()},
        "delta": format_number(DELTA),
        "device": device_in_words(device),
        "entry": told.posted,
        "epsilon_told": format_number(told.epsilon),
        "noise_multiplier": format_number(plan.noise_multiplier),
        "plan": plan.digest,
        "processor_s": round(time.process_time() - used, 1),
        "python": platform.python_version(),
        "seed": seed,
        "steps": told.steps,
        "torch": torch.__version__,
        "wall_s": round(time.perf_counter() - start, 1),
    }


def known(into: Path) -> dict[str, dict[str, Any]]:
    """The runs that have their line, by recipe and seed."""
    if not into.is_file():
        return {}
    lines = [json.loads(line) for line in into.read_text(encoding="utf-8").splitlines()]
    names = Recipe.__dataclass_fields__
    return {_mark({key: one[key] for key in names}, one["seed"]): one for one in lines}


def summary(results: dict[str, dict[str, Any]]) -> tuple[list[str], bool]:
    """A line for each recipe that ran, mean and range; and whether every mean is above its floor."""
    lines, above = [], True
    for name, recipe in RECIPES.items():
        mine = [one for one in results.values() if all(one[key] == value for key, value in recipe.to_json().items())]
        if not mine:
            continue
        key = "auc" if "auc" in mine[0] else "accuracy"
        values = [one[key] for one in mine]
        mean, floor = statistics.fmean(values), FLOORS.get(name)
        above = above and (floor is None or mean > floor)
        told = f"; above {floor}" if floor is not None and mean > floor else ""
        told = f"; BELOW {floor}" if floor is not None and mean <= floor else told
        beside = mine[0].get(f"{key}_without_privacy")
        told += "" if beside is None else f"; without privacy {beside}"
        lines.append(f"{name}: {key} {mean:.4f} ({min(values)} to {max(values)}, {len(values)} runs){told}")
    return lines, above


def _mark(recipe: dict[str, Any], seed: int) -> str:
    return json.dumps([recipe, seed], sort_keys=True)


def write(into: Path, result: dict[str, Any]) -> None:
    """One line, durable."""
    with into.open("a", encoding="utf-8") as file:
        file.write(json.dumps(result, sort_keys=True, ensure_ascii=False) + "\n")
        file.flush()
        if file.seekable():
            os.fsync(file.fileno())


def main() -> int:
    """Run what is missing."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.accuracy", description=__doc__.split("\n", 1)[0])
    parser.add_argument("recipes", nargs="*", choices=[*RECIPES, []], help="all of them when none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="runs of each")
    parser.add_argument("--into", type=Path, default=RESULTS, help="JSON lines")
    given = parser.parse_args()
    done, console = known(given.into), Console(stderr=True)
    for seed in range(given.seeds):
        for name in given.recipes or RECIPES:
            if _mark(RECIPES[name].to_json(), seed) in done:
                continue
            result = _watched(console, name, seed)
            write(given.into, result)
            told = {key: result[key] for key in ("accuracy", "auc", "processor_s") if key in result}
            console.print(f"{name}, run {seed + 1}: {told}", highlight=False)
    lines, above = summary(known(given.into))
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    return 0 if above else 1


def _watched(console: Console, name: str, seed: int) -> dict[str, Any]:
    """A run with its progress, in a folder of its own."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with tempfile.TemporaryDirectory() as folder, Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(f"{name}, run {seed + 1}", total=None)
        recipe, data = RECIPES[name], load(RECIPES[name].data)

        def told(step: int, steps: int) -> None:
            progress.update(task, completed=step, total=steps)

        return run(recipe, recipe.plan(len(data[0][0])), seed, data, Path(folder), told)


if __name__ == "__main__":
    sys.exit(main())
