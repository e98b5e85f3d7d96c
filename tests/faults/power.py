"""A seeded life of a real book on a disk that loses what was not synchronised, up to the moment that the power goes."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from sqlalchemy import URL
from sqlalchemy.exc import DatabaseError

from ledger.audit.replay import verify_book
from ledger.audit.verification_report import VerificationReport
from ledger.book.submitted_command import BookStopped, BookUnusable, Outcome, Submission
from tests.factories.documents import NOW, SMALL, plan
from tests.factories.people import BANK_A, BANK_B, HOUR_MS, LOG
from tests.factories.stored import StoredWorld, no_step
from tests.faults import driver
from tests.faults.disk import Disk
from tests.faults.stated_world import SNAPSHOT

TINY: Final = plan(4, "8")
CALLS: Final = 12
"""Calls that a life is long, if nothing ends it."""
Answered = tuple[Submission, Outcome]


@dataclass
class Life:
    """What a book was asked, and what it said before it ended."""

    answered: list[Answered] = field(default_factory=list)
    unanswered: list[Submission] = field(default_factory=list)
    stopped: int = 0
    not_opened: int = 0
    now: int = NOW


def faulty_url(folder: Path, disk: Disk, *, pages: str = "1000", synchronous: str = "FULL") -> str:
    """The URL of the book in a folder, on this disk, with a checkpoint after so many pages."""
    how = {"plugin": driver.NAME, "vfs": disk.name, "pages": pages, "synchronous": synchronous}
    return URL.create("sqlite", database=str(folder / "book.sqlite"), query=how).render_as_string()


def opened(folder: Path, url: str, disk: Disk, kind: type[StoredWorld] = StoredWorld) -> StoredWorld | None:
    """The book in a folder; None if the power goes while it is opened, which writes already."""
    try:
        return kind(folder, url)
    except BookUnusable:
        if not disk.is_cut:
            raise
        return None


def live(world: StoredWorld, dice: random.Random, prefix: str = "c", now: int = NOW) -> Life:
    """Send groups of commands, open the book anew now and then, until the book stops or all was sent."""
    life, pending, world.clock.now = Life(), list[str](), now
    for number in range(CALLS):
        sent = _group(world, dice, f"{prefix}{number}", pending)
        life.now = world.clock.now
        try:
            outcomes = world.submit(*sent)
        except BookStopped:
            life.stopped += 1
            life.unanswered += sent
            break
        life.answered += zip(sent, outcomes, strict=True)
        pending = [one.id for one in outcomes if one.code.word == "pending"] + pending[:3]
        try:
            if dice.random() < 0.15:
                world.reopen()
        except (BookUnusable, DatabaseError):
            life.not_opened += 1
            break
    return life


def _group(world: StoredWorld, dice: random.Random, name: str, pending: list[str]) -> list[Submission]:
    """A few charges, and what becomes of those before; every now and then an hour passes and lapses what is left."""
    if dice.random() < 0.1:
        world.clock.now += HOUR_MS + 1
    sent = []
    for charge in pending:
        bank, end = (BANK_A, BANK_B)[charge.endswith("b")], dice.randrange(3)
        if end == 0:
            sent.append(world.settle(charge, dice.randint(0, 4), bank))
        elif end == 1:
            sent.append(world.void(charge, bank))
    for place in range(dice.randint(1, 6)):
        bank, letter = dice.choice(((BANK_A, "a"), (BANK_B, "b")))
        sent.append(world.charge(f"{name}-{place}-{letter}", bank, TINY if dice.random() < 0.8 else SMALL))
    return sent


def release(world: StoredWorld | None, disk: Disk) -> None:
    """Close what is left of a book whose disk has failed."""
    disk.end()
    if world is not None:
        with suppress(DatabaseError, sqlite3.Error):
            world.book.close()
    disk.unregister()


def found_after(folder: Path, life: Life, kind: type[StoredWorld] = StoredWorld) -> tuple[VerificationReport, int]:
    """Check a book as it was found: whole, verified, every answer in its place; and how many unanswered are in it.

    Everything is sent again: what was answered gets the same answer, the rest is answered now, and nothing twice.
    """
    path = folder / "book.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    found = verify_book(f"sqlite:///{path}", LOG, no_step)
    world = kind(folder)
    world.clock.now = life.now
    try:
        recorded = [(sent, one) for sent, one in life.answered if one.index is not None]
        again = world.submit(*(sent for sent, _ in recorded))
        for (_, before), now in zip(recorded, again, strict=True):
            reported = (now.repeated, now.code, now.index, now.body)
            assert reported == (True, before.code, before.index, before.body), (before, now)
        rest = world.submit(*life.unanswered)
        settled = [(one.code, one.index) for one in world.submit(*life.unanswered)]
        assert settled == [(one.code, one.index) for one in rest], "what is answered stays so"
        assert world.submit(world.charge(f"after-{found.entries}", run=TINY))[0].code.word == "pending"
    finally:
        world.book.close()
    return found, sum(one.repeated for one in rest)


def start(template: Path, folder: Path) -> None:
    """A copy of a closed book to live in."""
    folder.mkdir()
    shutil.copyfile(template / "book.sqlite", folder / "book.sqlite")
    keep_snapshot(template, folder)


def keep_snapshot(before: Path, after: Path) -> None:
    """The snapshot of the state, which lies on another disk: it may be of more entries than the book has now."""
    if (before / SNAPSHOT).exists():
        shutil.copyfile(before / SNAPSHOT, after / SNAPSHOT)
