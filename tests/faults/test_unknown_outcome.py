"""A commit that fails has an unknown outcome: the book stops, and only an opening tells, by the client's own ids."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from ledger.book.book import BookStopped
from tests.factories.stored import StoredWorld, open_world
from tests.faults.disk import Disk
from tests.faults.power import TINY, Life, faulty_url, found_after, keep_snapshot, live, release, start
from tests.faults.stated_world import StatedWorld, state_often

STATED: Final = 1_000
AFTERMATHS = ("opened again", "process killed", "power gone")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book with a few entries."""
    folder = tmp_path_factory.mktemp("template")
    with open_world(folder) as world:
        world.submit(world.charge("warm", run=TINY))
    return folder


def _failed(template: Path, folder: Path, kind: str, seed: int) -> tuple[Life, dict[str, Path]]:
    """A life in which the disk fails once, or from then on; and the book as it is found in each aftermath.

    A failure in the midst of a checkpoint fails no commit and may pass unnoticed. From the seed STATED on the book
    states its state and writes snapshots of it.
    """
    dice, found = random.Random(seed), {name: folder / f"{seed} {name}" for name in AFTERMATHS}  # noqa: S311
    home = found[AFTERMATHS[0]]
    start(template, home)
    disk = Disk()
    world = _kind(seed)(home, faulty_url(home, disk, pages=dice.choice(("8", "1000"))))
    try:
        disk.fails[kind] = disk.changes + dice.randint(1, 150), dice.choice((1, 1, 10_000))
        life = live(world, dice)
        assert disk.failed
        if life.stopped:
            with pytest.raises(BookStopped, match=r"is unknown: open the book again and send them again"):
                world.submit(world.charge("later", run=TINY))
        # A snapshot that is being written vanishes while it is copied.
        shutil.copytree(home, found["process killed"], ignore=shutil.ignore_patterns("*.part"))
        found["power gone"].mkdir()
        disk.after_cut(dice, found["power gone"])
        keep_snapshot(home, found["power gone"])
        disk.fails = {}
        world.book.close()
    finally:
        release(world, disk)
    return life, found


def _kind(seed: int) -> type[StoredWorld]:
    return StatedWorld if seed >= STATED else StoredWorld


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    state_often(monkeypatch.setattr)


def _trial(template: Path, folder: Path, kind: str, seed: int) -> Counter[str]:
    """How often what failed was there all the same, by aftermath."""
    try:
        life, found = _failed(template, folder, kind, seed)
        there = {name: min(1, found_after(path, life, _kind(seed))[1]) for name, path in found.items()}
        return Counter({**there, "stopped": life.stopped, "not opened": life.not_opened})
    except BaseException:
        print(f"{kind}: seed {seed}")  # noqa: T201 - what reproduces it
        raise


def test_a_failed_synchronisation_may_have_been_a_commit(template: Path, tmp_path: Path) -> None:
    """EIO: the transaction is there if the process dies, and mostly gone if not; never half, and never twice."""
    there = sum((_trial(template, tmp_path, "sync", seed) for seed in range(5)), Counter[str]())
    # Which change the disk fails at depends on the writer's threads; an opening writes too, and so does the last
    # checkpoint when a book is closed, which fails no commit.
    assert there["stopped"] + there["not opened"] >= 4
    assert there["stopped"] > 2
    assert there["process killed"] > 0
    assert there["opened again"] < there["process killed"]


def test_a_full_disk_is_never_a_commit(template: Path, tmp_path: Path) -> None:
    """ENOSPC in the midst of the log: what did not fit is not there, and is answered when it is sent again."""
    there = sum((_trial(template, tmp_path, "write", seed) for seed in range(3)), Counter[str]())
    assert there["stopped"] + there["not opened"] >= 2
    assert there["stopped"] > 1
    assert there["process killed"] < 3


@pytest.mark.parametrize("kind", ["sync", "write"])
def test_a_failure_of_the_disk_of_a_book_with_statements(template: Path, tmp_path: Path, kind: str) -> None:
    """The same holds; the snapshot, which lies on another disk, may be of the very commit that failed."""
    there = sum((_trial(template, tmp_path, kind, seed) for seed in range(STATED, STATED + 3)), Counter[str]())
    assert there["stopped"] + there["not opened"] > 1


@pytest.mark.soak
@pytest.mark.parametrize("first", [100, STATED + 100])
@pytest.mark.parametrize("kind", ["sync", "write"])
def test_hundreds_of_failures(
    template: Path, tmp_path: Path, kind: str, first: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of either kind, each with three aftermaths, without statements of the state and with them."""
    there = Counter[str]()
    for seed in range(first, first + 300):
        there += _trial(template, tmp_path, kind, seed)
        for path in tmp_path.glob(f"{seed} *"):
            shutil.rmtree(path)
    with capsys.disabled():
        print(f"\n{kind}: 300 failures of the disk from seed {first}: {dict(there)}")  # noqa: T201 - the figures
    noticed = there["stopped"] + there["not opened"]
    # The others failed in a checkpoint: most in that of a closing, after every commit.
    assert noticed > (200 if first >= STATED else 280)
