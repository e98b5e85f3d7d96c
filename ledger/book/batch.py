"""Second stop of a command: decided in memory on the state at one index, and appended to one batch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final, NamedTuple

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger.accounts.pricing import UNPREPARED, PriceMissing
from ledger.book.call_queue import Call
from ledger.book.state.open_state import Changes
from ledger.book.submitted_command import BookPaused, Outcome
from ledger.book.wall_clock import WallClock
from ledger.book.writer_state import WriterState
from ledger.commands.apply import Effect, effect_of, run_effect
from ledger.commands.command_kind import Recorded
from ledger.commands.context import PendingCommand
from ledger.commands.decide import decide, verify_signer
from ledger.commands.entry import Entry, entry_bytes
from ledger.commands.entry_reader import Read
from ledger.commands.governance.state_statement import STATEMENT, StateStatement
from ledger.commands.registration.partition import OpenPartition
from ledger.commands.registry import KINDS, read_body
from ledger.commands.runs.key_release import ReleaseKey
from ledger.commands.runs.run_generation import TakeGeneration
from ledger.commands.runs.settlement import LAPSE, Post, Settle
from ledger.commands.runs.step_lease import LeaseSteps
from ledger.commands.signing_keys.log_key_rotation import (
    ROTATION_OF_LOG,
    LogKeyClaim,
    RevokedLogKey,
    RotateLogKey,
)
from ledger.commands.signing_keys.log_key_suspension import SUSPENSION_OF_LOG, SuspendLogKey
from ledger.commands.verdict_cache import VerdictCache
from ledger.crypto import detached_jws
from ledger.domain.command import LEDGER_ACTOR, Command
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Facts
from ledger.domain.gate import Gate
from ledger.domain.outcomes import ChargeState, Code
from ledger.log.checkpoint import LogSigner, receipt
from ledger.store.engine import Executor
from ledger.store.merkle_tables import Tree
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, write

LAPSES_MAX: Final = 1_000
"""Lapses that one batch records at most, so that a long absence does not make one endless transaction."""
_BARE: Final = {code: b'{"outcome":"%b"}' % code.word.encode() for code in Code if not code.refused}
"""The canonical bytes of a body that holds the outcome alone beside the request."""
_OF_ONE_CHARGE: Final = (Post, ReleaseKey, TakeGeneration, LeaseSteps, Settle)
"""Commands that name a charge. A tuple: a union in the condition would be built anew for every command."""
LAPSE_ID: Final = "lapse-"
"""How the ids of lapses begin, and no other."""


class Part(NamedTuple):
    """The commands of one call that a batch decided.

    Attributes:
        outcomes: of those commands, in order.
        missing: the next command of the call lacks a price.
    """

    call: Call
    outcomes: list[Outcome]
    missing: bool


class BatchReceipts:
    """What the receipts of a batch's entries are made of; it outlives the batch in their outcomes, and holds no more.

    Attributes:
        note: the signed checkpoint over everything, once the batch is closed.
    """

    def __init__(self, tree: Tree) -> None:
        """Receipts under the root of ``tree``, to which the batch appends."""
        self._tree = tree
        self.note: str | None = None

    def receipt(self, index: int) -> str:
        """The receipt (C2SP tlog-proof) of an entry under the batch's checkpoint, once the batch is closed."""
        assert self.note is not None, "every entry is under a checkpoint"
        return receipt(index, self._tree.proof(index), self.note)


class Batch:
    """The commands of one commit: each is decided in memory on the state that those before it left.

    Attributes:
        start: how many entries were there before.
        rows: the new entries, as rows of their table.
        count: how many commands were decided.
        repeated: the places of older entries that commands of this batch repeat.
        receipts: of its entries and of those that its commands repeat.
        changes: of the state, to be written for readers, once the batch is closed.
    """

    def __init__(  # noqa: PLR0913 - what a batch is decided by and on
        self,
        reads: Executor,
        recorder: Recorder,
        state: WriterState,
        verdicts: VerdictCache[Any],
        before: Batch | None = None,
        *,
        ends_suspension: bool = False,
    ) -> None:
        """Begin; charges whose deadline has passed lapse first.

        Args:
            reads: reads what the state does not hold, each query by itself.
            recorder: decides; its clock is read once.
            state: changes with every entry.
            verdicts: of the gate, kept from batch to batch.
            before: the batch before this one, if its commit may not be over.
            ends_suspension: the batch is to hold one entry, which may follow the suspension of the log's key.

        Raises:
            BookPaused: if the clock is not believed, or the log's key is suspended; nothing is recorded then.
        """
        if state.suspended is not None and not ends_suspension:
            raise BookPaused(state.suspended)
        self.state = state
        self.parts: list[Part] = []
        self.rows: list[tuple[int, str, str, int, bytes]] = []
        self.count = 0
        self.repeated: list[int] = []
        self.changes: Changes = {}
        self.tree = state.begin(reads)
        self.receipts = BatchReceipts(self.tree)
        self.start = self.tree.size
        self._recorder, self._verdicts = recorder, verdicts
        if before is not None:
            self.tree.know(before.tree.added)
        # One reading for the whole batch: a pause that begins later is of the next one.
        self._reading = recorder.now(0)
        self._now = max(self._reading, state.time)
        if state.suspended is not None:
            return
        for charge in state.due(self._now, LAPSES_MAX):
            self.record(recorder.lapse(charge))
        self._record_statement()

    def record_call(self, call: Call, commands: Iterable[PendingCommand | Outcome]) -> bool:
        """Record the first commands of a call in order; whether none lacks a price: no price is computed here."""
        outcomes: list[Outcome] = []
        missing = False
        for one in commands:
            try:
                outcomes.append(one if isinstance(one, Outcome) else self._record_in_time(one))
            except PriceMissing:
                missing = True
                break
        for _ in outcomes:
            call.waiting.popleft()
        call.unpriced = call.unpriced + 1 if missing and not outcomes else int(missing)
        self.count += len(outcomes)
        self.parts.append(Part(call, outcomes, missing))
        return not missing

    def _record_in_time(self, pending: PendingCommand) -> Outcome:
        """Record a command; the charge that it names lapses first if it is overdue: others may be before it in line."""
        body = pending.body
        if isinstance(body, _OF_ONE_CHARGE):
            charge = self.state.facts.charges.get(body.charge)
            if charge is not None and charge.state is ChargeState.PENDING and charge.deadline < self._now:
                self.record(self._recorder.lapse(charge.id))
        outcome = self.record(pending)
        self._record_statement()
        return outcome

    def _record_statement(self) -> None:
        """Record a statement of the state, if one is due and its root is known."""
        statement = self.state.statements.next(self._now)
        if statement is not None and self.record(self._recorder.statement(statement)).index is None:
            self.state.statements.give_up()

    def record(self, pending: PendingCommand) -> Outcome:
        """Decide a command, and append it if its outcome is recorded. Raises: PriceMissing, with nothing appended."""
        known = self._known(pending)
        if known is not None:
            return known
        if pending.prices is UNPREPARED and isinstance(pending.body, OpenPartition):
            # To compare its commitments with all before it takes seconds: a worker does, and what it counts is kept.
            raise PriceMissing
        index, now = self.tree.size, self._now
        decided = decide(
            self.state.facts, pending, now, index, self._recorder.gate, self._recorder.log_x, self._verdicts
        )
        if pending.nonce_once:
            decided = self._first_with_its_nonce(pending, decided)
        if not decided.code.recorded:
            return outcome_of(pending, decided)
        command, code = pending.command, decided.code
        body: c.Object = {**decided.derived, "outcome": code.word, "request": command.body}
        if code.refused:
            body["detail"] = decided.detail[:4_000]
        try:
            data = entry_bytes(pending, now, _body_bytes(pending, decided) or c.dump(body))
        except Malformed as error:
            return outcome_of(pending, Decision(Code.MALFORMED, str(error)))
        self._append(index, pending, Recorded(command.id, command.actor, now, code, pending.body, body), data)
        prove = partial(self.receipts.receipt, index)
        field, detail, answered = decided.field, decided.detail, decided.answered
        return Outcome(code, command.id, index, body, prove, field, detail, repeated=False, answered=answered)

    def _first_with_its_nonce(self, pending: PendingCommand, decided: Decision) -> Decision:
        """The decision, if no entry holds the nonce of a command that may be the only one with it; else a conflict."""
        nonce = getattr(pending.body, "nonce", None)
        used = None if nonce is None else self.state.nonces.entry_with(nonce)
        if used is None or not decided.code.recorded:
            return decided
        return Decision(Code.CONFLICT, f"entry {used} has used the nonce up: request another", "body.nonce")

    def _append(self, index: int, pending: PendingCommand, recorded: Recorded[Record], data: bytes) -> None:
        command, time = pending.command, recorded.time
        name, kind = command.id, command.kind
        effect: Effect
        if KINDS[kind].effect is None:
            # A verdict may rest on anything but runs.
            self._verdicts.drop()
            entry = Entry(kind, name, time, command.actor, command.key_id, recorded.derived, pending.signature)
            effect = effect_of(entry)
        else:
            effect = run_effect(kind, recorded)
        self.tree.add(self.state.append(Read(name, kind, time, effect), data))
        self.rows.append((index, name, kind, time, data))
        self._now = max(self._reading, self.state.time)

    def _known(self, pending: PendingCommand) -> Outcome | None:
        """The outcome that this id has already (it is an idempotency key): for the same command only."""
        name = pending.command.id
        found = self.state.recorded(name)
        if found is None:
            return None
        index, entry = found
        try:
            verify_signer(self.state.facts, pending, self._recorder.log_x)
        except Rejected as refusal:
            return outcome_of(pending, refusal.decided)
        if entry.command != pending.command:
            return outcome_of(pending, Decision(Code.ID_REUSED, f"the id {name} was used for another command", "id"))
        detail = str(entry.body.get("detail", ""))
        self.repeated.append(index)
        prove = partial(self.receipts.receipt, index)
        return Outcome(entry.code, name, index, entry.body, prove, "", detail, repeated=True)


def _body_bytes(pending: PendingCommand, decided: Decision) -> bytes:
    """The canonical bytes of an entry's body from those of its parts; empty where these are not known."""
    spelled = decided.spelled or (b"" if decided.derived else _BARE.get(decided.code, b""))
    # The request comes last: the name is the greatest of those whose bytes are known.
    return b'%b,"request":%b}' % (spelled[:-1], pending.request) if spelled and pending.request else b""


def outcome_of(pending: PendingCommand, decided: Decision) -> Outcome:
    """The outcome of a command that is not recorded."""
    name = pending.command.id
    derived, field, detail, answered = decided.derived, decided.field, decided.detail, decided.answered
    return Outcome(decided.code, name, None, derived, None, field, detail, repeated=False, answered=answered)


class Recorder:
    """What decides for a book, the same in every batch: the gate, the clock and the log's key."""

    def __init__(self, gate: Gate, clock: WallClock, signer: LogSigner) -> None:
        """See :meth:`ledger.book.book.Book.open`."""
        self.gate, self.clock, self.signer = gate, clock, signer
        self._public = detached_jws.public_key(signer.private)
        self.log_x = self._public.x

    def now(self, last: int) -> int:
        """The time of the next entry (ms): the clock's, never before the last entry's, ``last``. Raises: BookPaused."""
        return self.clock.now(last)

    def decide(self, state: Snapshot, pending: PendingCommand, shown: Facts | None = None) -> Decision:
        """Decide as the next entry would be decided, for a quote or to compute prices; changes nothing.

        Args:
            shown: the state as the caller may see it, if it is another.

        Raises:
            BookPaused: if the clock is not believed.
        """
        return decide(shown or state, pending, self.now(state.time), state.size, self.gate, self.log_x)

    def lapse(self, charge: str) -> PendingCommand:
        """The book's own command for a charge whose deadline has passed."""
        return self._own(LAPSE.name, f"{LAPSE_ID}{c.digest(charge.encode())[:32]}", {"charge": charge})

    def statement(self, stated: StateStatement) -> PendingCommand:
        """The book's own command for a statement of the state; no one can foresee its id."""
        return self._own(STATEMENT.name, f"statement-{c.digest(write(stated))[:32]}", stated.to_json())

    def log_key_rotation(
        self, new_key: Ed25519PrivateKey, overlap: int | None = None, revokes: RevokedLogKey | None = None
    ) -> PendingCommand:
        """The book's own command that makes another key the log's, with the new key's own signature."""
        claim = LogKeyClaim(detached_jws.public_key(new_key), self._public)
        body = RotateLogKey(claim.key, detached_jws.sign(new_key, write(claim)), claim.retires, overlap, revokes)
        return self._own(ROTATION_OF_LOG.name, f"log-key-rotation-{c.digest(write(claim))[:32]}", body.to_json())

    def log_key_suspension(self, name: str, reason: str, *, suspended: bool) -> PendingCommand:
        """The book's own command that suspends or resumes its key; ``name`` is its id, which no one can foresee."""
        return self._own(SUSPENSION_OF_LOG.name, name, SuspendLogKey(self._public, reason, suspended).to_json())

    def _own(self, kind: str, name: str, body: c.Object) -> PendingCommand:
        command = Command(kind, name, LEDGER_ACTOR, self._public.thumbprint, body)
        raw = command.to_bytes()
        return PendingCommand(command, read_body(command), raw, detached_jws.sign(self.signer.private, raw))
