"""First stop of a command: read it, verify its signature and compute its prices, in the thread that submits it.

A price can take seconds to compute. No snapshot is held meanwhile, which would keep the database from removing old
rows and other readers from a connection: each fact is read in a short transaction of its own (:class:`ShortReads`).
The result may be outdated when the writer decides, so the writer decides again, on the state at one index. Only a few
commands are priced at once.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from ledger.accounts.pricing import CollectedPrices, PreparedPrices
from ledger.book.batch import LAPSE_ID, Recorder
from ledger.book.submitted_command import BookBusy, Outcome, Submission
from ledger.commands.context import PendingCommand
from ledger.commands.decide import verify_signer
from ledger.commands.registration.partition import OpenPartition
from ledger.commands.registry import KINDS
from ledger.commands.runs.charge import MakeCharge
from ledger.domain.decision import Rejected
from ledger.domain.facts import Facts
from ledger.domain.outcomes import Code
from ledger.store.engine import ShortReads
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

PRICES_MAX: Final = 16_384
"""Prepared prices that are cached, one for each contract, plan and partitions; the cache is emptied when it is full."""
AT_ONCE: Final = os.cpu_count() or 1
"""How many commands are priced at once: pricing is work for processors alone."""
WAIT_S: Final = 30.0
"""How long a command waits for its turn to be priced."""

Prepared = PendingCommand | Outcome
"""A command that is ready for the writer, or the outcome of one that will never reach it."""


class CommandPreparer:
    """Prepares commands for the writer."""

    def __init__(self, reads: Engine, recorder: Recorder, facts: Facts) -> None:
        """Prepare commands in any number of threads.

        Args:
            reads: what prices are computed from is read through it.
            recorder: decides as the writer does.
            facts: what the writer has in memory, of which keys alone are looked up: a look-up in a dictionary that
                another thread adds to gives what was there or what is.
        """
        self._reads = ShortReads(reads)
        self._recorder = recorder
        self._facts = facts
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._prices: dict[Hashable, PreparedPrices] = {}

    def prepare(self, commands: Sequence[Submission | Prepared], *, again: bool = False) -> list[Prepared]:
        """Read, verify and price the first commands of a call.

        Args:
            commands: as they were submitted, or prepared before.
            again: whether the writer sent the first one back, so that no cached price is good enough.

        Returns:
            As many as can be prepared now, at least one: not those whose price an earlier one may change. A command
            that is malformed or reserved for the book has its outcome already; every other one carries the key that
            its signature was verified with and, if it needs any, the prices that deciding it took.

        Raises:
            BookBusy: if too many commands are being priced.
        """
        ready: list[Prepared] = []
        changing = False
        for submitted in commands:
            one = _read(submitted) if isinstance(submitted, Submission) else submitted
            if isinstance(one, Outcome):
                ready.append(one)
                continue
            priced = isinstance(one.body, MakeCharge | OpenPartition)
            if priced and changing:
                break
            command = one if one.verified_by else self._verified(one)
            ready.append(self._priced(command, again=again) if priced else command)
            changing = changing or KINDS[command.command.kind].changes_prices
        return ready

    def _verified(self, command: PendingCommand) -> PendingCommand:
        """The command with the key that its signature verifies with, if there is one."""
        # An error here may be outdated when the writer decides, so the writer verifies again and reports it.
        with suppress(Rejected, Malformed):
            return replace(command, verified_by=verify_signer(self._facts, command, self._recorder.log_x).x)
        return command

    def _priced(self, command: PendingCommand, *, again: bool) -> PendingCommand:
        """The command with every number that deciding it takes in the current state."""
        body = command.body
        key = None
        if isinstance(body, MakeCharge):
            key = body.contract, body.partitions, body.plan, body.unit_records_max
        cached = None if again or key is None else self._prices.get(key)
        if cached is not None:
            return replace(command, prices=cached)
        collected = CollectedPrices()
        with self._turn():
            self._recorder.decide(Snapshot(self._reads), replace(command, prices=collected))
        prices = collected.prepared()
        if key is not None and prices.count:
            if len(self._prices) >= PRICES_MAX:
                self._prices.clear()
            self._prices[key] = prices
        return replace(command, prices=prices)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=WAIT_S):
            raise BookBusy(f"too many runs are being priced; waited {WAIT_S:.0f} seconds")
        try:
            yield
        finally:
            self._turns.release()


def _read(one: Submission) -> Prepared:
    """A command, or the outcome of what is none."""
    try:
        pending = one.pending
    except Malformed as error:
        return Outcome(Code.MALFORMED, _id_of(one.raw), None, {}, None, error.field, str(error), repeated=False)
    if pending.command.kind == "lapse" or pending.command.id.startswith(LAPSE_ID):
        field = "kind" if pending.command.kind == "lapse" else "id"
        detail = f"{field}: a lapse is the book's own entry; no client may send one, nor use its id"
        return Outcome(Code.NOT_AUTHORISED, pending.command.id, None, {}, None, field, detail, repeated=False)
    return pending


def _id_of(raw: bytes) -> str:
    with suppress(Malformed):
        value = c.parse(raw, 65_535)
        if isinstance(value, dict) and isinstance(value.get("id"), str):
            return str(value["id"])[:128]
    return ""
