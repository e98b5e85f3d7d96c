"""What a plan costs, through the function that a charge is priced with: seen before, and new."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from itertools import count
from typing import Any, Final

import pytest
from msgspec import structs
from pytest_benchmark.fixture import BenchmarkFixture

from ledger.accounts.pricing import COMPUTED
from ledger.commands.registry import read_command
from ledger.commands.runs.charge_entry import MakeCharge
from ledger.domain.facts import Partition
from ledger.mechanisms.plan import Plan
from tests.bench.compare import Side, compare
from tests.bench.history import HUB, Sent, opened
from tests.factories.memory import ref_of

pytestmark = pytest.mark.bench

SEEN_S: Final = 20e-6
NEW_S: Final = 5e-3
AGAIN: Final = 500
PLANS: Final = {
    "depa-covid": Plan(Fraction(1, 186), Fraction(6531, 10_000), Fraction(1), 186, 8),
    "mnist": Plan(Fraction(256, 60_000), Fraction(11, 10), Fraction(1), 1_170, 256),
    "sparse": Plan(Fraction(1, 10_000), Fraction(8, 10), Fraction(1), 20_000, 100),
}
BUDGETS: Final = {"tight": ("3", "0.000001"), "wide": ("120", "0.00001")}


class Office:
    """A partition under ``renyi``, and runs that are asked of it."""

    def __init__(self, plan: Plan, budget: tuple[str, str]) -> None:
        world = opened()
        epsilon, delta = budget
        world.lineage = Fraction(epsilon)
        assert world.open("priced", epsilon, delta=delta).code.word == "permitted"
        self.partition: Partition = world.state.partitions[ref_of("priced")]
        self.world, self.contract = world, world.contract(HUB)
        world.decide_charge("q4", HUB, self.contract, ("q4",), plan.to_json())
        self.sent: Sent = self._sent(plan)
        self._numbers = count(1)

    def _sent(self, plan: Plan) -> Sent:
        assert self.world.last is not None
        body: Any = {**self.world.last.request, "partitions": [self.partition.ref], "plan": plan.to_json()}
        return self.world.sent("charge", "asked", HUB, body)

    def read(self) -> MakeCharge:
        """The plan of this office in a command read anew."""
        body = read_command(*self.sent).body
        assert isinstance(body, MakeCharge)
        return body

    def new(self) -> MakeCharge:
        """A plan that nobody asked about before: another noise, and another probability, each time."""
        body, number = self.read(), next(self._numbers)
        assert isinstance(body.plan, Plan)
        noise = body.plan.noise_multiplier + Fraction(number, 10**6)
        probability = body.plan.sampling_probability * Fraction(10**6, 10**6 + number)
        return structs.replace(
            body, plan=structs.replace(body.plan, noise_multiplier=noise, sampling_probability=probability)
        )

    def price(self, bodies: list[MakeCharge]) -> None:
        """Price each."""
        for body in bodies:
            COMPUTED.price(self.partition, body)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("name", PLANS)
def test_a_new_plan(benchmark: BenchmarkFixture, name: str, budget: str) -> None:
    """In 5 ms under `renyi`, against the same plan seen before."""
    office = Office(PLANS[name], BUDGETS[budget])
    office.price([office.read()])
    reported = compare(
        benchmark,
        Side(f"new plan priced, {name}, {budget} budget", 5, lambda: [office.new() for _ in range(5)], office.price),
        Side("seen before", AGAIN, lambda: [office.read() for _ in range(AGAIN)], office.price),
        limit=NEW_S,
    )
    assert reported.within, reported.line


def test_a_plan_seen_before(benchmark: BenchmarkFixture) -> None:
    """In 20 µs, each from a command of its own, against one SHA-256 of the plan's bytes."""
    office = Office(PLANS["depa-covid"], BUDGETS["wide"])
    office.price([office.read()])
    data = str(PLANS["depa-covid"].to_json()).encode()

    def hashed(times: int) -> None:
        for _ in range(times):
            hashlib.sha256(data).hexdigest()

    reported = compare(
        benchmark,
        Side("plan priced that was seen before", AGAIN, lambda: [office.read() for _ in range(AGAIN)], office.price),
        Side("SHA-256 of its bytes", AGAIN, lambda: AGAIN, hashed),
        limit=SEEN_S,
    )
    assert reported.within, reported.line
