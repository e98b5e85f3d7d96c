"""Reading, verifying and pricing commands, in the thread that sends them: the writer finds every price ready.

A price can take seconds. While one is worked out no snapshot is held, which would keep a database from clearing up
and other readers from a connection: each fact is read on a short snapshot of its own. What is found may be outdated
by the time the writer decides, so the writer decides again, on facts of one index. Only a few are priced at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Final, cast

from sqlalchemy import Connection, Engine, Result, Select, func, select

from ledger.book.batch import LAPSE_ID, Recorder
from ledger.book.submission import BookBusy, Outcome, Submission
from ledger.domain.commands import MakeCharge, OpenPartition
from ledger.domain.outcomes import Code
from ledger.store.snapshot import Snapshot
from ledger.store.tables import EntryRow, table_of
from ledger.transitions.decide import authentic
from ledger.transitions.guards import Asked, Refusal
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

PRICED_MAX: Final = 16_384
"""Runs under a contract that are remembered as priced; all are forgotten when there are more."""
READ_MAX: Final = 512
"""Commands of one call that are read ahead, at most."""
AT_ONCE: Final = os.cpu_count() or 1
"""How many prices are worked out at once; it is work for processors alone."""
WAIT_S: Final = 30.0
"""How long a command waits for its turn to be priced."""

_CHANGE_PRICES: Final = frozenset(
    {"coalition", "contract", "dataset", "decree", "partition", "policy", "recommendation", "revocation"}
)
_AFTER_PRICING: Final = frozenset(
    {Code.PENDING, Code.PERMITTED, Code.POLICY_DENIED, Code.BUDGET_EXHAUSTED, Code.NOT_PRICED}
)
_entry: Final = table_of(EntryRow)


class Glimpses:
    """Stands where a connection would and holds none: each statement reads on a snapshot of its own."""

    def __init__(self, engine: Engine) -> None:
        """Read through ``engine``."""
        self._engine = engine

    def execute(self, statement: Select[Any], parameters: dict[str, object] | None = None) -> Result[Any]:
        """Every row of the result, in memory."""
        with self._engine.begin() as connection:
            return connection.execute(statement, parameters).freeze()()


class Preparer:
    """Makes commands ready for the writer."""

    def __init__(self, reads: Engine, recorder: Recorder) -> None:
        """Read through ``reads``; decide as ``recorder`` does."""
        self._glimpses = cast("Connection", Glimpses(reads))
        self._recorder = recorder
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._priced: set[tuple[object, ...]] = set()
        self._seen = 0, -1

    def prepare(self, submissions: Sequence[Submission]) -> list[Asked | Outcome]:
        """As many commands as can be made ready now: a price may hang on what one before it will change.

        Raises:
            BookBusy: if too many are being priced.
        """
        ready: list[Asked | Outcome] = []
        changing = False
        facts = Snapshot(self._glimpses)
        for one in _ahead(facts, submissions):
            asked = self._verified(facts, one) if isinstance(one, Asked) else one
            if isinstance(asked, Asked) and isinstance(asked.body, MakeCharge | OpenPartition):
                if changing or (ready and not asked.verified_by):
                    break
                asked = self._priced_once(facts, asked)
            ready.append(asked)
            changing = changing or (isinstance(asked, Asked) and asked.command.kind in _CHANGE_PRICES)
        return ready

    def _verified(self, facts: Snapshot, asked: Asked) -> Asked:
        """The command with its signature checked, if there is a key for it."""
        # A refusal here may be outdated by the time the writer decides, so the writer repeats it.
        with suppress(Refusal, Malformed):
            return replace(asked, verified_by=authentic(facts, asked, self._recorder.log_x).x)
        return asked

    def _priced_once(self, facts: Snapshot, asked: Asked) -> Asked:
        """Decide once, for what is kept of it; what was priced so before, and nothing changed since, is known."""
        body = asked.body
        key = (body.contract, body.partitions, body.plan) if isinstance(body, MakeCharge) else None
        known = (self._last_change(facts.size), key)
        if key is not None and known in self._priced:
            return asked
        with self._turn():
            decided = self._recorder.decide(facts, asked)
        if decided.code not in _AFTER_PRICING:
            return replace(asked, unpriced_at=facts.size)
        if key is not None:
            with self._lock:
                if len(self._priced) >= PRICED_MAX:
                    self._priced.clear()
                self._priced.add(known)
        return asked

    def _last_change(self, size: int) -> int:
        """Where the newest entry stands that a price may hang on, whichever process wrote it."""
        seen, last = self._seen
        if size > seen:
            newer = select(func.max(_entry.c.position)).where(
                _entry.c.position >= seen, _entry.c.position < size, _entry.c.kind.in_(_CHANGE_PRICES)
            )
            found = self._glimpses.execute(newer).scalar()
            last = last if found is None else max(last, int(found))
            with self._lock:
                self._seen = max(self._seen, (size, last))
        return last

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=WAIT_S):
            raise BookBusy(f"too many runs are being priced; waited {WAIT_S:.0f} seconds")
        try:
            yield
        finally:
            self._turns.release()


def _ahead(facts: Snapshot, submissions: Sequence[Submission]) -> Iterator[Asked | Outcome]:
    """The commands in order, with their keys read in one statement for many.

    Twice as many each time, since a price may put an end to it: no more is read in vain than was made ready.
    """
    start, many = 0, 1
    while start < len(submissions):
        some = [_read(one) for one in submissions[start : start + many]]
        if many > 1:
            facts.keys.load(one.command.key_id for one in some if isinstance(one, Asked))
        yield from some
        start, many = start + many, min(2 * many, READ_MAX)


def _read(one: Submission) -> Asked | Outcome:
    """A command, or why it is none."""
    try:
        asked = Asked.read(one.raw, one.signature)
    except Malformed as fault:
        return Outcome(Code.MALFORMED, _id_of(one.raw), None, {}, None, fault.field, str(fault), repeated=False)
    if asked.command.kind == "lapse" or asked.command.id.startswith(LAPSE_ID):
        field = "kind" if asked.command.kind == "lapse" else "id"
        detail = f"{field}: a lapse is the book's own entry; nobody may send one, nor take its id"
        return Outcome(Code.NOT_AUTHORISED, asked.command.id, None, {}, None, field, detail, repeated=False)
    return asked


def _id_of(raw: bytes) -> str:
    with suppress(Malformed):
        value = c.parse(raw, 65_535)
        if isinstance(value, dict) and isinstance(value.get("id"), str):
            return str(value["id"])[:128]
    return ""
