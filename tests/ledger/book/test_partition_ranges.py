"""A charge over a range is on each of its partitions what a charge of that one would be; all of them or none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import Outcome
from ledger.domain.facts import GLOBAL
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import SMALL, plan
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, LOG
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import faults, publish, words

DIGITS = f"{HOSPITAL}/digits"
WEEKS = [f"w{week}" for week in range(6)]
OPENED: dict[str, c.Object] = {one: {} if one != "w3" else {"epsilon": "5"} for one in WEEKS}


def between(first: str, last: str) -> c.Object:
    """A range of the hospital's digits."""
    return {"dataset": DIGITS, "first": first, "last": last}


def over(world: StoredWorld, name: str, *ranges: c.Object, run: c.Object = SMALL, **changes: Any) -> Outcome:  # noqa: ANN401 - of a body
    """A charge over ranges alone, or beside what ``changes`` lists."""
    changes = {"partitions": (), **changes}
    return world.submit(world.charge(name, run=run, ranges=[*ranges], **changes))[0]


@pytest.fixture
def weeks(tmp_path: Any, engine: str) -> Iterator[StoredWorld]:  # noqa: ANN401 - a path
    """A book with six weeks, one of another budget."""
    with open_world(tmp_path, engine, founded=False) as world:
        world.found(*world.founding_with(partitions=OPENED))
        yield world


def losses(world: StoredWorld) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Every account."""
    with world.read() as facts:
        refs = [f"{DIGITS}/{week}" for week in WEEKS]
        held = {
            (ref, who): facts.accounts.get((ref, who)) for ref in refs for who in (GLOBAL, "lineage:3", "lineage:4")
        }
        return {place: (one.posted, one.pending) for place, one in held.items() if one is not None}


def test_a_charge_over_a_range_is_one_of_each(weeks: StoredWorld, tmp_path: Any) -> None:  # noqa: ANN401 - a path
    """The same sums as by single charges; posted, voided; equal rows, replay, and a book that is opened again."""
    done = over(weeks, "all", between("w1", "w4"), partitions=(f"{DIGITS}/w5",), run=plan())
    assert done.code.word == "pending", done
    recorded: Any = done.body
    assert (recorded["groups"], [*recorded["prices"]]) == ([[0, 3], [1, 1], [0, 1]], [f"{DIGITS}/w5", f"{DIGITS}/w3"])
    (tmp_path / "single").mkdir()
    with open_world(tmp_path / "single", "sqlite", founded=False) as single:
        single.found(*single.founding_with(partitions=OPENED))
        for week in WEEKS[1:]:
            assert words(single.submit(single.charge(week, partitions=(f"{DIGITS}/{week}",)))) == ["pending"]
        assert losses(weeks) == losses(single)
        settled = [weeks.release("all"), weeks.settle("all", 40), weeks.void("none")]
        assert words(weeks.submit(*settled)) == ["permitted", "posted", "not_found"]
        for week in WEEKS[1:]:
            assert words(single.submit(single.release(week), single.settle(week, 40))) == ["permitted", "posted"]
        assert losses(weeks) == losses(single)
    again = over(weeks, "again", between("w1", "w4"), partitions=(f"{DIGITS}/w5",), run=plan())
    assert (again.code.word, words(weeks.submit(weeks.void("again")))) == ("pending", ["voided"])
    with weeks.read() as facts:
        assert facts.charges["all"].partitions == (f"{DIGITS}/w5", *(f"{DIGITS}/{week}" for week in WEEKS[1:5]))
    assert verify_book(weeks.url, LOG, no_step, gate=gate).entries == weeks.size


def test_no_room_on_some_refuses_all_and_names_them(weeks: StoredWorld) -> None:
    """All or nothing; the ranges without room are named, whoever's account it is."""
    filled = [
        weeks.charge(f"fill-{week}-{n}", BANK_B, partitions=(f"{DIGITS}/{week}",))
        for week in ("w1", "w2", "w4")
        for n in range(30)
    ]
    assert set(words(weeks.submit(*filled))) == {"pending", "budget_exhausted"}
    more = [
        weeks.charge(f"more-{week}-{n}", BANK_A, partitions=(f"{DIGITS}/{week}",))
        for week in ("w1", "w2", "w4")
        for n in range(30)
    ]
    weeks.submit(*more)
    before = losses(weeks)
    done = over(weeks, "full", between("w0", "w5"), run=plan())
    assert done.code.word == "budget_exhausted", done
    assert f"3 of 6 partitions: {DIGITS}[w1..w2], {DIGITS}/w4" in done.detail
    assert losses(weeks) == before
    assert verify_book(weeks.url, LOG, no_step, gate=gate).entries == weeks.size


WRONG: list[tuple[str, list[c.Object], dict[str, Any], str, str]] = [
    ("reversed", [between("w4", "w1")], {}, "malformed", "reversed"),
    ("no such end", [between("w1", "w9")], {}, "not_found", "digits/w9"),
    ("no such dataset", [{**between("w1", "w2"), "dataset": f"{HOSPITAL}/none"}], {}, "not_found", "none/w1"),
    ("twice", [between("w1", "w3"), between("w3", "w4")], {}, "malformed", "w3 twice"),
    ("listed too", [between("w1", "w3")], {"partitions": (f"{DIGITS}/w2",)}, "malformed", "w2 twice"),
    ("nothing", [], {"partitions": ()}, "malformed", "1 to 64"),
    ("retired", [between("w0", "w2")], {}, "policy_denied", f"{DIGITS}/w1 is not open"),
    ("other relations", [between("w4", "removed")], {}, "malformed", "cannot span both"),
]


def test_what_is_no_range_is_refused_by_name(weeks: StoredWorld) -> None:
    """Each by its rule; nothing is charged."""
    retired = weeks.command(HOSPITAL, "retirement", {"partition": f"{DIGITS}/w1"}, "retired")
    weeks.found(retired)
    publish(weeks, 2, relation="ADD_OR_REMOVE_ONE")
    weeks.found(weeks.partition("removed", relation="ADD_OR_REMOVE_ONE"))
    before = losses(weeks)
    for name, ranges, changes, word, rule in WRONG:
        done = over(weeks, "wrong-" + name.replace(" ", "-"), *ranges, **changes)
        found = (done.code.word, rule in f"{done.detail} {done.field}")
        assert found == (word, True), (name, done)
    assert losses(weeks) == before
    assert "partition_retired" in faults(over(weeks, "wrong-2", between("w0", "w2")))
