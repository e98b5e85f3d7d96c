"""What people read of a stream is what charges do: windows and runs by quotes, what closes, and what was ever shown."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pytest

from ledger.audit.replay import verify_book
from ledger.commands.runs.model_ancestry import charged_body
from ledger.domain.facts import GLOBAL, holder_of
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from policy.checks.calendar_periods import period_before, period_of, periods_from, start_of
from policy.decisions.gate import gate
from policy.planning.streams.stream_report import SliceReport, StreamFigures, StreamReport
from tests.factories.documents import SMALL, contract, dataset, stream
from tests.factories.people import BANK_A, DAY_MS, HOSPITAL, LOG
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.governed import decree, faults, publish, words
from tests.ledger.book.stream_weeks import admits_after
from tests.ledger.book.test_changed_streams import DIGITS, WEEK_MS, enter, last_week, opening, over

RUN: Final = "run"
"""The charge that others are alike."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """Decisions alone are told apart here: one engine shows them; the book is replayed."""
    with open_world(tmp_path) as found:
        yield found
        assert verify_book(found.url, LOG, no_step, gate=gate).entries == found.size


def opened(world: StoredWorld) -> str:
    """The last week's slice; its name. Another week goes by."""
    name = last_week(world)
    world.found(opening(world, name))
    world.clock.now += WEEK_MS
    return name


def between(first: str, last: str) -> c.Object:
    """A range of the hospital's digits."""
    return {"dataset": DIGITS, "first": first, "last": last}


def read(facts: Snapshot, now: int) -> StreamReport:
    """What the bank reads at a time (ms) once it has run, else the provider."""
    last = facts.charges.get(RUN)
    partitions = [*facts.partitions.values()]
    if last is None:
        figures = StreamFigures(facts, HOSPITAL, "digits", now, partitions)
    else:
        whose, agreed = holder_of(facts.organisations[BANK_A].node), facts.contracts[last.contract]
        run = charged_body(facts, last)
        figures = StreamFigures(facts, HOSPITAL, "digits", now, partitions, whose, run, agreed)
    found = figures.report()
    assert found is not None
    return found


def slices(world: StoredWorld, now: int | None = None) -> dict[str, SliceReport]:
    """The slices as they are told, by period."""
    with world.book.read() as facts:
        return {one.period: one for one in read(facts, now or world.clock.now).slices}


def check_windows_told(world: StoredWorld, first: str, last: str, longer: str) -> None:
    """The newest window is from the first to the last; of each window told quotes admit the runs, and none longer."""
    with world.book.read() as facts:
        report, charge = read(facts, world.clock.now), facts.charges[RUN]
        assert (report.newest_window.first, report.newest_window.last) == (first, last)
        reported = [one for one in (report.newest_window, *report.months) if one.first is not None]
        for one in reported:
            assert one.runs, one
            named = between(str(one.first), str(one.last))
            assert admits_after(facts, charge, named, one.runs - 1, one.at), one
            assert not admits_after(facts, charge, named, one.runs, one.at), one
            assert not admits_after(facts, charge, between(longer, last), 0, one.at), one
        assert len(reported) > 1, reported
        assert all(one.runs == 0 for one in report.months if one.first is None)


def test_a_window_reported_is_one_that_a_charge_takes(world: StoredWorld) -> None:
    """By the window of every version that binds a slice, without a missed week, and of one relation."""
    enter(world, 1, window_max=2)
    names = [opened(world) for _ in range(2)]
    enter(world, 2, window_max=10)
    names += [opened(world) for _ in range(2)]
    assert over(world, RUN, *names[2:]).code.word == "pending"
    check_windows_told(world, names[2], names[3], longer=names[1])
    assert faults(over(world, "too-long", names[1], names[3])) == {"window_too_long"}
    world.clock.now += WEEK_MS
    names.append(opened(world))
    check_windows_told(world, names[4], names[4], longer=names[3])
    names.append(opened(world))
    check_windows_told(world, names[4], names[5], longer=names[3])
    assert faults(over(world, "gap", names[3], names[5])) == {"range_has_gaps"}
    relation = "ADD_OR_REMOVE_ONE"
    publish(world, 2, relation=relation)
    enter(world, 3, relation=relation)
    named = last_week(world)
    body = opening(world, named).command.body
    world.found(world.command(HOSPITAL, "partition", {**body, "relation": relation}, "of-another-relation"))
    with world.book.read() as facts:
        newest = read(facts, world.clock.now).newest_window
        assert (newest.first, newest.last, newest.slices) == (named, named, 1)
    assert "one run cannot span both" in over(world, "both", names[5], named).detail


def test_what_was_shown_is_reported_for_ever_and_what_closes_before_it_does(world: StoredWorld) -> None:
    """No decree takes from an odometer, and what retires keeps what was spent; alerts come 30, 7 and 1 days before."""
    enter(world, 1)
    names = [opened(world) for _ in range(2)]
    closes = slices(world)[names[0]].closes or 0
    left = {30 * DAY_MS + 1: None, 30 * DAY_MS: 30, 7 * DAY_MS + 1: 30, 7 * DAY_MS: 7, DAY_MS + 1: 7, DAY_MS: 1, 0: 1}
    reported = {before: slices(world, closes - before)[names[0]] for before in (*left, -1)}
    assert {before: one.alert_days for before, one in reported.items()} == {**left, -1: None}
    assert [one.status for one in reported.values()] == [*["open"] * len(left), "past_age"]
    assert over(world, RUN, *names).code.word == "pending"
    assert words(world.submit(world.release(RUN, SMALL), world.settle(RUN, 1))) == ["permitted", "posted"]
    before = slices(world)
    with world.book.read() as facts:
        shown = read(facts, world.clock.now).odometer
    odometers = [before[name].odometer for name in names]
    assert odometers == [shown, shown]
    assert shown not in {None, "0.0000"}
    assert words([decree(world, GLOBAL, f"{DIGITS}/{names[0]}")]) == ["permitted"]
    assert slices(world)[names[0]].odometer == shown
    retired = world.send(HOSPITAL, "retirement", {"partition": f"{DIGITS}/{names[1]}"}, "retire")
    assert retired.code.word == "permitted"
    gone = slices(world)[names[1]]
    assert (gone.status, gone.alert_days) == ("retired", None)
    assert (gone.spent, gone.odometer) == (before[names[1]].spent, shown)
    assert over(world, "more", names[0], names[0]).code.word == "pending"
    with world.book.read() as facts:
        report = read(facts, world.clock.now)
    assert float(str(report.odometer)) > float(str(shown)), report.odometer
    assert (report.newest_window.first, report.newest_window.last) == (names[0], names[0])


@pytest.mark.parametrize("kind", ["day", "month"])
def test_slices_of_days_and_of_months(world: StoredWorld, kind: str) -> None:
    """The last period and this one open, a name of a week does not; one that was missed is named, and stays missed."""
    enter(world, 1, period=kind, life_days=90)
    current = period_of(kind, world.clock.now)
    last, (_, missed, then, newest) = period_before(kind, current), islice(periods_from(kind, current), 4)
    assert faults(world.submit(opening(world, last_week(world)))[0]) == {"period_malformed"}
    for name in (last, current):
        world.found(opening(world, name))
    world.clock.now = start_of(kind, newest) or 0
    with world.book.read() as facts:
        report = read(facts, world.clock.now)
    assert (report.may_open, report.last_complete) == ((then, newest), then)
    assert [(one.period, one.status) for one in report.slices] == [
        (last, "open"),
        (current, "open"),
        (missed, "missed"),
    ]
    assert [one.starts for one in report.slices] == [start_of(kind, name) for name in (last, current, missed)]
    assert faults(world.submit(opening(world, missed))[0]) == {"period_not_open"}
    world.found(opening(world, then))
    assert faults(over(world, "gap", current, then)) == {"range_has_gaps"}
    assert over(world, RUN, last, current).code.word == "pending"
    with world.book.read() as facts:
        window = read(facts, world.clock.now).newest_window
    assert (window.first, window.last, window.slices) == (then, then, 1)


def test_a_run_over_two_streams_is_held_to_the_window_of_each(world: StoredWorld) -> None:
    """So many slices of one and so many of the other; the stream of which there are too many is named."""
    world.found(world.document("dataset", dataset(name="letters"), "letters", HOSPITAL, HOSPITAL))
    enter(world, 1, window_max=2)
    world.found(world.document("stream", stream(dataset="letters", window_max=1), "stream-l", HOSPITAL, HOSPITAL))
    of_both = [{"dataset": name, "provider": HOSPITAL} for name in ("digits", "letters")]
    agreed = contract(BANK_A, starts=world.begun, id="both", datasets=of_both)
    world.found(world.document("contract", agreed, "both", BANK_A, BANK_A, HOSPITAL))
    names = []
    for _ in range(3):
        name = last_week(world)
        body = opening(world, f"letters-{name}").command.body
        body = {**body, "dataset": "letters", "partition": name}
        world.found(world.command(HOSPITAL, "partition", body, f"letters-{name}"))
        names.append(opened(world))

    def asked(digits: int, letters: int) -> Any:  # noqa: ANN401 - an outcome
        ranged: list[c.Json] = [
            {"dataset": f"{HOSPITAL}/{name}", "first": names[-count], "last": names[-1]}
            for name, count in (("digits", digits), ("letters", letters))
        ]
        agreed_on = c.digest(c.dump(agreed))
        charge = world.charge("asked", run=SMALL, partitions=(), contract=agreed_on, ranges=ranged)
        return world.book.quote(charge)

    assert asked(2, 1).code.word == "pending"
    for digits, letters, over_long in ((3, 1, ["digits"]), (2, 2, ["letters"]), (3, 2, ["digits", "letters"])):
        checks = asked(digits, letters).body["checks"]
        failed = [one for one in checks if not one["passed"]]
        assert {one["code"] for one in failed} == {"window_too_long"}
        assert [name for name in ("digits", "letters") if f"slices of {name} " in str(failed)] == over_long
