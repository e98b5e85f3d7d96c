"""A run that is charged to a ledger and posted to it: the ε told of it is the ledger's.

Each run has a book of its own in SQLite with one partition whose whole budget is the target (ε, δ), under the rule
that counts reference steps. The book admits the plan, and after it not one step more.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from ledger.accounting.epsilon_report import reported_epsilon
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from policy.checks.field_readers import format_time
from tests.factories.documents import NOW, contract, policy
from tests.factories.people import BANK_A, HOSPITAL, SRO
from tests.factories.stored import StoredWorld, open_world

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from ledger.book.book import Outcome
    from ledger.mechanisms.plan import Plan

DELTA: Final = Fraction(1, 100_000)
RELATION: Final = "REPLACE_SPECIAL"


@dataclass
class Charged:
    """A charge that is pending, and what the ledger says of it.

    Attributes:
        steps: what ran; nothing is posted before it is told, and a run that breaks is posted in full.
        epsilon: of the whole plan, at the partition's δ.
    """

    name: str
    epsilon: Fraction
    steps: int | None = None
    posted: int | None = None


@contextmanager
def charged(folder: Path, name: str, plan: Plan, records: int, epsilon: Fraction) -> Iterator[Charged]:
    """Charge the plan, release the key, and post what ran when the block ends. Raises: AssertionError, if refused."""
    with open_world(folder) as world:
        run = plan.to_json()
        digest = _furnish(world, plan, records, epsilon)
        reported = Charged(name, reported_epsilon(plan.whole, DELTA, RELATION))
        where: dict[str, Any] = {"partitions": (f"{HOSPITAL}/digits/train",), "contract": digest}
        _expect("pending", world.submit(world.charge(name, run=run, **where)))
        _expect("permitted", world.submit(world.release(name, run)))
        try:
            yield reported
        except BaseException:
            reported.steps = plan.steps
            raise
        finally:
            (posted,) = world.submit(world.settle(name, plan.steps if reported.steps is None else reported.steps))
            _expect("posted", [posted])
            reported.posted = posted.index
        one = {**run, "steps": 1}
        (more,) = world.submit(world.charge(f"{name}-more", run=one, **where))
        assert reported.steps != plan.steps or more.code.refused, "the budget must be spent to the last step"


def _furnish(world: StoredWorld, plan: Plan, records: int, epsilon: Fraction) -> str:
    """A policy that permits the rule, a partition of this budget, and a contract for this ε; its digest."""
    agreed = {**contract(BANK_A), "id": "accuracy", "run": {"epsilon_max": format_number(epsilon)}}
    wider = {**policy(), "effective": format_time(NOW), "rules": ["renyi", "reference"], "version": 2}
    _expect(
        "permitted",
        world.submit(
            world.document("policy", wider, "policy-2", SRO, SRO),
            world.partition(
                "train",
                delta=format_number(DELTA),
                epsilon=format_number(epsilon),
                load={**plan.to_json(), "steps": 1},
                records=records,
                relation=RELATION,
                rule="reference",
            ),
            world.document("contract", agreed, "contract-accuracy", BANK_A, BANK_A, HOSPITAL),
        ),
    )
    return c.digest(c.dump(agreed))


def _expect(word: str, outcomes: list[Outcome]) -> None:
    assert all(one.code.word == word for one in outcomes), outcomes
