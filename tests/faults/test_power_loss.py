"""The power goes at a seeded moment: what was acknowledged is there, what is there is whole, and the book goes on."""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from ledger.audit.replay import VerificationFailed
from tests.factories.documents import NOW
from tests.factories.stored import StoredWorld, open_world
from tests.faults.disk import Disk
from tests.faults.power import TINY, Life, faulty_url, found_after, keep_snapshot, live, opened, release, start
from tests.faults.stated_world import StatedWorld, state_often

SEEDS: Final = int(os.environ.get("EPSILON_SOAK_POWER", "1500"))
CHANGES_MAX: Final = 300
"""Within which the power goes: about as many changes as a life makes."""
Tally = Counter[str]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book with a few entries."""
    folder = tmp_path_factory.mktemp("template")
    with open_world(folder) as world:
        world.submit(world.charge("warm", run=TINY))
    return folder


def _cut(template: Path, folder: Path, seed: int, synchronous: str = "FULL") -> Tally:
    """One book through two lives that end in the dark, the second one perhaps while it recovers from the first.

    Every second seed has a book that states its state and writes snapshots of it.
    """
    kind = StatedWorld if seed % 2 else StoredWorld
    dice = random.Random(seed)  # noqa: S311 - when the power goes, and what it leaves
    tally, now = Tally(), NOW
    for number, most in enumerate((CHANGES_MAX, dice.choice((20, CHANGES_MAX)))):
        home = folder / f"{seed}-{number}"
        start(template, home)
        disk = Disk(cut=dice.randint(1, most))
        # A checkpoint synchronises whatever the setting; without any, a setting that does not is seen at once.
        pages = dice.choice(("8", "50", "1000")) if synchronous == "FULL" else "1000"
        world = opened(home, faulty_url(home, disk, pages=pages, synchronous=synchronous), disk, kind)
        try:
            life = Life(now=now) if world is None else live(world, dice, f"l{number}-", now)
            template = folder / f"{seed}-{number}-dark"
            template.mkdir()
            disk.after_cut(dice, template)
            keep_snapshot(home, template)
        finally:
            release(world, disk)
        now = life.now
        finding, unknown = found_after(template, life, kind)
        tally += Tally(
            lives=1,
            cut=int(disk.is_cut),
            acknowledged=len(life.answered),
            unanswered=len(life.unanswered),
            durable=unknown,
            entries=finding.entries,
            statements=_statements(template),
        )
    return tally


def _statements(folder: Path) -> int:
    """How many statements of the state its book holds."""
    with closing(sqlite3.connect(folder / "book.sqlite")) as connection:
        return int(connection.execute("SELECT count(*) FROM entry WHERE kind = 'statement'").fetchone()[0])


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    state_often(monkeypatch.setattr)


def _each(template: Path, folder: Path, seeds: Iterable[int], tell: Callable[[str], None] | None = None) -> Tally:
    total = Tally()
    for number, seed in enumerate(seeds, 1):
        try:
            total += _cut(template, folder, seed)
        except BaseException:
            print(f"power loss: seed {seed}")  # noqa: T201 - what reproduces it
            raise
        for path in sorted(folder.glob(f"{seed}-*/*")):
            path.unlink()
        if tell is not None and number % 50 == 0:
            tell(f"power loss: {number} seeds, {dict(total)}")
    return total


def test_power_goes_and_nothing_acknowledged_is_lost(template: Path, tmp_path: Path) -> None:
    """The first seeds of the soak: some end in the midst of a commit that is there afterwards, some that is not."""
    total = _each(template, tmp_path, range(6))
    assert total["lives"] == 12
    assert total["cut"] > 4
    assert 0 < total["durable"] < total["unanswered"]
    assert total["acknowledged"] > 50
    assert total["statements"] > 6


@pytest.mark.parametrize("synchronous", ["OFF", "NORMAL"])
def test_a_book_that_does_not_synchronise_is_caught(template: Path, tmp_path: Path, synchronous: str) -> None:
    """Broken on purpose: the same seeds find answers that are gone, and without any synchronisation broken files."""
    caught = 0
    for seed in range(6):
        try:
            _cut(template, tmp_path, seed, synchronous)
        except (AssertionError, sqlite3.DatabaseError, VerificationFailed):
            caught += 1
    assert caught >= 2


@pytest.mark.soak
def test_power_goes_thousands_of_times(template: Path, tmp_path: Path, tell: Callable[[str], None]) -> None:
    """As many seeds as EPSILON_SOAK_POWER says, from EPSILON_SOAK_SEED on."""
    first = int(os.environ.get("EPSILON_SOAK_SEED", "100"))
    total = _each(template, tmp_path, range(first, first + SEEDS), tell)
    tell(f"power loss: {SEEDS} seeds, {dict(total)}")
    assert total["lives"] == 2 * SEEDS
