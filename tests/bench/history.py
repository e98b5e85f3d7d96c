"""A state with as many charges as a measurement asks for, laid by many organisations that became one."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from typing import Any, Final

from ledger.commands.apply import apply
from ledger.commands.context import PendingCommand
from ledger.commands.decide import decide
from ledger.commands.entry import Entry
from ledger.commands.registry import read_command
from ledger.domain.decision import Decision
from ledger.domain.memory_state import MemoryState
from ledger.wire import canonical_json as c
from tests.factories.documents import dense_plan
from tests.factories.memory import LOG_PUBLIC, PermissiveWorld, entry_of, ref_of

TINY: Final = dense_plan(1, "1000", "0.001")
"""A run of which hundreds of thousands fit."""
HUB: Final = "did:web:hub.example"
PARENTS_MAX: Final = 63
Sent = tuple[bytes, str]


class History(PermissiveWorld):
    """A world that keeps the entry it recorded last, and leaves out what only tests ask."""

    last: Entry | None = None

    def decide_pending(self, pending: PendingCommand, at: int | None = None) -> Decision:
        """Decide a command, and apply what is recorded."""
        now = self.clock() if at is None else at
        decided = decide(self.state, pending, now, self.index, self.gate, LOG_PUBLIC.x)
        self.last = entry_of(pending, decided, now)
        apply(self.state, self.last, self.index)
        self.index += 1
        return decided

    def lay(self, bank: str, how_many: int) -> None:
        """Charges of one bank: the first is decided, each other one applied from the entry it would have got."""
        first = f"run-{self.index}"
        assert self.decide_charge(first, bank, self.contract(bank), ("q4",), TINY).code.word == "pending"
        assert self.last is not None
        recorded: Any = self.last.body
        for number in range(how_many - 1):
            name = f"{first}-{number}"
            request = {**recorded["request"], "clean_room": room_of(name, recorded["request"]["clean_room"])}
            apply(self.state, replace(self.last, id=name, body={**recorded, "request": request}), self.index)
            self.index += 1

    def sent(self, kind: str, name: str, actor: str, body: c.Object) -> Sent:
        """A command as it is sent."""
        requested = self.pending(kind, name, actor, body)
        return requested.raw, requested.signature

    def admission(self, name: str, contract: str) -> Sent:
        """One more run of the hub's."""
        assert self.last is not None
        body: c.Object = {
            "clean_room": room_of(
                name, {"sealing": {"crv": "X25519", "kty": "OKP", "x": c.base64url(bytes([9]) * 32)}}
            ),
            "contract": contract,
            "deadline": self.clock() + 1,
            "partitions": [ref_of("q4")],
            "plan": TINY,
        }
        return self.sent("charge", name, HUB, body)

    def answer(self, state: MemoryState, sent: Sent) -> str:
        """What the core does with a command: read, verify, decide, write the entry, apply."""
        requested = read_command(*sent)
        decided = decide(state, requested, self.clock(), self.index, self.gate, LOG_PUBLIC.x)
        entry = entry_of(requested, decided, self.clock())
        entry.to_bytes()
        apply(state, entry, self.index)
        return decided.code.word


def room_of(name: str, other: dict[str, Any]) -> c.Object:
    """A clean room whose signing key is told by its name alone; it signs nothing here."""
    x = c.base64url(hashlib.sha256(name.encode()).digest())
    return {**other, "signing": {"crv": "Ed25519", "kty": "OKP", "x": x}}


def opened() -> History:
    """Everyone registered, and one partition with a large budget."""
    world = History.settled()
    assert world.open("q4").code.word == "permitted"
    assert world.register(HUB, "TDC").code.word == "permitted"
    return world


def banks(world: PermissiveWorld, how_many: int) -> tuple[str, ...]:
    """Organisations, registered."""
    names = tuple(f"did:web:branch-{number}.example" for number in range(how_many))
    assert all(world.register(name, "TDC").code.word == "permitted" for name in names)
    return names


@cache
def merged(charges: int, organisations: int) -> tuple[History, str]:
    """So many charges of so many organisations, which then became one, the hub; and the hub's contract."""
    world = opened()
    names = banks(world, organisations)
    laying = names[: min(organisations, charges, PARENTS_MAX)]
    for place, name in enumerate(laying):
        world.lay(name, (charges + place) // len(laying))
    for start in range(0, organisations, PARENTS_MAX):
        assert world.merge(HUB, (HUB, *names[start : start + PARENTS_MAX])).code.word == "permitted"
    assert len(world.state.charges) == charges
    assert len({one.node for did, one in world.state.organisations.items() if did in {HUB, *names}}) == 1
    return world, world.contract(HUB)
