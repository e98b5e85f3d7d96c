"""The writer's threads: who waits for what, what a failed commit takes with it, and how much may wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from ledger.audit.replay import verify_book
from ledger.book.book import Book, BookBusy, BookStopped, Outcome
from ledger.domain.facts import Facts
from ledger.domain.gate import Request, Verdict
from ledger.store.postgres.pipeline import COMMIT
from policy.decisions.gate import gate
from tests.factories.documents import SMALL
from tests.factories.people import BANK_A, BANK_B, LOG
from tests.factories.stored import StoredWorld, no_step

WAIT_S = 60


class Doors:
    """Holds a commit of the book until it is opened, and shows when the writer decides a command of a name.

    It holds the writer at another command until more waits.
    """

    def __init__(self) -> None:
        self.reached, self.open, self.decided = (threading.Event() for _ in range(3))
        self.deciding, self.more = threading.Event(), threading.Event()
        self.error: Exception | None = None
        self.name = self.before = ""

    def gate(self, request: Request, facts: Facts) -> Verdict:
        """The real gate's verdict."""
        if threading.current_thread().name == "book-writer":
            if request.command.id == self.before:
                self.deciding.set()
                assert self.more.wait(WAIT_S)
            if request.command.id == self.name:
                self.decided.set()
        return gate(request, facts)

    def commit(self, connection: Connection) -> None:
        """Hold a commit of entries; fail it, if that is asked for."""
        del connection
        if threading.current_thread().name not in {"book-commits", "book-writer"} or self.reached.is_set():
            return
        self.reached.set()
        assert self.open.wait(WAIT_S)
        if self.error is not None:
            raise self.error

    def execute(self, connection: Connection, _cursor: object, statement: str, *_rest: object) -> None:
        """The same where the commit is a statement of the batch, which is sent before SQLAlchemy knows of it."""
        if statement == COMMIT:
            self.commit(connection)


@contextmanager
def held(world: StoredWorld) -> Iterator[Doors]:
    """The next commit is held while the block runs."""
    doors = Doors()
    world.book.close()
    world.book = world.open(gate=doors.gate)
    world.submit(world.charge("warm", run=SMALL))
    event.listen(Engine, "commit", doors.commit)
    event.listen(Engine, "before_cursor_execute", doors.execute)
    try:
        yield doors
    finally:
        doors.open.set()
        event.remove(Engine, "commit", doors.commit)
        event.remove(Engine, "before_cursor_execute", doors.execute)


def test_nobody_is_answered_before_the_commit(world: StoredWorld) -> None:
    """The entry is written and not committed: its caller waits, and no reader sees it."""
    with held(world) as doors, ThreadPoolExecutor(1) as pool:
        answer = pool.submit(world.submit, world.charge("run-1", run=SMALL))
        assert doors.reached.wait(WAIT_S)
        assert not answer.done()
        assert world.size == 11
        doors.open.set()
        assert answer.result(WAIT_S)[0].code.word == "pending"
    assert world.size == 12


@pytest.mark.parametrize("engine", ["sqlite"], indirect=True)
def test_the_next_batch_is_decided_during_a_commit_and_falls_with_it(world: StoredWorld) -> None:
    """Decided on a state that never came to be, it is not committed; both callers learn that the book stopped."""
    with held(world) as doors:
        lone = world.charge("run-1", run=SMALL, recipients=[BANK_A])
        doors.before, doors.name, doors.error = "run-1", "run-2", OSError("the disk is gone")

        async def ask() -> list[list[Outcome] | BaseException]:
            # Both are to recipients, so that no verdict is kept and the gate is asked.
            first = asyncio.create_task(world.book.submit_async([lone]))
            await asyncio.sleep(0)
            assert doors.deciding.wait(WAIT_S)
            # It waits when the first is decided, so the commit of that is not the writer's own.
            second = asyncio.create_task(
                world.book.submit_async([world.charge("run-2", run=SMALL, recipients=[BANK_B])])
            )
            await asyncio.sleep(0)
            doors.more.set()
            assert doors.decided.wait(WAIT_S)
            doors.open.set()
            return [*await asyncio.gather(first, second, return_exceptions=True)]

        for one in asyncio.run(ask()):
            with pytest.raises(BookStopped, match=r"the disk is gone\. Whether the last commands were recorded is"):
                raise one if isinstance(one, BaseException) else AssertionError(one)
        with pytest.raises(BookStopped):
            world.submit(world.charge("run-3", run=SMALL))
    world.reopen()
    with world.book.read() as facts:
        assert facts.entry_index("run-2") is None
    assert world.submit(world.charge("run-2", run=SMALL))[0].code.word == "pending"
    assert verify_book(world.url, LOG, no_step).charges >= 2


def test_a_full_queue_is_a_busy_book(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits is bounded; what was refused is not recorded, and may be sent again."""
    monkeypatch.setattr("ledger.book.call_queue.COMMANDS_MAX", 4)
    with held(world) as doors, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(world.submit, *(world.charge(f"run-{n}", run=SMALL) for n in range(4)))
        assert doors.reached.wait(WAIT_S)
        with pytest.raises(BookBusy, match="4 commands wait to be decided"):
            world.submit(world.charge("more", run=SMALL))
        doors.open.set()
        assert len(waiting.result(WAIT_S)) == 4
    assert world.submit(world.charge("more", run=SMALL))[0].index is not None


def test_coroutines_wait_without_threads(world: StoredWorld) -> None:
    """A hundred of them on one loop, one of which is cancelled: each gets its own outcome."""
    sent = [world.charge(f"run-{n}", run=SMALL) for n in range(100)]

    async def ask(book: Book) -> list[list[Outcome] | BaseException]:
        tasks = [asyncio.create_task(book.submit_async([one])) for one in sent]
        await asyncio.sleep(0)
        tasks[7].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    before = threading.active_count()
    found: list[Any] = asyncio.run(ask(world.book))
    assert threading.active_count() <= before + 4
    assert isinstance(found.pop(7), asyncio.CancelledError)
    assert [one.id for (one,) in found] == [f"run-{n}" for n in range(100) if n != 7]
    assert {one.code.word for (one,) in found} <= {"pending", "budget_exhausted"}
    # What was cancelled was asked for all the same.
    assert world.submit(sent[7])[0].repeated


def test_a_loop_that_was_closed_stops_nobody(world: StoredWorld) -> None:
    """Its coroutine is gone before the commit; others are answered."""
    with held(world) as doors:

        async def leave() -> None:
            task = asyncio.create_task(world.book.submit_async([world.charge("left", run=SMALL)]))
            await asyncio.to_thread(doors.reached.wait, WAIT_S)
            task.cancel()

        asyncio.run(leave())
        doors.open.set()
        assert world.submit(world.charge("after", run=SMALL))[0].code.word == "pending"
    assert world.submit(world.charge("left", run=SMALL))[0].repeated


def test_a_call_longer_than_a_batch_is_answered_in_order(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes into several batches; its charges and their settlements are each after those before them."""
    monkeypatch.setattr("ledger.book.group_commit.BATCH_MAX", 3)
    sent = [one for n in range(5) for one in (world.charge(f"run-{n}", run=SMALL), world.settle(f"run-{n}", 0))]
    outcomes = world.submit(*sent)
    assert [one.code.word for one in outcomes] == ["pending", "posted"] * 5
    assert [one.index for one in outcomes] == [*range(10, 20)]


def test_a_worker_is_the_first_to_decide_an_opening(world: StoredWorld) -> None:
    """Its commitments are compared with all before it, which the writer waits for no more than for a price."""
    where: list[str] = []

    def watched(request: Request, facts: Facts) -> Verdict:
        if request.command.kind == "partition":
            where.append(threading.current_thread().name.partition("_")[0])
        return gate(request, facts)

    world.book.close()
    world.book = world.open(gate=watched)
    refused, opened = world.submit(world.partition("too large", epsilon="9"), world.partition("next"))
    assert (refused.code.word, opened.code.word) == ("malformed", "permitted")
    assert where == ["book-pricing", "book-writer"]
