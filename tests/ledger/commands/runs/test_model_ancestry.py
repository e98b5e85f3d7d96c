"""What a model reveals with its ancestry, of a recorded book, against three odometers computed from their formulas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from math import comb, exp, log
from typing import Any, cast

import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.pld import PLDAccountant

from ledger.accounts.run_epsilon import RunEpsilon
from ledger.commands.runs.model_ancestry import ANCESTRY_MAX, RecordedFacts, epsilon_with_ancestry, model_ancestry
from ledger.domain.charge_record import Charge
from ledger.domain.facts import Partition
from tests.factories.documents import PARTITION, plan
from tests.factories.people import HOSPITAL
from tests.factories.stored import StoredWorld

OTHER = f"{HOSPITAL}/digits/2027-q1"
DELTA = 1e-5
NOISE, PROBABILITY, STEPS = 4.0, 1 / 16, 40
ORDERS = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)


def divergence(order: int, steps: int) -> float:
    """Of so many sampled Gaussian steps at a whole order (Mironov, Talwar, Zhang 2019, section 3.3)."""
    terms = (
        comb(order, k) * (1 - PROBABILITY) ** (order - k) * PROBABILITY**k * exp(k * (k - 1) / (2 * NOISE**2))
        for k in range(order + 1)
    )
    return steps * log(sum(terms)) / (order - 1)


def bound(order: int, steps: int, delta: float) -> float:
    """The ε of an order at its share of δ."""
    return divergence(order, steps) + log(1 - 1 / order) - log(delta * order) / (order - 1)


def pld(steps: int, delta: float) -> float:
    """By dp_accounting's own accountant, on a grid of its own."""
    accountant = PLDAccountant(NeighboringRelation.REPLACE_SPECIAL, value_discretization_interval=1e-3)
    accountant.compose(PoissonSampledDpEvent(PROBABILITY, GaussianDpEvent(NOISE)), steps)
    return float(accountant.get_epsilon(delta))


def odometers(terms: Mapping[str, Any], run: list[int]) -> dict[str, float]:
    """The three of runs of so many steps, the first first: half of δ for the rule's, and a quarter for each other."""
    shares = [weight / sum(terms["weights"]) for weight in terms["weights"]]
    whole = sum(run)
    units = sum(-(-4 * steps // run[0]) for steps in run)
    wholes = units / 4
    weight = 2 / (units * (units + 1)) + (1 / (2 * wholes * (wholes + 1)) if units % 4 == 0 else 0)
    return {
        "renyi odometer": min(
            bound(order, whole, DELTA / 2 * share) for order, share in zip(terms["orders"], shares, strict=True)
        ),
        "Rényi odometer of the plans": min(bound(order, whole, DELTA / 4 / len(ORDERS)) for order in ORDERS),
        "PLD odometer of the plans": pld(-(-run[0] * units // 4), DELTA / 4 / 2 * weight),
    }


def _ran(world: StoredWorld, name: str, *partitions: str, steps: int = STEPS, base: tuple[str, ...] = ()) -> None:
    """A run that is charged whole, and posted after one step."""
    run = plan(steps, "4")
    made = {"base": [*base]} if base else {}
    sent = world.charge(name, run=run, partitions=partitions, **made)  # type: ignore[arg-type]  # JSON
    for one in (sent, world.release(name, run), world.settle(name, 1)):
        (outcome,) = world.submit(one)
        assert not outcome.code.refused, outcome


@pytest.fixture
def lines(world: StoredWorld) -> dict[str, dict[str, RunEpsilon]]:
    """Of a model that starts from two that start from one, and of these two, by partition."""
    world.found(*world.founding(), world.partition("2027-q1"))
    _ran(world, "first", PARTITION, OTHER)
    _ran(world, "stranger", PARTITION)
    _ran(world, "left", PARTITION, base=("first",))
    _ran(world, "right", PARTITION, steps=15, base=("first",))
    _ran(world, "last", OTHER, base=("left", "right"))
    with world.book.read() as facts:
        return {
            name: {line.partition: line for line in epsilon_with_ancestry(facts, facts.charges[name])}
            for name in ("first", "left", "right", "last")
        }


@pytest.mark.parametrize("engine", ["sqlite"])
def test_each_partition_is_bounded_by_the_least_of_three_odometers_of_its_runs(
    world: StoredWorld, lines: dict[str, dict[str, RunEpsilon]]
) -> None:
    """Each run whole and once, whatever was posted; what the model does not descend from counts for nothing."""
    with world.book.read() as facts:
        terms = {ref: read_terms(facts.partitions[ref]) for ref in (PARTITION, OTHER)}
    assert lines["first"] == {}
    for name, ref, run in (
        ("left", PARTITION, [STEPS, STEPS]),
        ("right", PARTITION, [STEPS, 15]),
        ("last", PARTITION, [STEPS, STEPS, 15]),
        ("last", OTHER, [STEPS, STEPS]),
    ):
        line, expected = lines[name][ref], odometers(terms[ref], run)
        accountant = min(expected, key=lambda one: expected[one])
        assert (line.runs, line.accountant, line.partition) == (len(run), accountant, ref)
        assert line.epsilon is not None
        assert float(line.epsilon) == pytest.approx(expected[accountant], rel=0.02)
        assert float(line.epsilon) > pld(sum(run), DELTA), "the composition of all plans would be less, and no bound"
    # Of the partition that only the first was charged to, its own number.
    assert (lines["left"][OTHER].runs, lines["left"][OTHER].accountant) == (1, "PLD")
    assert float(lines["left"][OTHER]) == pytest.approx(pld(STEPS, DELTA), rel=0.02)


def read_terms(partition: Partition) -> dict[str, Any]:
    """As they are recorded."""
    terms: dict[str, Any] = json.loads(partition.terms)
    assert terms["kind"] == "renyi"
    return terms


@dataclass(frozen=True)
class Descent:
    """The part of a book that the limit is decided on."""

    charges: Mapping[str, Charge]
    partitions: Mapping[str, Partition]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_beyond_a_thousand_runs_no_bound_is_computed(
    world: StoredWorld, lines: dict[str, dict[str, RunEpsilon]]
) -> None:
    """One more than the limit has no ε, on each partition; as many as the limit are all counted."""
    del lines
    with world.book.read() as facts:
        charge, partitions = facts.charges["last"], dict(facts.partitions)
        chain = {"0": charge._replace(id="0", base=())}
        for place in range(1, ANCESTRY_MAX + 1):
            chain[str(place)] = charge._replace(id=str(place), base=(str(place - 1),))
    newest = chain[str(ANCESTRY_MAX)]
    assert len(model_ancestry(chain, chain[str(ANCESTRY_MAX - 1)])) == ANCESTRY_MAX
    (line,) = epsilon_with_ancestry(cast("RecordedFacts", Descent(chain, partitions)), newest)
    assert (line.partition, line.epsilon, line.number) == (OTHER, None, "infinite")
    assert line.runs > ANCESTRY_MAX
