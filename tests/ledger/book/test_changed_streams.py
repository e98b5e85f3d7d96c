"""What a stream's new version and a wrong clock do to open slices, to pending runs, and to what opens next."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import Outcome, Submission
from ledger.domain.facts import GLOBAL
from ledger.wire import canonical_json as c
from policy.checks.calendar_periods import period_before, period_of
from policy.decisions.gate import gate
from policy.documents.partition_commitments import MAGIC, PERSONS_MAGIC
from policy.planning.streams.slice_status import stream_slices
from policy.planning.streams.stream_report import StreamFigures
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


def opening(world: StoredWorld, period: str, epsilon: str = "6") -> Submission:
    """A slice of a period, of records and persons of its own."""
    values = b"".join(sorted(sha256(f"{period} {number}".encode()).digest() for number in range(RECORDS)))
    kinds = (MAGIC, PERSONS_MAGIC)
    digests = [world.put(magic + bytes(32) + values, world.signers[HOSPITAL]) for magic in kinds]
    changed: c.Object = {
        "commitments": [*digests],
        "data_key": f"digits-{period}",
        "epsilon": epsilon,
        "records": RECORDS,
    }
    return world.partition(period, **changed)


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
    enter(world, 3, life_days=60, window_max=52)
    assert faults(over(world, "still-old", first, first)) == {"partition_too_old"}
    assert faults(over(world, "still-long", second, third)) == {"window_too_long"}
    with world.read() as facts:
        assert [str(facts.partitions[f"{DIGITS}/{one}"].epsilon) for one in (first, second, third)] == ["6", "6", "4"]
    assert verify_book(world.url, LOG, no_step, gate=gate).entries == world.size


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
        told = {one.period: one.status for one in stream_slices(facts, HOSPITAL, "digits", world.clock.now)}
        assert (told[first], told[far]) == ("past_age", "open")
        figures = StreamFigures(facts, HOSPITAL, "digits", world.clock.now, [*facts.partitions.values()])
        report = figures.report()
        assert report is not None
        assert report.may_open == ()
        assert {one.ref for one in facts.partitions.values()} == {f"{DIGITS}/{one}" for one in ("2026-q4", first, far)}
    assert verify_book(world.url, LOG, no_step, gate=gate).entries == world.size
