"""Writers killed by the kernel at any moment: nothing acknowledged is lost, nothing else is half there."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Final

import pytest

from ledger.audit.replay import verify_book
from ledger.state_tree.snapshot_format import read_snapshot
from tests.factories.people import LOG
from tests.factories.stored import ENGINES, StoredWorld, fresh_book, no_step
from tests.faults.copies import Copies
from tests.faults.killing import Book, Writers, writing
from tests.faults.stated_world import SNAPSHOT, StatedWorld, state_often
from tests.faults.writer import NOTES, TINY, ask

KILLS: Final = int(os.environ.get("EPSILON_SOAK_KILLS", "2000"))
PER_BOOK: Final = 8
SEED: Final = "EPSILON_SOAK_SEED"


@pytest.fixture(scope="module")
def writers() -> Iterator[Writers]:
    """One process for all kills."""
    with writing() as found:
        yield found


@pytest.fixture(params=ENGINES)
def book(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Book]:
    """A founded book that nobody has open."""
    with fresh_book(tmp_path, request.param) as url:
        yield _founded(tmp_path, url)


def _founded(folder: Path, url: str) -> Book:
    world = StoredWorld(folder, url)
    world.submit(*world.founding())
    size = world.size
    world.book.close()
    return Book(folder, url, size)


def test_no_acknowledged_answer_is_lost(writers: Writers, book: Book) -> None:
    """Writers die one after another on one book; every history of all of them fits the log after each."""
    dice = random.Random("slice")  # noqa: S311 - what the writers ask for
    inside = "instructions" if book.url.startswith("sqlite") else "statement"
    for number, die in enumerate(({"answers": 8}, {inside: 250}, {"commit": 3})):
        book.kill(writers, f"r{number}", dice, die)
    calls, reads = book.look()
    words = Counter(one.word for one in calls)
    assert {"pending", "posted", "voided", "conflict"} <= set(words), words
    assert reads


def test_what_was_committed_and_not_answered_gets_its_answer(writers: Writers, book: Book) -> None:
    """The writer dies between its first commit and the answer: what it sent is there, and asked again stands once."""
    job = book.job("k", random.Random(1), commit=1)  # noqa: S311
    assert os.WTERMSIG(writers.run(job, None)) == signal.SIGKILL
    calls, _ = book.look()
    assert not any(one.word for one in calls)
    assert len(book.log) > book.founded
    assert {one.id for one in calls} >= set(_ids(book.log[book.founded :]))
    (name, *_) = _ids(book.log[book.founded :])
    assert book.ask_again(name) == "id_reused"


def test_a_kill_around_a_statement_or_a_snapshot_loses_nothing(
    writers: Writers, book: Book, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each writer goes on by what the last one left: a statement without its commit, half a snapshot, a new one."""
    book, dice = replace(book, stated=True), random.Random("stated")  # noqa: S311
    file, made = book.folder / SNAPSHOT, list[int]()
    for number, die in enumerate(({"stated": 1}, {"stated_commit": 2}, {"piece": 20}, {"replaced": 1})):
        before = len(book.log) or book.founded
        book.kill(writers, f"s{number}", dice, die)
        made.append(sum(json.loads(data)["kind"] == "statement" for data in book.log[before:]))
        assert len([*book.folder.glob(f".{SNAPSHOT}.*.part")]) == ("piece" in die)
    assert made[0] == 0
    assert made[1] > 0
    found = read_snapshot(file.read_bytes(), LOG.vkey)
    stated = [one["body"]["request"] for one in map(json.loads, book.log) if one["kind"] == "statement"]
    assert {"root": found.tree.root.hex(), "size": found.size} in stated
    caplog.set_level("INFO", "ledger.book")
    state_often(monkeypatch.setattr)
    world = StatedWorld(book.folder, book.url)
    try:
        assert [f"opened by the snapshot of {found.size} entries" in one for one in caplog.messages] == [True]
        assert world.submit(world.charge("after", run=TINY))[0].code.word == "pending"
    finally:
        world.book.close()
    assert verify_book(book.url, LOG, no_step).entries > len(book.log)


def _ids(log: list[bytes]) -> list[str]:
    return [json.loads(data)["id"] for data in log]


def test_a_disk_that_takes_no_more_stops_the_book(writers: Writers, tmp_path: Path) -> None:
    """A write fails in the file system: nobody is told yes for it, and the book goes on when it is opened again."""
    with fresh_book(tmp_path) as url:
        book = _founded(tmp_path, url)
        job = {**book.job("k", random.Random(1), bytes=600_000), "groups": 120}  # noqa: S311
        assert writers.run(job, None) == 0
        calls, _ = book.look()
        answered = [one for one in calls if one.word]
        assert 0 < len(answered) < len(calls)
        assert book.ask_again("fresh") in {"pending", "budget_exhausted"}


@pytest.mark.soak
def test_a_writer_that_sleeps_through_another_commits_nothing_late(writers: Writers, tmp_path: Path) -> None:
    """SIGSTOP at some moment, SIGCONT when another process has written the same book in PostgreSQL."""
    dice = random.Random(7)  # noqa: S311 - when it sleeps
    with fresh_book(tmp_path, "postgresql") as url:
        book = _founded(tmp_path, url)

        def meanwhile(pid: int) -> None:
            other = StoredWorld(tmp_path, url)
            notes = os.open(tmp_path / NOTES, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            asleep = Timer(dice.uniform(0.1, 0.5), os.kill, (pid, signal.SIGSTOP))
            asleep.start()
            for number in range(8):
                ask(other, notes, f"o.{number}", dice)
            asleep.join()
            ask(other, notes, "o.last", dice)
            os.kill(pid, signal.SIGCONT)
            os.close(notes)
            other.book.close()

        # Far more than it sends before it is stopped, on a machine however fast.
        assert writers.run({**book.job("s", dice), "groups": 600}, None, meanwhile) == 0
        calls, _ = book.look()
        assert {one.id.split("-")[-1][0] for one in calls} == {"s", "o"}
        assert [one.word for one in calls if one.id.startswith("o.last")].count("") == 0


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_thousands_of_kills(writers: Writers, tmp_path: Path, engine: str, tell: Callable[[str], None]) -> None:
    """As many as EPSILON_SOAK_KILLS says, a few on each book, from a seed that EPSILON_SOAK_SEED sets."""
    seed = os.environ.get(SEED) or str(secrets.randbits(32))
    tell(f"{SEED}={seed}")
    total = Counter[str]()
    with ExitStack() as stack:
        copies = Copies(tmp_path, engine, stack)
        for number in range(-(-KILLS // PER_BOOK)):
            dice = random.Random(f"{seed} {number}")  # noqa: S311 - how they die
            total += _some_kills(writers, copies, tmp_path / str(number), dice, stated=number % 2 == 1)
            if number % 10 == 9:
                tell(f"{engine}: {dict(total)}")
    tell(f"{engine}: {dict(total)}")
    assert total["kills"] >= KILLS


def _some_kills(writers: Writers, copies: Copies, folder: Path, dice: random.Random, *, stated: bool) -> Counter[str]:
    """Writers that die one after another on one book, looked at after each."""
    with copies.one(folder) as url:
        book = Book(folder, url, copies.founded, stated)
        for place in range(PER_BOOK):
            book.kill_one(writers, f"r{place}", dice)
        calls, reads = book.look()
    seen = Counter(one.word or "unanswered" for one in calls)
    return seen + Counter(kills=PER_BOOK, reads=len(reads), entries=len(book.log))
