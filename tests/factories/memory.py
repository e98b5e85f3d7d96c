"""A world whose book lies in memory: each command is decided on the current state, and what is recorded is applied.

It goes the straight path, as replay does: ``decide``, the entry's own bytes, ``apply``; nothing is cached and nothing
is done ahead. So it is the model of what the book's writer must answer and record.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import fields
from fractions import Fraction
from typing import Any, Final, Self

from client.keys.signer import Signer
from ledger.book.batch import LAPSE_ID, outcome_of
from ledger.book.submitted_command import Outcome, Submission
from ledger.commands.apply import apply
from ledger.commands.context import PendingCommand
from ledger.commands.decide import decide, verify_signer
from ledger.commands.entry import Entry
from ledger.commands.registry import read_command
from ledger.crypto.detached_jws import public_key
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Facts
from ledger.domain.gate import Caps, Check, Header, Request, Verdict
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import ChargeState, Code
from ledger.mechanisms.loss import Loss
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.decisions.gate import gate as policy_gate
from tests.factories.documents import DIGITS
from tests.factories.people import BANKS, DAY_MS, HOSPITAL, LOG_KEY, SRO, Clock, short_name
from tests.factories.world import World

FOUR_BANKS: Final = {SRO: "SRO", HOSPITAL: "TDP", **dict.fromkeys(BANKS, "TDC")}
EVIDENCE: Final = b"evidence"
LOG_PUBLIC: Final = public_key(LOG_KEY)


def ref_of(partition: str) -> str:
    """A partition of the one dataset."""
    return f"{DIGITS}/{partition}"


def snapshot(state: MemoryState) -> MemoryState:
    """The current state; every value in it is frozen, so the dictionaries are all that is copied."""
    return MemoryState(**{one.name: dict(getattr(state, one.name)) for one in fields(state)})


class MemoryWorld(World):
    """A world whose book lies in memory, under the policy's gate; no entry is written but into a list.

    Attributes:
        log: the bytes of every entry that was appended.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        super().__init__(clock)
        self.state = MemoryState()
        self.log: list[bytes] = []
        self.index = 0
        self._entries: dict[str, tuple[int, Entry]] = {}
        self._last = 0

    def fork(self) -> Self:
        """A world of its own that begins where this one is."""
        other = copy.copy(self)
        other.state, other.clock = snapshot(self.state), Clock(self.clock.now)
        other.log, other._entries, other.contracts = [*self.log], {**self._entries}, {**self.contracts}  # noqa: SLF001 - its own class
        return other

    def gate(self, request: Request, facts: Facts) -> Verdict:
        """The policy's."""
        return policy_gate(request, facts)

    def read(self) -> AbstractContextManager[Facts]:
        """The current state."""
        return nullcontext(self.state)

    def put(self, data: bytes, signer: Signer) -> str:
        """Store bytes beside the log; their digest."""
        del signer
        self.state.documents = {**self.state.documents, c.digest(data): data}
        return c.digest(data)

    def recorded(self, name: str) -> bool:
        """Whether a command of this id is an entry."""
        return name in self._entries

    def submit(self, *submissions: Submission) -> list[Outcome]:
        """Answer several commands as a book does: what is past its deadline lapses first, a repeated id is known."""
        self.lapse_due()
        return [self._answer(one) for one in submissions]

    def lapse_due(self) -> None:
        """Settle every charge whose deadline has passed, the earliest deadline first."""
        now = max(self.clock(), self._last)
        due = [one for one in self.state.charges.values() if one.state is ChargeState.PENDING and one.deadline < now]
        for one in sorted(due, key=lambda charge: (charge.deadline, charge.id)):
            name = f"{LAPSE_ID}{c.digest(one.id.encode())[:32]}"
            lapse = self.pending("lapse", name, LEDGER_ACTOR, {"charge": one.id}, by="log")
            assert self.decide_pending(lapse, now).code.recorded

    def _answer(self, submission: Submission) -> Outcome:
        try:
            pending = read_command(submission.raw, submission.signature)
        except Malformed as error:
            return Outcome(
                Code.MALFORMED, _id_of(submission.raw), None, {}, None, error.field, str(error), repeated=False
            )
        name = pending.command.id
        if pending.command.kind == "lapse" or name.startswith(LAPSE_ID):
            field = "kind" if pending.command.kind == "lapse" else "id"
            return outcome_of(pending, Decision(Code.NOT_AUTHORISED, field=field))
        if name in self._entries:
            return self._repeated(pending, *self._entries[name])
        index, decided = self.index, self.decide_pending(pending, max(self.clock(), self._last))
        if self.index == index:
            return outcome_of(pending, decided)
        body = self._entries[name][1].body
        field, detail, answered = decided.field, decided.detail, decided.answered
        return Outcome(decided.code, name, index, body, None, field, detail, repeated=False, answered=answered)

    def _repeated(self, pending: PendingCommand, index: int, entry: Entry) -> Outcome:
        try:
            verify_signer(self.state, pending, LOG_PUBLIC.x)
        except Rejected as refusal:
            return outcome_of(pending, refusal.decided)
        if entry.command.to_bytes() != pending.raw:
            return outcome_of(pending, Decision(Code.ID_REUSED, field="id"))
        detail = str(entry.body.get("detail", ""))
        return Outcome(entry.code, entry.id, index, entry.body, None, "", detail, repeated=True)

    def pending(self, kind: str, name: str, actor: str, body: c.Object, by: str = "") -> PendingCommand:
        """A command signed by the key called ``by``, or by its actor's own."""
        sent = self.command(actor, kind, body, name, self.signers[by or actor])
        return read_command(sent.raw, sent.signature)

    def decide(self, kind: str, name: str, actor: str, body: c.Object, by: str = "") -> Decision:
        """Decide a command, and apply what is recorded; nothing lapses by itself."""
        return self.decide_pending(self.pending(kind, name, actor, body, by))

    def decide_pending(self, pending: PendingCommand, at: int | None = None) -> Decision:
        """Decide a command at a time, or now, and apply what is recorded, through the entry's own bytes."""
        before, now = snapshot(self.state), self.clock() if at is None else at
        decided = decide(self.state, pending, now, self.index, self.gate, LOG_PUBLIC.x)
        assert self.state == before, "deciding changes nothing"
        if decided.code.recorded:
            try:
                data = entry_of(pending, decided, now).to_bytes()
            except Malformed as error:
                return Decision(Code.MALFORMED, str(error))
            self.adopt([data])
            assert not decided.code.refused or self.state == before, "a refusal changes nothing"
        return decided

    def register(self, did: str, role: str) -> Decision:
        """An organisation with its key."""
        return self.decide_pending(self.registration(did, role).pending)

    def open(self, name: str, epsilon: str = "120", **changes: c.Json) -> Decision:
        """A partition with a budget."""
        return self.decide_pending(self.partition(name, epsilon=epsilon, **changes).pending)

    def decide_charge(
        self,
        name: str,
        bank: str,
        contract: str,
        partitions: tuple[str, ...],
        plan: c.Object,
        **changes: c.Json,
    ) -> Decision:
        """A run's charge, for a clean room whose keys are named after it."""
        refs, deadline = tuple(ref_of(one) for one in partitions), self.clock.now + DAY_MS
        named: Any = {"contract": contract, **changes}
        return self.decide_pending(self.charge(name, bank, plan, deadline=deadline, partitions=refs, **named).pending)

    def post(self, name: str, steps: int) -> Decision:
        """What ran, on the clean room's word."""
        return self.decide_pending(self.settle(name, steps, self.state.charges[name].actor).pending)

    def decide_void(self, name: str) -> Decision:
        """Settled for nothing, by its author."""
        return self.decide_pending(self.void(name, self.state.charges[name].actor).pending)

    def decide_lapse(self, name: str) -> Decision:
        """The book's own command."""
        return self.decide("lapse", f"lapse-{name}", LEDGER_ACTOR, {"charge": name}, by="log")

    def merge(self, into: str, parents: tuple[str, ...]) -> Decision:
        """Organisations become one."""
        body: c.Object = {"organisation": into, "parents": [*parents]}
        return self.decide("merger", f"merger-{self.index}", SRO, body)

    def exposure(self, partition: str, holder: str) -> tuple[Loss, Loss] | None:
        """What an account has posted and pending, None where it is absent."""
        account = self.state.accounts.get((ref_of(partition), holder))
        return (account.posted, account.pending) if account else None

    def adopt(self, entries: Iterable[bytes]) -> None:
        """Append entries as they are."""
        for data in entries:
            entry = Entry.parse(data)
            apply(self.state, entry, self.index)
            self._entries[entry.id] = self.index, entry
            self.log.append(data)
            self.index, self._last = self.index + 1, entry.time_after


def entry_of(pending: PendingCommand, decided: Decision, now: int) -> Entry:
    """The entry of what was decided."""
    command = pending.command
    body: c.Object = {**decided.derived, "outcome": decided.code.word, "request": command.body}
    if decided.code.refused:
        body["detail"] = decided.detail[:4_000]
    return Entry(command.kind, command.id, now, command.actor, command.key_id, body, pending.signature)


def _id_of(raw: bytes) -> str:
    with suppress(Malformed):
        value = c.parse(raw, 65_535)
        if isinstance(value, dict) and isinstance(value.get("id"), str):
            return str(value["id"])[:128]
    return ""


class PermissiveWorld(MemoryWorld):
    """A world in memory whose gate permits whatever the ledger's own arithmetic and order allow.

    Attributes:
        everyone: whether the global account is capped, at the partition's own ε.
        lineage: the ε of each lineage's cap.
        deny: codes of checks the gate fails on purpose.
    """

    everyone = True
    lineage = Fraction(120)
    deny: tuple[str, ...] = ()

    def gate(self, request: Request, facts: Facts) -> Verdict:
        """Permit; read the few fields of a document; cap as the world says."""
        checks = tuple(Check(code, passed=False, text=f"{code} on purpose") for code in self.deny)
        body: Any = request.command.body
        header: Header | None = None
        refs: tuple[tuple[str, Fraction], ...] = ()
        if "document" in body:
            header = Header(**json.loads(facts.documents[body["document"]]))
        if request.command.kind == "partition":
            refs = ((ref_of(body["partition"]), Fraction(body["epsilon"])),)
        if request.command.kind == "charge":
            refs = tuple((ref, facts.partitions[ref].epsilon) for ref in body["partitions"])
        caps = tuple((ref, Caps(epsilon if self.everyone else None, self.lineage)) for ref, epsilon in refs)
        return Verdict(permit=not checks, checks=checks, header=header, caps=caps)

    def enter(self, kind: str, name: str, actor: str, **fields: object) -> str:
        """Store a document with its signature and enter it; its digest."""
        data = json.dumps({"kind": kind, "id": name, "version": 1, **fields}).encode()
        document, signature = self.store(self.signers[actor], data)
        body: c.Object = {"document": document, "signatures": [signature]}
        assert not self.decide(kind, f"enter-{name}", actor, body).code.refused
        return document

    def contract(self, bank: str) -> str:
        """A contract of one bank; its digest."""
        return self.enter("contract", f"contract-{short_name(bank)}", bank, consumer=bank, providers=[HOSPITAL])

    @classmethod
    def settled(cls) -> Self:
        """Everyone registered, one dataset, no partition."""
        world = cls()
        for did, role in FOUR_BANKS.items():
            assert not world.register(did, role).code.refused
        world.enter("dataset", "digits", HOSPITAL, domain="health")
        world.put(EVIDENCE, world.signers[HOSPITAL])
        return world
