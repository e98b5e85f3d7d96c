"""Calls that wait for the writer: each some commands in order, and the thread or the coroutine that waits for them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from ledger.book.submitted_command import BookBusy, BookStopped, Outcome, Submission
from ledger.commands.context import PendingCommand

T = TypeVar("T")
COMMANDS_MAX: Final = 65_536
"""Commands that wait at once, unless one call alone has more."""

Answer = list[Outcome] | Exception
"""What a call gets: an outcome for each of its commands, or why it gets none."""


class Call:
    """Some commands of one caller.

    Attributes:
        waiting: those that are not decided yet, in order: as they were submitted, or read already.
        outcomes: of those before them.
        answers: what a thread that waits gets, the first of them.
        future: what a coroutine that waits gets; None if a thread waits.
        loop: of that coroutine.
        unpriced: how often in a row the first one that waits was priced without being decided.
    """

    def __init__(self, submissions: Sequence[Submission], loop: asyncio.AbstractEventLoop | None = None) -> None:
        """A call of the current thread, or of a coroutine of ``loop``, which is running in it."""
        self.waiting: deque[Submission | PendingCommand | Outcome] = deque(submissions)
        self.outcomes: list[Outcome] = []
        self.unpriced = 0
        self.size = len(submissions)
        self.loop = loop
        self.future: asyncio.Future[list[Outcome]] | None = None if loop is None else loop.create_future()
        # A queue of one takes a fifth of the time of a future of a thread.
        self.answers: SimpleQueue[Answer] = SimpleQueue()

    def result(self) -> list[Outcome]:
        """The outcomes, for the one thread that waits for them. Raises: what :meth:`answer` was given."""
        answer = self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    @staticmethod
    def answer(answers: Iterable[tuple[Call, Answer]]) -> None:
        """Wake everyone who waits for these calls; each event loop once. What was answered before stays as it is."""
        of_loops: dict[asyncio.AbstractEventLoop, list[tuple[Call, Answer]]] = {}
        for call, answer in answers:
            if call.loop is None:
                call.answers.put(answer)
            else:
                of_loops.setdefault(call.loop, []).append((call, answer))
        for loop, group in of_loops.items():
            # A loop that was closed has no one who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_settle, group)


def _settle(answers: list[tuple[Call, Answer]]) -> None:
    for call, answer in answers:
        # A coroutine may have been cancelled meanwhile.
        if call.future is None or call.future.done():
            continue
        if isinstance(answer, Exception):
            call.future.set_exception(answer)
        else:
            call.future.set_result(answer)


class CallQueue(Generic[T]):
    """A bounded queue of calls, and of messages ``T`` to the writer, which are never refused."""

    def __init__(self) -> None:
        """Begin empty."""
        self._queue: SimpleQueue[Call | T] = SimpleQueue()
        self._lock = threading.Lock()
        self._commands = 0

    def put(self, call: Call) -> None:
        """Queue a new call. Raises: BookBusy, if too many commands wait."""
        with self._lock:
            if self._commands and self._commands + call.size > COMMANDS_MAX:
                raise BookBusy(f"{self._commands} commands wait to be decided; send it again")
            self._commands += call.size
        self._queue.put(call)

    def put_back(self, message: Call | T) -> None:
        """Queue a message, or a call that was queued before and answered in part."""
        self._queue.put(message)

    def get(self, timeout_s: float) -> Call | T | None:
        """The next one; None if there is none in time (0 or less: now)."""
        try:
            return self._queue.get(timeout=timeout_s) if timeout_s > 0 else self._queue.get_nowait()
        except Empty:
            return None

    @property
    def commands(self) -> int:
        """How many commands wait to be decided at this moment."""
        return self._commands

    @property
    def messages(self) -> int:
        """How many messages and calls wait to be taken at this moment."""
        return self._queue.qsize()

    def refuse_all(self, reason: str) -> None:
        """Inform every caller that the book has stopped; a future among the messages gets None, the others go."""
        while (message := self.get(0)) is not None:
            if isinstance(message, Call):
                Call.answer([(message, BookStopped(reason))])
            elif isinstance(message, Future):
                message.set_result(None)

    def answered(self, commands: int) -> None:
        """So many commands wait no more."""
        with self._lock:
            self._commands -= commands
