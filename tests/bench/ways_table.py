"""All ways to learn at one ε, beside each other: ``python -m tests.bench.ways_table`` (MNIST and Adult, ε 3, δ 1e-5).

Every way has the same governed records, may look at the same public inputs (without classes), and is measured on the
same records, which none has seen. Each row is a real run of the project's code: charged and priced by its plan, noise
by the room's generator. One JSON object a way, a data set and a seed; an error in the middle loses none before it.

    dp_sgd        a linear model by DP-SGD                  pate        a student of 400 answers
    answers       the 400 answers themselves                aggregate   the mean of clipped linear models of 250 chunks
    statistics    noisy sums of each class, and the class whose mean is nearest
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from ledger.accounting.calibration import least_noise
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.ensembles import ClippedMean, EnsemblePlan, Interval
from ledger.mechanisms.mechanism import Mechanism
from ledger.mechanisms.statistics import ClippedColumn, ClippedSum, Coordinate
from ledger.mechanisms.statistics_plans import StatisticsPlan
from ledger.wire.exact_numbers import ceil_decimal
from tests.bench import accuracy, adult, features, pate_student
from tests.bench.basis import Basis
from tests.bench.charged import DELTA, RELATION
from trainer_adapter.ensembles.answer_noise import noisy_answer as ensemble_answer
from trainer_adapter.ensembles.chunks import chunks_of
from trainer_adapter.statistics.noisy_answers import noisy_answer as noisy_statistic

EPSILON: Final = Fraction(3)
CHUNKS: Final = 250
SEEDS: Final = 3
ADULT_PUBLIC: Final = 8_000
NARROW: Final = 25
"""Directions of a picture where a class has as many numbers: an answer holds 256."""
COEFFICIENT: Final = Fraction(3, 10)
"""The bounds of a linear model's coefficients."""
RIDGE: Final = 10.0
"""What least squares in a chunk of some 130 to 240 records is held back by."""
Classes = NDArray[np.int64]


@dataclass(frozen=True)
class World:
    """One data set.

    Attributes:
        wide, narrow: inputs of governed, public and measured records, (records, numbers) each; the narrow ones are
            fewer numbers, from -1 to 1, for ways whose noise grows with their number.
        governed, measured: classes (records,). Those of public records are not here.
        recipe: of DP-SGD; its inputs are ``for_training``.
    """

    name: str
    classes: int
    wide: tuple[Tensor, Tensor, Tensor]
    narrow: tuple[Tensor, Tensor, Tensor]
    for_training: tuple[Tensor, Tensor]
    governed: Tensor
    measured: Classes
    recipe: accuracy.Recipe


def of_mnist(pictures: pate_student.Pictures) -> World:
    """The public pictures give all coordinates: 256 for teachers, 2,000 for DP-SGD, 25 of equal spread."""
    public = pate_student.PUBLIC
    (train, _), (test, _) = (features.load("mnist", part) for part in ("train", "t10k"))
    basis = Basis.of(test[:public])
    spread = pictures.test[:public, :NARROW].std(dim=0) * 3
    narrow = [(part[:, :NARROW] / spread).clamp(-1, 1) for part in (pictures.train, pictures.test)]
    return World(
        "mnist",
        10,
        (pictures.train, pictures.test[:public], pictures.test[public:]),
        (narrow[0], narrow[1][:public], narrow[1][public:]),
        (basis.of_records(train), basis.of_records(test[public:])),
        pictures.targets,
        pictures.answers[public:],
        accuracy.RECIPES["mnist-3"],
    )


def of_adult() -> World:
    """By public bounds alone."""
    (train, incomes), (test, others) = (
        tuple(torch.from_numpy(one) for one in adult.load(part)) for part in ("data", "test")
    )
    parts = (train, test[:ADULT_PUBLIC], test[ADULT_PUBLIC:])
    recipe = replace(accuracy.RECIPES["adult-1"], epsilon=EPSILON)
    measured = others[ADULT_PUBLIC:].numpy().astype(np.int64)
    return World("adult", 2, parts, parts, (train, parts[2]), incomes.long(), measured, recipe)


def dp_sgd(world: World, seed: int) -> dict[str, Any]:
    """Charged to a book of its own, as in docs/training.jsonl."""
    two = world.classes == 2
    targets = [one.float() if two else one for one in (world.governed, torch.from_numpy(world.measured))]
    data = ((world.for_training[0], targets[0]), (world.for_training[1], targets[1]))
    plan = world.recipe.plan(len(targets[0]))
    with tempfile.TemporaryDirectory() as folder:
        found = accuracy.run(world.recipe, plan, seed, data, Path(folder), lambda _step, _steps: None)
    return {"accuracy": round(found["accuracy"] * 100, 2), "epsilon": found["epsilon_told"]}


def pate(world: World, pictures: pate_student.Pictures | None, seed: int) -> dict[str, Any]:
    """A student: on pictures as tests.bench.pate_student has it, on tables a linear model of the answers alone."""
    if pictures is not None:
        found = pate_student.run(pictures, pate_student.QUESTIONS, seed)
        return {name: found[name] for name in ("accuracy", "answers_right", "epsilon")}
    terms = pate_student.plan(classes=world.classes)
    asked = np.random.default_rng(seed).permutation(len(world.wide[1]))[: terms.questions]
    labels = pate_student.answers_of(terms, world.wide[0], world.governed, world.wide[1][asked], seed)
    student = LogisticRegression(C=0.1, max_iter=500).fit(world.wide[1][asked].numpy(), labels)
    right = student.predict(world.wide[2].numpy()) == world.measured
    return {"accuracy": _share(right), "epsilon": _told(terms.whole)}


def answers(world: World, seed: int) -> dict[str, Any]:
    """Of as many measured records as are charged: the ensemble's own answers."""
    terms = pate_student.plan(classes=world.classes)
    asked = np.random.default_rng(seed).permutation(len(world.measured))[: terms.questions]
    labels = pate_student.answers_of(terms, world.wide[0], world.governed, world.wide[2][asked], seed)
    return {"accuracy": _share(labels == world.measured[asked]), "epsilon": _told(terms.whole)}


def aggregate(world: World, seed: int) -> dict[str, Any]:
    """The noisy mean of what least squares finds in each chunk; one answer, its coefficients clipped."""
    models = world.classes if world.classes > 2 else 1
    centre = world.narrow[1].mean(dim=0)
    inputs, _, seen = ((part - centre)[:, : 256 // models - 1].numpy() for part in world.narrow)
    numbers = models * (inputs.shape[1] + 1)
    bounds = Interval(Coordinate(-COEFFICIENT), Coordinate(COEFFICIENT))

    def terms_at(noise: int) -> EnsemblePlan:
        answer = ClippedMean(noise=Fraction(noise, 10_000), outputs=(bounds,) * numbers)
        return EnsemblePlan(relation=RELATION, chunks_by="position", teachers=CHUNKS, answer=answer, questions=1)

    terms = terms_at(_least(lambda noise: terms_at(noise).whole))
    key = seed.to_bytes(32, "big")
    chunks = chunks_of(key, "bench", "position", CHUNKS, (world.governed, world.governed), None)
    governed = world.governed.numpy()
    outputs = [_linear(inputs[chunks == chunk], governed[chunks == chunk], world.classes) for chunk in range(CHUNKS)]
    given = ensemble_answer(terms, np.stack(outputs))["values"]
    assert isinstance(given, list)
    weights = np.array([float(str(one)) for one in given]).reshape(models, -1)
    scores = seen @ weights[:, :-1].T + weights[:, -1]
    named = scores.argmax(axis=1) if models > 1 else (scores[:, 0] > 0).astype(np.int64)
    return {"accuracy": _share(named == world.measured), "epsilon": _told(terms.whole)}


def _linear(inputs: NDArray[np.float32], targets: Classes, classes: int) -> NDArray[np.float64]:
    """Least squares to a class's indicator, less its mean among equal classes: (classes, numbers + 1), flat.

    Of two classes the second alone. A constant beside coefficients that are bounded alike: none lies outside by far.
    """
    wanted = np.eye(classes)[targets][:, 1:] - 0.5 if classes == 2 else np.eye(classes)[targets] - 1 / classes
    seen = np.column_stack([inputs, np.ones(len(inputs))])
    found: NDArray[np.float64] = np.linalg.solve(seen.T @ seen + RIDGE * np.eye(seen.shape[1]), seen.T @ wanted)
    return found.T.ravel()


class _Columns:
    """Columns of a table that has, for each class, a record's inputs if it is of that class, and zeros if not."""

    def __init__(self, inputs: NDArray[np.float32], targets: Classes) -> None:
        self.records, self._inputs, self._targets = len(inputs), inputs, targets

    def values(self, column: str) -> NDArray[np.float64]:
        """Of ``inputs[class · width + place]``; the last place of a class is 1."""
        width = self._inputs.shape[1] + 1
        kind, place = divmod(int(column.removeprefix("inputs[").removesuffix("]")), width)
        value = np.ones(self.records) if place == width - 1 else self._inputs[:, place].astype(np.float64)
        return np.where(self._targets == kind, value, 0.0)


def statistics(world: World, seed: int) -> dict[str, Any]:  # noqa: ARG001 - its chance is the operating system's
    """Sums of each class's inputs, and how many it has; the class whose mean is nearest, in units of spread."""
    inputs = world.narrow[0][:, : 256 // world.classes - 1].numpy()
    width = inputs.shape[1] + 1
    columns = tuple(
        ClippedColumn(f"inputs[{place}]", Coordinate(-1), Coordinate(1)) for place in range(world.classes * width)
    )

    def plan_at(noise: int) -> StatisticsPlan:
        # ρ falls with the square of the noise, as it is searched.
        rho = Fraction(10_000**2, noise**2)
        return StatisticsPlan(relation=RELATION, statistics=(ClippedSum(columns=columns, name="sums", rho=rho),))

    plan = plan_at(_least(lambda noise: plan_at(noise).whole))
    given = noisy_statistic(plan.statistics[0], RELATION, _Columns(inputs, world.governed.numpy()))
    sums = next(iter(given.values())).numpy().reshape(world.classes, width)
    counts = sums[:, -1:].clip(min=1)
    means, seen = sums[:, :-1] / counts, world.narrow[2][:, : width - 1].numpy()
    public = world.narrow[1][:, : width - 1].numpy()
    # Linear discriminants by the public inputs' covariance, which costs nothing.
    weights = np.linalg.solve(np.cov(public.T) + 1e-3 * np.eye(width - 1), means.T)
    scores = seen @ weights - 0.5 * (means.T * weights).sum(axis=0) + np.log(counts[:, 0] / counts.sum())
    return {"accuracy": _share(scores.argmax(axis=1) == world.measured), "epsilon": _told(plan.whole)}


def _least(of: Callable[[int], Mechanism]) -> int:
    least = least_noise(of, EPSILON, DELTA, RELATION)
    assert least is not None
    return int(least * 10_000)


def _told(mechanism: Mechanism) -> str:
    return ceil_decimal(reported_epsilon(mechanism, DELTA, RELATION), 2)


def _share(right: NDArray[np.bool_]) -> float:
    return round(float(right.mean()) * 100, 2)


def main() -> None:
    """Write a line for each way, data set and seed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.ways_table")
    parser.add_argument("--data", nargs="*", default=["adult", "mnist"], choices=["adult", "mnist"])
    parser.add_argument("--ways", nargs="*", default=["statistics", "aggregate", "answers", "dp_sgd", "pate"])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--into", type=Path, default=Path("/dev/stdout"), help="JSON lines")
    given = parser.parse_args()
    for name in given.data:
        pictures = pate_student.Pictures.load() if name == "mnist" else None
        world = of_adult() if pictures is None else of_mnist(pictures)
        ways: dict[str, Callable[[int], dict[str, Any]]] = {
            "aggregate": partial(aggregate, world),
            "answers": partial(answers, world),
            "dp_sgd": partial(dp_sgd, world),
            "pate": partial(pate, world, pictures),
            "statistics": partial(statistics, world),
        }
        for way in given.ways:
            for seed in range(given.seeds):
                started = time.process_time()
                found = ways[way](seed)
                used = round(time.process_time() - started)
                accuracy.write(given.into, {"data": name, **found, "processor_s": used, "seed": seed, "way": way})


if __name__ == "__main__":
    main()
