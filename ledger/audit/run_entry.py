"""The entry of a run as verification reads it: its effect, the signed bytes, and the key of its cached decision.

Nearly every entry of a long log is of a run. Such an entry is not read strictly: the command that its signature is over
is written again from the entry's declared record, whose own bytes are known to be the entry's.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple

from msgspec import Raw, Struct

from ledger.commands.entry_reader import ChargeRecord, Read, RunEntry, read_run
from ledger.commands.runs.charge_entry import shared_terms
from ledger.wire.field_types import constant
from ledger.wire.records import write


class _SignedCommand(Struct, frozen=True):
    """A command of a run, of an entry that was read: what a signature is over, in canonical bytes."""

    actor: str
    body: Any
    id: str
    key_id: str
    kind: str
    v: Literal[1] = constant(1)


class SignedRun(NamedTuple):
    """A permitted command of a run.

    Attributes:
        alike: what entries of equal runs have in common: of charges, all but the id, clean room, deadline, time and
            signature; of other commands their kind and actor.
    """

    read: Read
    entry: RunEntry[Any]
    alike: Hashable

    @property
    def raw(self) -> bytes:
        """The canonical bytes of the command, which the signature is over; made when they are asked for."""
        entry = self.entry
        return write(_SignedCommand(entry.actor, entry.body.request, entry.id, entry.key_id, entry.kind))


_recorded_terms: Final[Callable[[ChargeRecord], tuple[object, ...]]] = attrgetter(
    *(name for name in ChargeRecord.__struct_fields__ if name != "request")
)


def read_signed(data: bytes) -> SignedRun | None:
    """Read the entry of a run; None of any other, and of one that only the strict reader or a full decision knows."""
    parsed = read_run(data)
    if parsed is None:
        return None
    read, entry = parsed
    body = entry.body
    alike: Hashable = entry.kind, entry.actor
    if isinstance(body, ChargeRecord):
        request = body.request
        if request.base or body.alerts is not None:
            return None
        # A Raw value is not hashed by its contents.
        recorded = tuple(bytes(term) if isinstance(term, Raw) else term for term in _recorded_terms(body))
        alike = entry.actor, entry.key_id, recorded, bytes(request.plan), shared_terms(request)
    return SignedRun(read, entry, alike)
