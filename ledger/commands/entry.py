"""Entries: the permanent record of what happened.

    {"actor":"did:web:bank-a.example","body":{"outcome":"pending","request":{...},...},"id":"run-1",
     "key_id":"8kPT...","kind":"charge","signature":"eyJh...","time":1795233600000,"v":1}

An entry is the command as it was signed (``body.request``), what was decided (``body.outcome``) and what the
decision fixed (prices, limits, lineage). Its bytes are RFC 8785 and never more than 65,535.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from msgspec import Raw, Struct

from ledger.commands.command_kind import Recorded
from ledger.commands.context import PendingCommand
from ledger.commands.governance.clock_correction import CLOCK_CORRECTION
from ledger.commands.registry import KINDS, read_body
from ledger.crypto.detached_jws import SIGNATURE_BYTES_MAX
from ledger.domain.command import Command
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from ledger.wire.field_types import TIME_MAX
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, write

ENTRY_BYTES_MAX: Final = 65_535
"""A tile of entries stores each with a 16-bit length (C2SP tlog-tiles)."""


class _Written(Struct, frozen=True):
    """An entry whose body is canonical bytes already, with nothing left to check."""

    actor: str
    body: Raw
    id: str
    key_id: str
    kind: str
    signature: str
    time: int
    v: Literal[1] = 1


_OUTCOMES: Final = tuple(code.word for code in Code if code.recorded)


@dataclass(frozen=True)
class Entry:
    """One entry; ``time`` is Unix milliseconds by the book's clock, never before the last entry's ``time_after``."""

    kind: str
    id: str
    time: int
    actor: str
    key_id: str
    body: c.Object
    signature: str

    @property
    def request(self) -> c.Object:
        """The body of the command. Raises: Malformed."""
        request = self.body["request"]
        if not isinstance(request, dict):
            raise Malformed("body.request", "must be an object")
        return request

    @property
    def code(self) -> Code:
        """The outcome."""
        return Code.of(str(self.body["outcome"]))

    @cached_property
    def command(self) -> Command:
        """The command, whose canonical bytes the signature covers."""
        return Command(self.kind, self.id, self.actor, self.key_id, self.request)

    @cached_property
    def command_body(self) -> Record:
        """The typed body of the command. Raises: Malformed."""
        return read_body(self.command)

    @property
    def time_after(self) -> int:
        """The least time (ms) of the entry after it: its own, or the time that a clock correction sets."""
        if self.kind == CLOCK_CORRECTION.name and not self.code.refused:
            return CLOCK_CORRECTION.read_body(self.command).time
        return self.time

    def recorded(self) -> Recorded[Record]:
        """Its effect. Raises: Malformed."""
        return Recorded(self.id, self.actor, self.time, self.code, self.command_body, self.body)

    @classmethod
    def parse(cls, data: bytes) -> Entry:
        """Read stored bytes; the exact inverse of :meth:`to_bytes`. Raises: Malformed."""
        names = ("actor", "body", "id", "key_id", "kind", "signature", "time", "v")
        members = c.fields(c.parse_canonical(data, ENTRY_BYTES_MAX), "", names)
        c.integer(members["v"], "v", 1, 1)
        body = members["body"]
        if not isinstance(body, dict) or not isinstance(body.get("request"), dict):
            raise Malformed("body.request", "must be an object")
        c.one_of(body.get("outcome"), "body.outcome", _OUTCOMES)
        return cls(
            kind=c.one_of(members["kind"], "kind", tuple(KINDS)),
            id=c.name(members["id"], "id"),
            time=c.integer(members["time"], "time", 0, TIME_MAX),
            actor=c.did(members["actor"], "actor"),
            key_id=c.key_bytes(members["key_id"], "key_id"),
            body=body,
            signature=c.string(members["signature"], "signature", SIGNATURE_BYTES_MAX),
        )

    def to_bytes(self) -> bytes:
        """The bytes that are stored and hashed. Raises: Malformed, beyond 65,535 bytes."""
        body = Raw(c.dump(self.body))
        return _bounded(_Written(self.actor, body, self.id, self.key_id, self.kind, self.signature, self.time))


def entry_bytes(pending: PendingCommand, time: int, body: bytes) -> bytes:
    """The bytes of a command's entry, whose body has these canonical bytes. Raises: Malformed, beyond 65,535 bytes."""
    one = pending.command
    return _bounded(_Written(one.actor, Raw(body), one.id, one.key_id, one.kind, pending.signature, time))


def _bounded(entry: _Written) -> bytes:
    data = write(entry)
    if len(data) > ENTRY_BYTES_MAX:
        raise Malformed("", f"an entry of {len(data)} bytes is more than the {ENTRY_BYTES_MAX} allowed")
    return data
