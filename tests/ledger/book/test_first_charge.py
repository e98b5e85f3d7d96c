"""The first charge of a partition of ``renyi`` with a declared load chooses its division of δ, for good."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.audit.replay import verify_book
from ledger.domain.facts import Partition
from ledger.filters import read_rule
from ledger.filters.renyi import Renyi
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from policy.decisions.gate import gate
from policy.documents import MECHANISMS
from tests.factories.documents import NOW, PARTITION, plan, policy
from tests.factories.people import LOG, SRO
from tests.factories.stored import StoredWorld, no_step, open_world

STEP: Final[c.Object] = {
    "kind": "poisson_gaussian", "noise_multiplier": "0.6531", "probability": "1/186", "steps": 80, "v": 1
}  # fmt: skip
HEAVY: Final[c.Object] = {"kind": "mechanism", "mechanism": STEP, "v": 1}
"""Little noise: as the first run it gains by its declaration."""
LIGHT: Final = plan(40, "16")
"""The first run that gains nothing by it."""


@pytest.fixture(params=["sqlite", "postgresql"])
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StoredWorld]:
    """Partitions with the heavy load declared, and one without; memory, rows and replay are compared at the end."""
    with open_world(tmp_path, request.param) as made:
        made.is_checked = True
        wider: Any = {**policy(), "effective": format_time(NOW), "mechanisms": [*MECHANISMS], "version": 2}
        opened = made.submit(
            made.document("policy", wider, "policy-2", SRO, SRO),
            *(made.partition(name, load=HEAVY) for name in ("first", "second")),
            made.partition("none"),
        )
        assert {one.code.word for one in opened} == {"permitted"}, opened
        yield made


def ref(name: str) -> str:
    """A partition of the hospital's digits."""
    return f"{PARTITION.rpartition('/')[0]}/{name}"


def partition(world: StoredWorld, name: str) -> Partition:
    """As the rows have it."""
    with world.read() as facts:
        return facts.partitions[ref(name)]


def rule(world: StoredWorld, name: str = "first") -> Renyi:
    """The terms in force."""
    found = read_rule(partition(world, name).terms)
    assert isinstance(found, Renyi)
    return found


def admitted(world: StoredWorld, where: str, run: c.Object, prefix: str, most: int = 60) -> int:
    """How many such runs are admitted before one is refused."""
    for number in range(most):
        (done,) = world.submit(world.charge(f"{prefix}-{number}", run=run, partitions=(ref(where),)))
        if done.code.word != "pending":
            assert done.code.word == "budget_exhausted", done
            return number
    return most


def test_the_declared_load_first_chooses_the_declared_division(world: StoredWorld) -> None:
    """Its runs fit more often than without a declaration; the book is replayed, and reopened from its rows."""
    without, declared = rule(world).divisions
    assert without != declared
    more = admitted(world, "first", HEAVY, "heavy")
    assert rule(world) == declared
    assert more > admitted(world, "none", HEAVY, "bare") > 0
    world.reopen()
    assert rule(world) == declared
    verify_book(world.url, LOG, no_step, gate=gate)
    verify_book(world.url, LOG, no_step, decisions=False)


def test_another_run_first_leaves_the_partition_as_one_without_a_declaration(world: StoredWorld) -> None:
    """The same runs are admitted from then on, heavy ones too."""
    without = rule(world).divisions[0]
    for where in ("first", "none"):
        (done,) = world.submit(world.charge(f"light-{where}", run=LIGHT, partitions=(ref(where),)))
        assert done.code.word == "pending", done
    assert rule(world) == without
    assert admitted(world, "first", HEAVY, "heavy") == admitted(world, "none", HEAVY, "bare") > 0


def test_a_first_charge_that_is_voided_has_chosen_and_one_that_is_refused_has_not(world: StoredWorld) -> None:
    """The order of entries decides; a refusal is no first charge."""
    undecided = rule(world)
    (refused,) = world.submit(world.charge("huge", run=plan(4_000, "0.6"), partitions=(ref("first"),)))
    assert refused.code.refused
    assert rule(world) == undecided
    world.submit(world.charge("light", run=LIGHT, partitions=(ref("first"),)), world.void("light"))
    assert rule(world) == undecided.divisions[0]
    world.submit(world.charge("heavy", run=HEAVY, partitions=(ref("first"),)))
    assert rule(world) == undecided.divisions[0]


def test_of_several_first_charges_in_one_batch_the_first_entry_decides(world: StoredWorld) -> None:
    """On two partitions at once: one that it is the first of, and one that was charged before."""
    both = ref("first"), ref("second")
    undecided = rule(world)
    done = world.submit(
        world.charge("light", run=LIGHT, partitions=both[1:]),
        world.charge("heavy", run=HEAVY, partitions=both),
        world.charge("light-again", run=LIGHT, partitions=both),
    )
    assert [one.code.word for one in done] == ["pending"] * 3
    assert (rule(world), rule(world, "second")) == (undecided.divisions[1], undecided.divisions[0])
    limits: Any = done[1].body["limits"]
    capacities = {one["partition"]: one["cap"]["capacity"] for one in limits if one["holder"] == "global"}
    assert capacities[both[0]] != capacities[both[1]]
    verify_book(world.url, LOG, no_step, gate=gate)


def test_statements_of_state_and_the_past_have_the_division(world: StoredWorld) -> None:
    """Each statement is checked by replay; at an earlier size nothing is chosen yet."""
    undecided, size = rule(world), world.size
    world.book.close()
    world.book = world.open(statements=True)
    world.submit(world.charge("heavy", run=HEAVY, partitions=(ref("first"),)))
    world.reopen()
    with world.book.read_past(size) as past:
        assert read_rule(past.partitions[ref("first")].terms) == undecided
    assert rule(world) == undecided.divisions[1]
    verify_book(world.url, LOG, no_step, gate=gate)


@pytest.mark.parametrize("run", [HEAVY, LIGHT], ids=["declared", "undeclared"])
def test_a_range_over_a_chosen_rule_and_one_that_is_yet_to_be_chosen(world: StoredWorld, run: c.Object) -> None:
    """Two groups before the charge, one after it: the entry has one price for both, by which replay decides again."""
    assert world.submit(world.charge("one", run=run, partitions=(ref("first"),)))[0].code.word == "pending"
    over: c.Object = {"dataset": PARTITION.rpartition("/")[0], "first": "first", "last": "second"}
    (both,) = world.submit(world.charge("both", run=run, partitions=(), ranges=[over]))
    assert both.code.word == "pending", both
    prices: Any = both.body["prices"]
    assert len(prices) == 1
    assert rule(world) == rule(world, "second")
    for decides in (gate, None):
        verify_book(world.url, LOG, no_step, gate=decides)
