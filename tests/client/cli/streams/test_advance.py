"""``epsilon dataset advance``: each week one slice, of new records and new persons, whatever breaks in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.seal import Records, open_records
from client.dataset_files.stream_advance import Advanced, StreamAdvance
from client.http.problems import Refused
from client.keys.signer import Signer
from ledger.wire.malformed import Malformed
from policy.checks.calendar_periods import period_before, period_of, start_of
from policy.checks.field_readers import DAY_MS, format_time
from tests.factories.documents import dataset, recommendation, stream
from tests.factories.people import HOSPITAL, SRO, TSO
from tests.factories.service import ServedWorld, founded_world

WEEK: Final = 7 * DAY_MS
SCHEMA: Final = RecordSchema(person=("patients",))


class Weeks:
    """A hospital whose claims have a stream, and the folder that its slices lie in."""

    def __init__(self, world: ServedWorld, folder: Path, **terms: Any) -> None:  # noqa: ANN401 - of a document
        """Enter the stream."""
        self.world, self.folder = world, folder
        self.stated = stream(dataset="claims", records_min=100, life_days=14, **terms)
        world.enter("dataset", dataset(name="claims"), HOSPITAL, world.hospital)
        world.enter("stream", self.stated, HOSPITAL, world.hospital)
        self.last = period_before("week", period_of("week", world.clock.now))

    def file(self, name: str, first: int, patients: int | None = None, count: int = 120) -> Path:
        """Records that no other file with another ``first`` has, of these patients and the next ones."""
        numbers = np.arange(count)
        whose = numbers + (first if patients is None else patients)
        path = self.folder / f"{name}.npz"
        inputs = (numbers + first).astype(np.float32)[:, None]
        np.savez(path, inputs=inputs, targets=numbers % 2, patients=whose)
        return path

    def advance(self, file: Path, period: str = "", *, leaves_out: bool = False, reason: str = "") -> Advanced:
        """The call."""

        def read() -> Records:
            return open_records(file, SCHEMA)

        world, slices = self.world, self.folder / "slices"
        run = StreamAdvance(world.service, world.hospital, HOSPITAL, "claims", slices, leaves_out, reason)
        return run.advance(file, read, period)

    def later(self, weeks: int = 1) -> str:
        """Time goes on; the last period that is over then."""
        self.world.clock.now += weeks * WEEK
        self.last = period_before("week", period_of("week", self.world.clock.now))
        return self.last

    def states(self) -> dict[str, str]:
        """What is told of each period."""
        reported: Any = self.world.service.stream(HOSPITAL, "claims")
        return {one["period"]: one["status"] for one in reported["slices"]}


@pytest.fixture
def weeks(tmp_path: Path) -> Iterator[Weeks]:
    """A stream without slices."""
    with founded_world(tmp_path / "world") as world:
        yield Weeks(world, tmp_path)


def test_a_slice_a_week_and_old_ones_retire(weeks: Weeks) -> None:
    """The same call again gets the same answer; a week that was missed is named and stays missed."""
    first = weeks.last
    done = weeks.advance(weeks.file("one", 0))
    assert (done.period, done.answer.outcome, done.answer.repeated) == (first, "permitted", False)
    again = weeks.advance(weeks.file("one", 0))
    assert (again.answer.index, again.answer.repeated) == (done.answer.index, True)
    missed = weeks.later()
    third = weeks.later()
    done = weeks.advance(weeks.file("three", 1_000))
    assert (done.period, done.missed, done.retired) == (third, (missed,), ())
    assert weeks.states() == {first: "open", missed: "missed", third: "open"}
    with pytest.raises(Malformed, match=f"{missed} was missed, and stays missed"):
        weeks.advance(weeks.file("two", 2_000), missed)
    weeks.later()
    assert weeks.states()[first] == "past_age"
    done = weeks.advance(weeks.file("four", 3_000))
    assert done.retired == (f"{HOSPITAL}/claims/{first}",)
    assert weeks.states()[first] == "retired"


def test_what_is_in_the_file_decides(weeks: Weeks) -> None:
    """Other bytes for a period that is open, records and persons of earlier slices, and too few records."""
    first = weeks.last
    weeks.advance(weeks.file("one", 0))
    with pytest.raises(Malformed, match=f"is not the file that {first} was sealed from"):
        weeks.advance(weeks.file("other", 500))
    weeks.later()
    with pytest.raises(Malformed, match=f"record 1 is of a person who is in 1 slice already, of which .* {first}"):
        weeks.advance(weeks.file("same persons", 1_000, patients=119))
    assert not (weeks.folder / "slices" / weeks.last).exists()
    done = weeks.advance(weeks.file("same persons", 1_000, patients=119), leaves_out=True)
    assert done.left_out == 1
    weeks.later()
    with pytest.raises(Malformed, match="has 99 records: a slice of this stream needs at least 100"):
        weeks.advance(weeks.file("few", 9_000, count=99))


def test_the_ledger_finds_what_the_provider_hides(weeks: Weeks) -> None:
    """A person in one slice too many is refused by the service too, and then another file may open the slice."""
    weeks.advance(weeks.file("one", 0))
    hidden = weeks.folder / "slices" / weeks.last
    weeks.later()
    hidden.rename(weeks.folder / "elsewhere")
    with pytest.raises(Refused) as refused:
        weeks.advance(weeks.file("two", 1_000, patients=100))
    assert [one.code for one in refused.value.reasons] == ["persons_too_often"]
    assert "20 persons of" in refused.value.detail
    assert "no slice opened" in refused.value.next_step
    done = weeks.advance(weeks.file("two", 1_000))
    assert (done.answer.outcome, done.period) == ("permitted", weeks.last)


def test_what_was_refused_once_opens_when_the_reason_is_gone(weeks: Weeks) -> None:
    """The same call with the same file is decided anew after a refusal, and not after a slice is open."""
    world, file = weeks.world, weeks.file("one", 0)

    def governed(version: int, **changes: Any) -> None:  # noqa: ANN401 - of a document
        stated = {**world.policy(), "version": version, "effective": format_time(world.clock.now), **changes}
        world.enter("policy", stated, SRO, world.sro)

    governed(2, records_min=200)
    for _ in range(2):
        with pytest.raises(Refused, match="policy_denied"):
            weeks.advance(file)
        assert weeks.states() == {}
    governed(3)
    done = weeks.advance(file)
    assert (done.answer.outcome, done.answer.repeated, weeks.states()) == ("permitted", False, {weeks.last: "open"})
    again = weeks.advance(file)
    assert (again.answer.index, again.answer.repeated) == (done.answer.index, True)


def test_a_budget_above_the_recommended_one_needs_a_reason(weeks: Weeks) -> None:
    """It is refused without one, and the slice's own entry records it."""
    world, tso = weeks.world, Signer.generate()
    world.register(TSO, "TSO", tso)
    stated = recommendation("claims-2026", budget={"delta_max": "0.00001", "epsilon_max": "5"}, dataset="claims")
    world.enter("recommendation", stated, TSO, tso)
    with pytest.raises(Refused) as refused:
        weeks.advance(weeks.file("one", 0))
    assert [one.code for one in refused.value.reasons] == ["reason_missing"]
    done = weeks.advance(weeks.file("one", 0), reason="few such records exist")
    assert done.answer.index is not None
    with world.book.read() as facts:
        (entry,) = facts.entries(done.answer.index, done.answer.index + 1)
    assert b'"reason":"few such records exist"' in entry


def test_a_person_in_two_slices_and_no_more(tmp_path: Path) -> None:
    """Where a person may be in two, each slice has its part of the budget, and the third appearance is found."""
    with founded_world(tmp_path / "world") as world:
        weeks = Weeks(world, tmp_path, appearances_max=2)
        done = weeks.advance(weeks.file("one", 0, patients=0))
        assert world.service.partition(done.partition)["budget"] == {"epsilon": "3", "delta": "0.000000474258"}
        weeks.later()
        assert weeks.advance(weeks.file("two", 1_000, patients=0)).left_out == 0
        weeks.later()
        done = weeks.advance(weeks.file("three", 2_000, patients=-10, count=250), leaves_out=True)
        assert done.left_out == 120


def test_a_clock_that_jumps_opens_nothing_out_of_order(weeks: Weeks) -> None:
    """A period to come is not open yet; after the log's time went back, a period before the newest slice is not."""
    with pytest.raises(Malformed, match="cannot open now"):
        weeks.advance(weeks.file("early", 0), "2099-W01")
    weeks.advance(weeks.file("one", 0))
    start = start_of("week", weeks.last)
    assert start is not None
    earlier = period_of("week", start - 1)
    with pytest.raises(Malformed, match="cannot open now"):
        weeks.advance(weeks.file("late", 500), earlier)
