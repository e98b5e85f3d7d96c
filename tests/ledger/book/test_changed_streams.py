"""What a stream's new version and a wrong clock do to open slices, to pending runs, and to what opens next."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import Outcome, Submission
from ledger.domain.facts import GLOBAL
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from policy.checks.calendar_periods import period_before, period_of
from policy.decisions.gate import gate
from policy.documents.partition_commitments import MAGIC, PERSONS_MAGIC
from policy.documents.slice_budget import slice_budget
from policy.planning.streams.slice_status import stream_slices
from policy.planning.streams.stream_report import StreamFigures, StreamReport
from tests.factories.documents import SMALL, stream
from tests.factories.people import DAY_MS, HOSPITAL, LOG, SRO
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import faults, words
from tests.ledger.book.test_clock_correction import YEARS_MS, correction

DIGITS: Final = f"{HOSPITAL}/digits"
WEEK_MS: Final = 7 * DAY_MS
RECORDS: Final = 500


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """Decisions alone are told apart here: one engine shows them."""
    with open_world(tmp_path) as found:
        yield found


def enter(world: StoredWorld, version: int, epsilon: str = "6", **changes: Any) -> None:  # noqa: ANN401 - of a document
    """A version of the stream."""
    stated = stream(version=version, budget={"delta": "0.00001", "epsilon": epsilon}, **changes)
    world.found(world.document("stream", stated, f"stream-{version}", HOSPITAL, HOSPITAL))


def last_week(world: StoredWorld) -> str:
    """The period that is over."""
    return period_before("week", period_of("week", world.clock.now))


def opening(world: StoredWorld, period: str, epsilon: str = "6", delta: str = "0.00001") -> Submission:
    """A slice of a period, of records and persons of its own."""
    values = b"".join(sorted(sha256(f"{period} {number}".encode()).digest() for number in range(RECORDS)))
    kinds = (MAGIC, PERSONS_MAGIC)
    digests = [world.put(magic + bytes(32) + values, world.signers[HOSPITAL]) for magic in kinds]
    changed: c.Object = {
        "commitments": [*digests],
        "data_key": f"digits-{period}",
        "delta": delta,
        "epsilon": epsilon,
        "records": RECORDS,
    }
    return world.partition(period, **changed)


def report(world: StoredWorld) -> StreamReport:
    """What the provider reads of the stream."""
    with world.read() as facts:
        found = StreamFigures(facts, HOSPITAL, "digits", world.clock.now, [*facts.partitions.values()]).report()
    assert found is not None
    return found


def over(world: StoredWorld, name: str, first: str, last: str) -> Outcome:
    """A run over the slices from the first to the last."""
    named: c.Object = {"dataset": DIGITS, "first": first, "last": last}
    return world.submit(world.charge(name, run=SMALL, partitions=(), ranges=[named]))[0]


def test_runs_that_are_pending_stay_as_they_were_and_what_is_tighter_binds_at_once(world: StoredWorld) -> None:
    """A smaller budget is for slices that open later; a shorter life and window bind now; what is wider does not."""
    enter(world, 1, life_days=60, window_max=52)
    first = last_week(world)
    world.found(opening(world, first))
    world.clock.now += WEEK_MS
    second = last_week(world)
    world.found(opening(world, second))
    assert [over(world, name, first, second).code.word for name in ("posted", "voided")] == ["pending"] * 2
    enter(world, 2, "4", life_days=10, window_max=1)
    with world.read() as facts:
        assert {facts.charges[name].state.value for name in ("posted", "voided")} == {"pending"}
        assert all(facts.accounts[f"{DIGITS}/{one}", GLOBAL].pending.finite for one in (first, second))
    settled = world.release("posted", SMALL), world.settle("posted", 1), world.void("voided")
    assert words(world.submit(*settled)) == ["permitted", "posted", "voided"]
    assert faults(over(world, "both", first, second)) == {"window_too_long"}
    assert over(world, "one", first, first).code.word == "pending"
    world.clock.now += 4 * DAY_MS
    assert faults(over(world, "old", first, first)) == {"partition_too_old"}
    assert over(world, "young", second, second).code.word == "pending"
    world.clock.now += 3 * DAY_MS
    third = last_week(world)
    assert faults(world.submit(opening(world, third))[0]) == {"slice_differs_from_stream"}
    world.found(world.command(HOSPITAL, "partition", opening(world, third, "4").command.body, "third"))
    # A person may be in slices of both versions, so that what is told is the greater budget.
    reported = report(world)
    assert (reported.budget_epsilon, reported.slice.epsilon) == ("6", "4")
    assert "whole budget (4, 0.00001); slices of an earlier version have more" in reported.soundness
    assert "all together show at most (6, 0.00001)" in reported.soundness
    enter(world, 3, life_days=60, window_max=52)
    assert faults(over(world, "still-old", first, first)) == {"partition_too_old"}
    assert faults(over(world, "still-long", second, third)) == {"window_too_long"}
    with world.read() as facts:
        assert [str(facts.partitions[f"{DIGITS}/{one}"].epsilon) for one in (first, second, third)] == ["6", "6", "4"]
    assert verify_book(world.url, LOG, no_step, gate=gate).entries == world.size


def test_the_odometer_holds_each_slice_against_its_own_budget(world: StoredWorld) -> None:
    """A smaller budget of a later version makes nothing of what an earlier slice showed pass its own budget."""
    enter(world, 1, appearances_max=2, persons="declared")
    first = last_week(world)
    part, share = (format_number(one) for one in slice_budget(Fraction(6), Fraction("0.00001"), 2))
    world.found(opening(world, first, part, share))
    assert over(world, "only", first, first).code.word == "pending"
    before = report(world)
    assert before.odometer is not None
    assert before.soundness.endswith(
        "within (6, 0.00001); that is of one record in a slice: of a person with several there, more may be shown"
    )
    enter(world, 2, "0.02", appearances_max=2, persons="declared")
    assert float(before.odometer) > 0.01
    assert (report(world).odometer, report(world).budget_epsilon) == (before.odometer, "6")
    for name, changes, code in (
        ("fewer", {"appearances_max": 1}, "appearances_lowered"),
        ("more", {"appearances_max": 3, "persons": "declared"}, "appearances_raised"),
        ("committed", {"appearances_max": 2, "persons": "committed"}, "persons_declared_before"),
    ):
        refused = world.submit(world.document("stream", stream(version=3, **changes), name, HOSPITAL, HOSPITAL))[0]
        assert code in faults(refused)


def test_a_clock_that_was_ahead_opens_nothing_again_and_nothing_out_of_order(world: StoredWorld) -> None:
    """Each refused by name; what was past its age by the wrong time stays so by the right one."""
    enter(world, 1)
    first = last_week(world)
    early = world.partition("2099-W01")
    assert faults(world.submit(early)[0]) >= {"period_not_open"}
    world.found(opening(world, first))
    world.clock.now += YEARS_MS
    far = last_week(world)
    world.found(opening(world, far))
    world.clock.now -= YEARS_MS
    assert correction(world, SRO).code.word == "permitted"
    world.clock.now += WEEK_MS
    refused = world.submit(
        opening(world, last_week(world)), opening(world, period_of("week", world.clock.now + YEARS_MS))
    )
    assert [faults(one) for one in refused] == [{"period_overlaps"}, {"period_not_open"}]
    assert f"the end of the newest slice {far}" in refused[0].detail
    with world.read() as facts:
        reported = {one.period: one.status for one in stream_slices(facts, HOSPITAL, "digits", world.clock.now)}
        assert (reported[first], reported[far]) == ("past_age", "open")
        assert {one.ref for one in facts.partitions.values()} == {f"{DIGITS}/{one}" for one in ("2026-q4", first, far)}
    assert report(world).may_open == ()
    assert verify_book(world.url, LOG, no_step, gate=gate).entries == world.size
