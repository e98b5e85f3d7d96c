"""A book without its storage: each command is decided on what stands, and what is recorded is applied.

The gate is an argument of the book; this one permits whatever the ledger's own arithmetic and order allow.
"""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, Final

from client.keys.signer import Signer
from ledger.commands.apply import apply
from ledger.commands.context import PendingCommand
from ledger.commands.decide import LEDGER_ACTOR, decide
from ledger.commands.entry import Entry
from ledger.commands.registry import read_command
from ledger.crypto.detached_jws import public_key, sign
from ledger.domain.command import Command
from ledger.domain.decision import Decision
from ledger.domain.facts import Facts
from ledger.domain.gate import Caps, Check, Header, Request, Verdict
from ledger.domain.memory_state import MemoryState
from ledger.mechanisms.loss import Loss
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate as policy_gate
from tests.factories.documents import DIGITS, NOW, partition
from tests.factories.driver import FactsDriver, Outcome, signer_of
from tests.factories.people import (
    BANKS,
    DAY_MS,
    HOSPITAL,
    LOG_KEY,
    SRO,
    CleanRoom,
    Clock,
    private_key,
    registration,
    short_name,
)

ROLES: Final = {SRO: "SRO", HOSPITAL: "TDP", **dict.fromkeys(BANKS, "TDC")}
START: Final = 1_800_000_000_000
MODEL: Final = "ab" * 32
EVIDENCE: Final = b"evidence"
LOG_PUBLIC: Final = public_key(LOG_KEY)


def ref_of(partition: str) -> str:
    """A partition of the one dataset."""
    return f"{DIGITS}/{partition}"


def snapshot(state: MemoryState) -> MemoryState:
    """What stands now; every value in it is frozen, so the dictionaries are all that is copied."""
    return MemoryState(**{one.name: dict(getattr(state, one.name)) for one in fields(state)})


@dataclass
class World:
    """What stands, and when it is.

    Attributes:
        everyone: whether the global account is capped, at the partition's own ε.
        lineage: the ε of each lineage's cap.
        deny: codes of checks the gate fails on purpose.
    """

    state: MemoryState = field(default_factory=MemoryState)
    index: int = 0
    now: int = START
    everyone: bool = True
    lineage: Fraction = Fraction(120)
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

    def command(self, kind: str, name: str, actor: str, body: c.Object, by: str = "") -> PendingCommand:
        """A command signed by the key called ``by``, or by its actor's own."""
        key = private_key(by or actor)
        raw = Command(kind, name, actor, public_key(key).thumbprint, body).to_bytes()
        return read_command(raw, sign(key, raw))

    def submit(self, kind: str, name: str, actor: str, body: c.Object, by: str = "") -> Decision:
        """Decide, and apply what is recorded, through the entry's own bytes."""
        return self.send(self.command(kind, name, actor, body, by))

    def send(self, asked: PendingCommand) -> Decision:
        """Decide a command, and apply what is recorded."""
        before = snapshot(self.state)
        decided = decide(self.state, asked, self.now, self.index, self.gate, LOG_PUBLIC.x)
        assert self.state == before, "deciding changes nothing"
        if decided.code.recorded:
            command = asked.command
            body: c.Object = {**decided.derived, "outcome": decided.code.word, "request": command.body}
            entry = Entry(command.kind, command.id, self.now, command.actor, command.key_id, body, asked.signature)
            apply(self.state, Entry.parse(entry.to_bytes()), self.index)
            self.index += 1
            assert not decided.code.refused or self.state == before, "a refusal changes nothing"
        return decided

    def document(self, kind: str, name: str, actor: str, **fields: object) -> str:
        """Store a document with its signature and enter it; its digest."""
        data = json.dumps({"kind": kind, "id": name, "version": 1, **fields}).encode()
        signature = sign(private_key(actor), data).encode()
        self.state.documents = {**self.state.documents, c.digest(data): data}
        self.state.documents = {**self.state.documents, c.digest(signature): signature}
        body: c.Object = {"document": c.digest(data), "signatures": [c.digest(signature)]}
        assert not self.submit(kind, f"enter-{name}", actor, body).code.refused
        return c.digest(data)

    def register(self, did: str, role: str) -> Decision:
        """An organisation with its key."""
        body = registration(did, Signer(private_key(did)), role)
        return self.submit("organisation", f"register-{short_name(did)}", SRO, body)

    def open(self, name: str, epsilon: str = "120", **changes: c.Json) -> Decision:
        """A partition with a budget."""
        body = partition(name, epsilon=epsilon, **changes)
        return self.submit("partition", f"open-{name}", HOSPITAL, body)

    def contract(self, bank: str) -> str:
        """A contract of one bank; its digest."""
        return self.document("contract", f"contract-{short_name(bank)}", bank, consumer=bank, providers=[HOSPITAL])

    def charge(  # noqa: PLR0913, PLR0917 - a charge names that much
        self,
        name: str,
        bank: str,
        contract: str,
        partitions: tuple[str, ...],
        plan: c.Object,
        by: str = "",
        **changes: c.Json,
    ) -> Decision:
        """A run's charge, for a clean room whose keys are named after it."""
        body: c.Object = {
            "clean_room": CleanRoom(name).to_json(),
            "contract": contract,
            "deadline": self.now + DAY_MS,
            "partitions": [ref_of(one) for one in partitions],
            "plan": plan,
            **changes,
        }
        return self.submit("charge", name, bank, body, by)

    def post(self, name: str, steps: int) -> Decision:
        """What ran, on the clean room's word."""
        actor = self.state.charges[name].actor
        return self.submit("post", f"post-{name}", actor, {"charge": name, "steps": steps}, by=f"room {name}")

    def void(self, name: str) -> Decision:
        """Settled for nothing, by its author."""
        return self.submit("void", f"void-{name}", self.state.charges[name].actor, {"charge": name})

    def lapse(self, name: str) -> Decision:
        """The book's own command."""
        return self.submit("lapse", f"lapse-{name}", LEDGER_ACTOR, {"charge": name}, by="log")

    def merge(self, into: str, parents: tuple[str, ...]) -> Decision:
        """Organisations become one."""
        body: c.Object = {"organisation": into, "parents": list(parents)}
        return self.submit("merger", f"merger-{self.index}", SRO, body)

    def exposure(self, partition: str, holder: str) -> tuple[Loss, Loss] | None:
        """What an account has posted and pending, None where it is absent."""
        account = self.state.accounts.get((ref_of(partition), holder))
        return (account.posted, account.pending) if account else None


def settled_world() -> World:
    """Everyone registered, one dataset, no partition."""
    world = World()
    for did, role in ROLES.items():
        assert not world.register(did, role).code.refused
    world.document("dataset", "digits", HOSPITAL, domain="health")
    world.state.documents = {**world.state.documents, c.digest(EVIDENCE): EVIDENCE}
    return world


class MemoryDriver(FactsDriver):
    """Drives the transitions alone, under the real gate."""

    def __init__(self) -> None:
        """Begin with nothing."""
        super().__init__(Clock(NOW))
        self._world = _UnderPolicy()
        self._recorded: set[str] = set()

    def facts(self) -> AbstractContextManager[Facts]:
        """The current facts."""
        return nullcontext(self._world.state)

    def send(self, signer: Signer, actor: str, kind: str, body: c.Object, name: str) -> Outcome:
        """Sign a command and decide it."""
        raw = Command(kind, name, actor, signer.key_id, body).to_bytes()
        self._world.now = self.clock()
        decision = self._world.send(read_command(raw, signer.sign(raw)))
        if decision.code.recorded:
            self._recorded.add(name)
        return Outcome(decision.code.word, decision.field, decision.detail)

    def store(self, signer: Signer, data: bytes) -> tuple[str, str]:
        """Keep both beside the state."""
        signature = signer.sign(data).encode()
        state = self._world.state
        state.documents = {**state.documents, **{c.digest(one): one for one in (data, signature)}}
        return c.digest(data), c.digest(signature)

    def recorded(self, name: str) -> bool:
        """Whether a command of this id is an entry."""
        return name in self._recorded

    def lapse(self, charge: str) -> Outcome:
        """The book's own command, which the transitions refuse before the deadline."""
        name = f"lapse-{self._world.index}"
        return self.send(signer_of("log"), LEDGER_ACTOR, "lapse", {"charge": charge}, name)


class _UnderPolicy(World):
    def gate(self, request: Request, facts: Facts) -> Verdict:
        return policy_gate(request, facts)
