"""The entry of a run as verification reads it: what applying it takes, what is signed, and what makes it like another.

Nearly every entry of a long log is of a run. Such an entry is not taken apart into JSON: the command that its signature
is over is a part of its bytes, with the outcome and what was derived cut out.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, NamedTuple

from ledger.commands.entry_reader import ChargeRecord, Read, RunEntry, read_run

_CHARGE: Final = (
    b'{"actor":"%s","body":{"author":%d,%s"limits":%s,"outcome":"pending","plan":"%s","prices":%s,%s"request":'
)
_REFUND: Final = b'"refund":"%s",'
_GROUPS: Final = b'"groups":%s,'
_OTHER: Final = b'{"actor":"%s","body":{"outcome":"%s","request":'
_NAMED: Final = b',"id":"%s","key_id":"%s","kind":"%s",'
_REST: Final = b'}%s"signature":"%s","time":%d,"v":1}'
_COMMAND: Final = b'{"actor":"%s","body":%s%s"v":1}'


class SignedRun(NamedTuple):
    """A permitted command of a run.

    Attributes:
        raw: the canonical bytes of the command, which the signature is over.
        alike: what entries of runs alike have in common: of charges, all but the id, clean room, deadline, time and
            signature; of other commands their kind and actor.
    """

    read: Read
    entry: RunEntry[Any]
    raw: bytes
    alike: Hashable


def read_signed(data: bytes) -> SignedRun | None:
    """Read the entry of a run; None of any other, and of one that only the strict reader or a full decision knows."""
    found = read_run(data)
    if found is None:
        return None
    read, entry = found
    body, actor = entry.body, entry.actor.encode()
    alike: Hashable = entry.kind, entry.actor
    if isinstance(body, ChargeRecord):
        request = body.request
        if request.base or body.alerts is not None:
            return None
        refund = b"" if body.refund is None else _REFUND % body.refund.encode()
        groups = b"" if body.groups is None else _GROUPS % bytes(body.groups)
        front = _CHARGE % (actor, body.author, groups, body.limits, body.plan.encode(), body.prices, refund)
        alike = (
            front,
            entry.key_id,
            request.contract,
            request.partitions,
            bytes(request.plan),
            request.recipients,
            request.pipeline,
            request.unit_records_max,
            request.step_leases,
            request.ranges,
        )
    else:
        front = _OTHER % (actor, body.outcome.encode())
    named = _NAMED % (entry.id.encode(), entry.key_id.encode(), entry.kind.encode())
    rest = _REST % (named, entry.signature.encode(), entry.time)
    # A signature that JSON escapes is not spelled like this.
    if not (data.startswith(front) and data.endswith(rest)):
        return None
    return SignedRun(read, entry, _COMMAND % (actor, data[len(front) : -len(rest)], named), alike)
