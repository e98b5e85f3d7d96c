"""``epsilon dataset advance`` killed at any moment: a whole slice or none, and the same answer next time."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from client.dataset_files.slice_records import read_slice
from policy.checks.calendar_periods import period_before, period_of
from policy.checks.field_readers import DAY_MS
from tests.factories.documents import dataset, stream
from tests.factories.loaded_process import LoadedProcess, loaded_process
from tests.factories.people import HOSPITAL
from tests.factories.service import ServedWorld, founded_world

WEEK: Final = 7 * DAY_MS
RECORDS: Final = 120


class Advancing:
    """The process that forks children who advance."""

    def __init__(self, process: LoadedProcess) -> None:
        self._process = process

    def run(self, arguments: list[str], now: int, die: int = 0) -> tuple[list[str], dict[str, Any]] | None:
        """One command at a time (ms): what it did and its answer; None if it was killed."""
        ended = self._process.run({"arguments": arguments, "die": die, "now": now})
        assert os.WTERMSIG(ended.status) == (0 if ended.reports else signal.SIGKILL), ended
        if not ended.reports:
            return None
        ((_, done, code, output),) = ended.reports
        assert code == 0, output
        return done, json.loads(output)


@pytest.fixture(scope="module")
def advancing() -> Iterator[Advancing]:
    """One for all kills, since it loads for seconds."""
    with loaded_process("tests.client.cli.streams.advance_process") as process:
        yield Advancing(process)


class Hospital:
    """A provider at its own desk: each week it advances its stream by the command, in a process of its own."""

    def __init__(self, world: ServedWorld, folder: Path, issuer: str, advancing: Advancing) -> None:
        """The stream is entered, and no slice is open."""
        self.world, self.folder, self._advancing, self._files = world, folder, advancing, 0
        world.hospital.save(folder / "hospital.pem")
        said = {"service": world.url, "key": "hospital.pem", "actor": HOSPITAL, "log": world.log.vkey, "issuer": issuer}
        lines = ("v = 1", "[client]", *(f'{name} = "{value}"' for name, value in said.items()))
        (folder / "hospital.toml").write_text("\n".join(lines))
        world.enter("dataset", dataset(name="claims"), HOSPITAL, world.hospital)
        world.enter("stream", stream(dataset="claims", records_min=100, life_days=10), HOSPITAL, world.hospital)

    def file(self) -> Path:
        """Records and persons that no other file has."""
        self._files += 1
        numbers = np.arange(RECORDS) + RECORDS * self._files
        path = self.folder / f"{self._files}.npz"
        np.savez(path, inputs=numbers.astype(np.float32)[:, None], targets=numbers % 2, patients=numbers)
        return path

    def advance(self, file: Path, die: int = 0) -> tuple[list[str], dict[str, Any]] | None:
        """The command; None if it was killed."""
        folder = self.folder
        places = (folder / "hospital.toml", "claims", file, "--slices", folder / "slices")
        words = [*map(str, places), "--person", "patients", "--json"]
        return self._advancing.run(["dataset", "advance", *words], self.world.clock.now, die)

    def lives(self, file: Path) -> tuple[list[str], dict[str, Any]]:
        """The command, which ends by itself."""
        found = self.advance(file)
        assert found is not None
        return found

    def period(self) -> str:
        """The last one that is over."""
        return period_before("week", period_of("week", self.world.clock.now))

    def look(self) -> tuple[bool, bool]:
        """Whether the period's slice is sealed and open: each wholly or not at all, and open only if it is sealed."""
        name, folder = self.period(), self.folder / "slices" / self.period()
        sealed = folder.exists()
        assert not sealed or read_slice(folder)["source"]
        documents = sorted(one.name for one in (folder / "share").glob("*.bin"))
        assert documents == (["commitments-1.bin", "persons-1.bin"] if sealed else [])
        with self.world.book.read() as facts:
            found = facts.partitions.get(f"{HOSPITAL}/claims/{name}")
            assert found is None or (sealed and len(found.commitments) == len(documents))
        return sealed, found is not None


@pytest.fixture
def hospital(tmp_path: Path, advancing: Advancing) -> Iterator[Hospital]:
    """A hospital with a slice that is past its age and one that is not, at the beginning of a week."""
    with founded_world(tmp_path / "world") as world, world.issuing(clock=world.clock) as issuer:
        found = Hospital(world, tmp_path, issuer, advancing)
        for _ in range(2):
            found.lives(found.file())
            world.clock.now += WEEK
        yield found


def _kill(hospital: Hospital, die: int) -> tuple[bool, bool]:
    """Kill the command of a fresh week at one of the things it does; whether a slice was sealed, and open, then."""
    file, size = hospital.file(), hospital.world.size
    assert hospital.advance(file, die) is None
    seen = hospital.look()
    answer = hospital.lives(file)[1]
    assert hospital.look() == (True, True)
    assert (answer["period"], answer["outcome"], answer["repeated"]) == (hospital.period(), "permitted", seen[1])
    assert hospital.world.size - size == 2, "one retirement and one opening, each once"
    hospital.world.clock.now += WEEK
    return seen


def _things(hospital: Hospital) -> list[str]:
    """What the command of a week does, in order; sent again, it does nothing but answer."""
    file = hospital.file()
    done, answer = hospital.lives(file)
    size = hospital.world.size
    assert hospital.lives(file)[1] == {**answer, "repeated": True, "retired": []}
    assert hospital.world.size == size
    hospital.world.clock.now += WEEK
    return done


def test_a_whole_slice_or_none_and_the_same_answer(hospital: Hospital) -> None:
    """Killed before the sealed folder gets its name, with its opening sent, and with the opening's answer lost."""
    things = _things(hospital)
    opening = things.index("to POST /v1/partitions")
    named = max(place for place, thing in enumerate(things[:opening]) if thing == "os.rename")
    assert [_kill(hospital, 1 + place) for place in (named, opening, opening + 1)] == [
        (False, False),
        (True, False),
        (True, True),
    ]


@pytest.mark.soak
def test_killed_at_every_thing_that_it_does(hospital: Hospital) -> None:
    """Once at each; a slice is first sealed and then open, and never neither again."""
    seen = [_kill(hospital, die) for die in range(1, 1 + len(_things(hospital)))]
    assert seen == sorted(seen)
    assert {*seen} == {(False, False), (True, False), (True, True)}
