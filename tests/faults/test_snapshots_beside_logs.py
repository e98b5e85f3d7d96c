"""A snapshot of the state beside a log that it is not of: an older, a newer or another one, or one that was cut.

Power cuts never leave such a pair: a snapshot is written of what is committed, and replaced as a whole. Copies do,
and restored files; so each pair is put together here.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from ledger.state_tree.snapshot_format import read_snapshot
from tests.factories.documents import SMALL
from tests.factories.people import BANK_B, LOG
from tests.factories.stored import open_world
from tests.faults.stated_world import SNAPSHOT, StatedWorld, state_often
from tests.ledger.book.state.test_open_state import writer
from tests.ledger.book.state.test_snapshot_file import BELIEVED, REFUSED, contents, heard


class Moment(NamedTuple):
    """A closed book and its snapshot."""

    book: bytes
    snapshot: bytes


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    state_often(monkeypatch.setattr)
    caplog.set_level("INFO", "ledger.book")


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Moment]]:
    """One log at two sizes, and another one that began like it and has grown past both."""
    with pytest.MonkeyPatch.context() as patch:
        state_often(patch.setattr)
        folder = tmp_path_factory.mktemp("moments")
        with open_world(folder, make=StatedWorld) as world:
            world.book.close()
            begun = Moment(world.path.read_bytes(), world.path.with_name(SNAPSHOT).read_bytes())

            def closed() -> Moment:
                world.book.close()
                found = Moment(world.path.read_bytes(), world.path.with_name(SNAPSHOT).read_bytes())
                world.book = world.open()
                return found

            world.book = world.open()
            world.submit(world.charge("first", run=SMALL), world.charge("second", BANK_B, SMALL))
            early = closed()
            world.submit(world.settle("first", 1), world.void("second", BANK_B), world.charge("third", run=SMALL))
            late = closed()
            world.book.close()
            world.path.write_bytes(begun.book)
            world.path.with_name(SNAPSHOT).write_bytes(begun.snapshot)
            world.book = world.open()
            world.submit(*(world.charge(f"other-{number}", BANK_B, SMALL) for number in range(30)))
            yield {"early": early, "late": late, "other": closed()}


def _whole(data: bytes) -> bytes:
    return data


def _half(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _longer(data: bytes) -> bytes:
    return data + data[-40:]


NEWER: Final = "which the book has not and a statement of them"
OTHERS: Final = "no statement in the log says"
TORN: Final = "is torn or was changed"
PAIRS: Final[dict[str, tuple[str, str, Callable[[bytes], bytes], str]]] = {
    "of now": ("late", "late", _whole, ""),
    "older": ("late", "early", _whole, ""),
    "newer than a log that was cut": ("early", "late", _whole, NEWER),
    "of a log that was cut and has grown otherwise": ("other", "late", _whole, OTHERS),
    "of another log that has grown further": ("late", "other", _whole, NEWER),
    "half-written": ("late", "late", _half, TORN),
    "half-written beside a log that was cut": ("early", "late", _half, TORN),
    "written over a longer one": ("late", "late", _longer, TORN),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_snapshot_beside_a_log(
    moments: dict[str, Moment], tmp_path: Path, caplog: pytest.LogCaptureFixture, pair: str
) -> None:
    """It is believed only if the log states it; else one line says why, and the state is the whole log's."""
    book, snapshot, change, why = PAIRS[pair]
    found, state = _opened(tmp_path / "by the snapshot", moments[book].book, change(moments[snapshot].snapshot), caplog)
    assert ((REFUSED in found, why in found) if why else (BELIEVED in found,)) == ((True, True) if why else (True,))
    _, whole = _opened(tmp_path / "by the log", moments[book].book, None, caplog)
    assert state == whole


def _opened(
    folder: Path, book: bytes, snapshot: bytes | None, caplog: pytest.LogCaptureFixture
) -> tuple[str, dict[str, Any]]:
    """What an opening says of the snapshot, and the state that it makes; then the book is charged, and agrees."""
    folder.mkdir()
    (folder / "book.sqlite").write_bytes(book)
    if snapshot is not None:
        (folder / SNAPSHOT).write_bytes(snapshot)
        # What a process that was killed left of the next one is no snapshot.
        (folder / f".{SNAPSHOT}.1.part").write_bytes(snapshot[:100])
    caplog.clear()
    world = StatedWorld(folder)
    try:
        said = heard(caplog) if snapshot is not None else ""
        state = contents(writer(world))
        sent = world.submit(*(world.charge(name, run=SMALL) for name in ("first", "after")))
        state["answers"] = [(one.code, one.index, one.repeated) for one in sent]
        assert world.book.compare_rows() is None
    finally:
        world.book.close()
    size = read_snapshot((folder / SNAPSHOT).read_bytes(), LOG.vkey).size
    assert size > state["size"], "a new snapshot has taken its place"
    shutil.rmtree(folder)
    return said, state
