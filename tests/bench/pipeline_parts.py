"""Microseconds of processor time of one command in the book's own pipeline, by stage, in one thread."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from time import process_time
from typing import TypeVar

from ledger.book.batch import Batch, Recorder
from ledger.book.call_queue import Call
from ledger.book.prepare import CommandPricing
from ledger.book.publish import close_batch, commit_batch
from ledger.book.submitted_command import Submission
from ledger.book.wall_clock import WallClock
from ledger.book.writer_state import WriterState
from ledger.commands.context import PendingCommand
from ledger.commands.verdict_cache import VerdictCache
from ledger.log.checkpoint import LogSigner
from ledger.store.engine import ShortReads, engine_of
from policy.decisions.gate import gate
from tests.factories.people import LOG_KEY, ORIGIN
from tests.factories.stored import StoredWorld

T = TypeVar("T")
TOGETHER = 64
"""Commands of one batch."""


class Pipeline:
    """The stages of the writer and of the committing thread, one after the other, on a book that nobody has open."""

    def __init__(self, world: StoredWorld) -> None:
        """Take over the book of ``world``, which is closed."""
        world.book.close()
        self._writes, self._reads = engine_of(world.url, writes=True), engine_of(world.url, writes=False)
        self._recorder = Recorder(gate, WallClock(world.clock), LogSigner(LOG_KEY, ORIGIN))
        self._state = WriterState(self._recorder.signer.key)
        with self._reads.begin() as connection:
            self._state.catch_up(connection)
        self._pricing = CommandPricing(self._reads, self._recorder, lambda *_: None)
        self._verdicts: VerdictCache[None] = VerdictCache()
        self._spent: dict[str, float] = defaultdict(float)

    def spent(self, submissions: Sequence[Submission]) -> dict[str, float]:
        """Microseconds a command, by stage."""
        self._pricing.price(submissions[0].pending)
        self._spent.clear()
        for start in range(0, len(submissions), TOGETHER):
            self._pass([Call([one]) for one in submissions[start : start + TOGETHER]])
        return {stage: seconds / len(submissions) * 1e6 for stage, seconds in self._spent.items()}

    def close(self) -> None:
        """Leave the book."""
        self._pricing.close()
        self._state.statements.close()
        self._writes.dispose()
        self._reads.dispose()

    def _pass(self, calls: list[Call]) -> None:
        keys = self._state.facts.in_memory
        ready = self._timed("read and verify", lambda: self._pricing.read_first(keys, calls, TOGETHER))
        batch = Batch(ShortReads(self._reads), self._recorder, self._state, self._verdicts)

        def record() -> None:
            self._state.expect([one for some in ready for one in some if isinstance(one, PendingCommand)])
            for call, commands in zip(calls, ready, strict=True):
                assert batch.record_call(call, commands)

        def commit() -> None:
            with self._writes.connect() as connection:
                connection.begin()
                commit_batch(connection, batch)

        self._timed("decide, apply and append", record)
        self._timed("sign the checkpoint, take the changes", lambda: close_batch(batch, self._recorder.signer))
        self._timed("write the rows and commit", commit)
        self._timed("put the receipt together", lambda: [one.receipt for part in batch.parts for one in part.outcomes])
        self._state.committed(batch.tree.size)

    def _timed(self, stage: str, run: Callable[[], T]) -> T:
        start = process_time()
        found = run()
        self._spent[stage] += process_time() - start
        return found
