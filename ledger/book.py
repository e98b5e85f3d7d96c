"""The book: one writer that takes commands in batches, decides, appends and commits; and readers beside it.

Many threads submit; one writes. A batch is whatever was waiting: one transaction, one checkpoint, one durable
commit (group commit), and nobody is answered before the commit has returned. Reading, verifying and pricing a
command is done in the thread that submits it; the writer finds the price ready.

A commit that fails is an *unknown* outcome: the writer stops, every caller is told so, and the book answers
again only when it was opened anew; then the same command, sent again with its id, gets the answer it has.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from sqlalchemy import Engine

from ledger import canonical as c
from ledger.commands import MakeCharge, OpenPartition
from ledger.decide import authentic
from ledger.decision import Asked, Refusal
from ledger.engines import engine_of, lock_log
from ledger.gate import Gate
from ledger.malformed import Malformed
from ledger.opening import BookUnusable, check_unchanged, check_usable, drop_lock, take_lock
from ledger.outcomes import Code
from ledger.plan import AnyPlan
from ledger.rows import append_once
from ledger.snapshot import Snapshot
from ledger.tables import DocumentRow
from ledger.writing import LAPSE_ID, Answer, Batch, Recorder

__all__ = ["Book", "BookStopped", "BookUnusable", "Outcome", "Submission"]

BATCH_MAX: Final = 512
PRICED_MAX: Final = 16_384
"""Plans under a contract that are remembered as priced; all are forgotten when there are more."""
DOCUMENT_BYTES_MAX: Final = 1 << 20


class BookStopped(RuntimeError):  # noqa: N818 - what is the case
    """The book takes no commands: it was closed, or a commit failed and its outcome is unknown."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A command as it is sent: canonical bytes and the detached JWS over them."""

    raw: bytes
    signature: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command got.

    Attributes:
        index: its entry's place in the log; None if it was not recorded.
        body: the entry's body, or the checks of a quote.
        receipt: proof of the entry under a signed checkpoint.
        field: the field at fault, if one is.
        repeated: the very same command was recorded before, and this is the answer it got then.
    """

    code: Code
    id: str
    index: int | None
    body: c.Object
    receipt: str | None
    field: str
    detail: str
    repeated: bool


class Book:
    """An open book. Open it with :meth:`open`; one process writes a book at a time."""

    def __init__(self, engines: tuple[Engine, Engine], recorder: Recorder, lock: int | None) -> None:
        """Use :meth:`open`."""
        self._writes, self._reads = engines
        self._recorder = recorder
        self._lock = lock
        self._waiting: queue.SimpleQueue[tuple[Asked, Future[Outcome]] | None] = queue.SimpleQueue()
        self._stopped: str | None = None
        self._documents = threading.Lock()
        self._priced: set[tuple[str, tuple[str, ...], AnyPlan]] = set()
        self._writer = threading.Thread(target=self._write, name="book-writer", daemon=True)
        self._writer.start()

    @classmethod
    def open(  # noqa: PLR0913 - where it is, who decides and signs, and what is asked of its server
        cls,
        url: str,
        *,
        gate: Gate,
        log_key: Ed25519PrivateKey,
        origin: str,
        clock: Callable[[], int],
        volatile: bool = False,
    ) -> Self:
        """Open a book whose schema is in place.

        Args:
            url: of the database, as ``sqlite:///book.sqlite`` or ``postgresql://writer@host/book``.
            gate: decides inside the transaction.
            log_key: signs checkpoints.
            origin: the log's name, as checkpoints state it.
            clock: Unix milliseconds; an entry's time never goes back even if the clock does.
            volatile: accept a PostgreSQL server that may lose what it committed, as one for tests.

        Raises:
            BookUnusable: if there is no book, its schema is not this program's, a trigger is missing, the role
                could change what is recorded, it belongs to another log key, or another process writes the file.
        """
        lock = take_lock(url)
        engines = engine_of(url, writes=True), engine_of(url, writes=False)
        try:
            recorder = Recorder(gate, log_key, origin, clock)
            check_usable(engines[1], recorder, volatile=volatile)
            return cls(engines, recorder, lock)
        except BaseException:
            for engine in engines:
                engine.dispose()
            drop_lock(lock)
            raise

    def submit(self, submissions: Sequence[Submission]) -> list[Outcome]:
        """Decide commands in order, each with its own outcome; returns when all that is recorded is durable.

        Raises:
            BookStopped: if the outcome is unknown. Send the same commands again once the book is open.
        """
        outcomes: list[Outcome] = []
        while len(outcomes) < len(submissions):
            outcomes += self._send(self._prepare(submissions[len(outcomes) :]))
        return outcomes

    def _send(self, asked: list[Asked | Outcome]) -> list[Outcome]:
        if self._stopped is not None:
            raise BookStopped(self._stopped)
        futures: list[Future[Outcome]] = []
        answers: list[Outcome | Future[Outcome]] = []
        for one in asked:
            if isinstance(one, Outcome):
                answers.append(one)
            else:
                futures.append(Future())
                answers.append(futures[-1])
                self._waiting.put((one, futures[-1]))
        if futures and (self._stopped is not None or not self._writer.is_alive()):
            # The writer may have drained its queue and ended just before these were put there.
            self._refuse_waiting()
        return [one.result() if isinstance(one, Future) else one for one in answers]

    def quote(self, submission: Submission) -> Outcome:
        """The decision a command would get now, its signature checked as ever; records nothing."""
        with self.read() as facts:
            asked = self._prepare_one(facts, submission, priced=False)
            if isinstance(asked, Outcome):
                return asked
            decided = self._recorder.decide(facts, asked, facts.size)
        return Outcome(
            decided.code,
            asked.command.id,
            None,
            decided.derived,
            None,
            decided.field,
            decided.detail,
            repeated=False,
        )

    def put_document(self, data: bytes) -> str:
        """Keep bytes beside the log under their SHA-256; the same bytes again change nothing. Raises: Malformed."""
        if len(data) > DOCUMENT_BYTES_MAX:
            raise Malformed("document", f"has more than the {DOCUMENT_BYTES_MAX} bytes allowed")
        name = c.digest(data)
        with self._documents:
            with self.read() as facts:
                if name in facts.documents:
                    return name
            with self._writes.begin() as connection:
                append_once(connection, DocumentRow, {"digest": name, "data": data})
        return name

    @contextmanager
    def read(self) -> Iterator[Snapshot]:
        """Everything that stands at one index; readers never block the writer. Raises: BookStopped, if closed."""
        if self._stopped == _CLOSED:
            raise BookStopped(_CLOSED)
        with self._reads.begin() as connection:
            yield Snapshot(connection)

    def close(self) -> None:
        """Finish what is waiting, and let go of the book."""
        self._waiting.put(None)
        self._writer.join()
        self._stopped = _CLOSED
        self._refuse_waiting()
        self._writes.dispose()
        self._reads.dispose()
        drop_lock(self._lock)
        self._lock = None

    def _prepare(self, submissions: Sequence[Submission]) -> list[Asked | Outcome]:
        """As many commands as can be made ready now: a price may hang on what one before it will change."""
        ready: list[Asked | Outcome] = []
        changing = False
        with self.read() as facts:
            for one in submissions:
                asked = self._prepare_one(facts, one, priced=not changing)
                if changing and _is_priced(asked):
                    break
                ready.append(asked)
                changing = changing or (isinstance(asked, Asked) and asked.command.kind in _CHANGE_PRICES)
        return ready

    def _prepare_one(self, facts: Snapshot, one: Submission, *, priced: bool) -> Asked | Outcome:
        """Read and verify outside the writer; and decide once, so that every price and capacity is known to it."""
        try:
            asked = Asked.read(one.raw, one.signature)
        except Malformed as fault:
            return Outcome(Code.MALFORMED, _id_of(one.raw), None, {}, None, fault.field, str(fault), repeated=False)
        if asked.command.kind == "lapse" or asked.command.id.startswith(LAPSE_ID):
            field = "kind" if asked.command.kind == "lapse" else "id"
            detail = f"{field}: a lapse is the book's own entry; nobody may send one, nor take its id"
            return Outcome(Code.NOT_AUTHORISED, asked.command.id, None, {}, None, field, detail, repeated=False)
        # A refusal here may be outdated by the time the writer decides, so the writer repeats it.
        with suppress(Refusal, Malformed):
            asked = replace(asked, verified_by=authentic(facts, asked, self._recorder.log_x).x)
            if priced and _is_priced(asked):
                self._price(facts, asked)
        return asked

    def _price(self, facts: Snapshot, asked: Asked) -> None:
        """Decide once, for what is kept of it; what was priced so before, and nothing changed since, is known."""
        body = asked.body
        key = (body.contract, body.partitions, body.plan) if isinstance(body, MakeCharge) else None
        if key in self._priced:
            return
        self._recorder.decide(facts, asked, facts.size)
        if key is not None:
            if len(self._priced) >= PRICED_MAX:
                self._priced.clear()
            self._priced.add(key)

    def _write(self) -> None:
        while True:
            first = self._waiting.get()
            if first is None:
                return
            batch, last = [first], False
            while len(batch) < BATCH_MAX and not last:
                try:
                    more = self._waiting.get_nowait()
                except queue.Empty:
                    break
                last = more is None
                if more is not None:
                    batch.append(more)
            try:
                outcomes = self._commit([asked for asked, _ in batch])
            except BaseException as fault:  # noqa: BLE001 - whatever it was, the outcome is unknown
                self._stop(fault, batch)
                return
            if any(asked.command.kind in _CHANGE_PRICES for asked, _ in batch):
                self._priced.clear()
            for (_, future), outcome in zip(batch, outcomes, strict=True):
                future.set_result(outcome)
            if last:
                return

    def _commit(self, batch: list[Asked]) -> list[Outcome]:
        with self._writes.begin() as connection:
            lock_log(connection)
            check_unchanged(connection)
            written = Batch(connection, self._recorder)
            answered = [written.record(asked) for asked in batch]
            written.finish()
            return [_outcome(written, asked, one) for asked, one in zip(batch, answered, strict=True)]

    def _stop(self, fault: BaseException, batch: list[tuple[Asked, Future[Outcome]]]) -> None:
        self._stopped = (
            f"the book stopped after {type(fault).__name__}: {str(fault)[:300]}. Whether the last commands were "
            "recorded is unknown: open the book again and send them again with the same ids"
        )
        for _, future in batch:
            future.set_exception(BookStopped(self._stopped))
        self._refuse_waiting()

    def _refuse_waiting(self) -> None:
        while True:
            try:
                waiting = self._waiting.get_nowait()
            except queue.Empty:
                return
            if waiting is not None:
                waiting[1].set_exception(BookStopped(self._stopped or _CLOSED))


_CLOSED: Final = "the book is closed"
_CHANGE_PRICES: Final = frozenset({"coalition", "contract", "dataset", "partition", "policy"})


def _is_priced(asked: Asked | Outcome) -> bool:
    return isinstance(asked, Asked) and isinstance(asked.body, MakeCharge | OpenPartition)


def _outcome(written: Batch, asked: Asked, answer: Answer) -> Outcome:
    proof = None if answer.index is None else written.receipt(answer.index)
    return Outcome(
        answer.code,
        asked.command.id,
        answer.index,
        answer.body,
        proof,
        answer.field,
        answer.detail,
        repeated=answer.repeated,
    )


def _id_of(raw: bytes) -> str:
    with suppress(Malformed):
        value = c.parse(raw, 65_535)
        if isinstance(value, dict) and isinstance(value.get("id"), str):
            return str(value["id"])[:128]
    return ""
