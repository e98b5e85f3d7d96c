"""Reading stored entries to apply them: the entries of runs by their declared records, all others strictly.

Nearly every entry of a long book is a charge or its settlement. Such an entry is decoded by its declared record and
accepted if it is written as the same bytes again; whatever is not, for whatever reason, is left to the strict reader.
What a charge's entry records beside its request (prices, limits, alerts) repeats from entry to entry: its bytes are
checked once and cached.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple

from msgspec import Raw

from ledger.commands.apply import Effect, effect_of
from ledger.commands.entry import ENTRY_BYTES_MAX, Entry
from ledger.commands.runs.charge import Charged, MakeCharge, charged
from ledger.commands.runs.key_release import Released, ReleaseKey
from ledger.commands.runs.settlement import Post, Settle, Settled
from ledger.crypto.detached_jws import SIGNATURE_BYTES_MAX
from ledger.mechanisms.plan import RunPlan, parse_plan
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, KeyBytes, Name, Sha256, Time, between, constant, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, read_canonical


class Read(NamedTuple):
    """An entry's own id, kind and time, and what applying it takes."""

    id: str
    kind: str
    time: int
    effect: Effect


class RunEntry(Record, frozen=True, kw_only=True):
    """What the entries of runs have in common."""

    actor: Did
    id: Name
    key_id: KeyBytes
    signature: Annotated[str, text(SIGNATURE_BYTES_MAX)]
    time: Time
    v: Literal[1] = constant(1)


class ChargeRequest(MakeCharge, frozen=True, kw_only=True):
    """The request of a charge, its plan in bytes: plans repeat, and each is read once."""

    plan: Raw  # type: ignore[assignment] # read by _plan


class ChargeRecord(Record, frozen=True):
    """A pending charge: the node of its author, the limits it stays within, its price, and its request."""

    author: Annotated[int, between(0, c.INTEGER_MAX)]
    limits: Raw
    outcome: Literal["pending"]
    plan: Sha256
    prices: Raw
    request: ChargeRequest
    alerts: Raw | None = None


class ChargeEntry(RunEntry, frozen=True, kw_only=True, tag_field="kind", tag="charge"):
    """The entry of a charge."""

    body: ChargeRecord


class KeyReleaseRecord(Record, frozen=True):
    """A key release that was permitted."""

    outcome: Literal["permitted"]
    request: ReleaseKey


class KeyReleaseEntry(RunEntry, frozen=True, kw_only=True, tag_field="kind", tag="key_release"):
    """The entry of a key release."""

    body: KeyReleaseRecord


class PostRecord(Record, frozen=True):
    """A charge posted for a count of steps."""

    outcome: Literal["posted"]
    request: Post


class PostEntry(RunEntry, frozen=True, kw_only=True, tag_field="kind", tag="post"):
    """The entry of a post."""

    body: PostRecord


class SettleRecord(Record, frozen=True):
    """A charge voided, or posted in full."""

    outcome: Literal["posted", "voided"]
    request: Settle


class VoidEntry(RunEntry, frozen=True, kw_only=True, tag_field="kind", tag="void"):
    """The entry of a void."""

    body: SettleRecord


class LapseEntry(RunEntry, frozen=True, kw_only=True, tag_field="kind", tag="lapse"):
    """The entry of a lapse."""

    body: SettleRecord


_RECORDS: Final[dict[bytes, type[RunEntry]]] = {
    b"charge": ChargeEntry,
    b"key_release": KeyReleaseEntry,
    b"post": PostEntry,
    b"void": VoidEntry,
    b"lapse": LapseEntry,
}
_KIND: Final = b'"kind":"'


def read_entry(data: bytes) -> Read:
    """Read the stored bytes of an entry, to apply it. Raises: Malformed."""
    if (found := _read_run(data)) is not None:
        return found
    entry = Entry.parse(data)
    return Read(entry.id, entry.kind, entry.time, effect_of(entry))


def _read_run(data: bytes) -> Read | None:
    """The entry of a run, None if it is another or the strict reader has to look at it."""
    # No quote stands bare inside a text, and after the kind there is no object: it is the last of that name.
    at = data.rfind(_KIND) + len(_KIND)
    kind = data[at : data.find(b'"', at)]
    form = _RECORDS.get(kind)
    entry = None if form is None or len(data) > ENTRY_BYTES_MAX else read_canonical(form, data)
    try:
        match entry:
            case ChargeEntry(body=body):
                applied: Effect = _charged(entry, body)
            case PostEntry(body=body):
                applied = Settled(body.request.charge, body.request.steps, body.outcome)
            case VoidEntry(body=settled) | LapseEntry(body=settled):
                applied = Settled(settled.request.charge, None, settled.outcome)
            case KeyReleaseEntry(body=released):
                applied = Released(entry.id, released.request.charge)
            case _:
                return None
    except (Malformed, KeyError, AttributeError, TypeError):
        return None
    return Read(entry.id, kind.decode(), entry.time, applied)


def _charged(entry: ChargeEntry, body: ChargeRecord) -> Charged:
    _recorded(bytes(body.limits))
    if body.alerts is not None:
        _recorded(bytes(body.alerts))
    prices = _prices(bytes(body.prices), body.request.partitions)
    return charged(entry.id, entry.actor, body.author, body.request, _plan(bytes(body.request.plan)), prices)


@lru_cache(maxsize=4_096)
def _recorded(data: bytes) -> Any:  # noqa: ANN401 - JSON as recorded
    """A value that an entry's body records, in canonical bytes. Raises: Malformed."""
    # Two levels around it, as in the entry: what is allowed of depth is counted from there.
    whole: Any = c.parse_canonical(b'{"body":{"value":%s}}' % data, ENTRY_BYTES_MAX)
    return whole["body"]["value"]


@lru_cache(maxsize=4_096)
def _plan(data: bytes) -> RunPlan:
    return parse_plan(c.parse_canonical(data, ENTRY_BYTES_MAX))


@lru_cache(maxsize=4_096)
def _prices(data: bytes, partitions: tuple[str, ...]) -> tuple[tuple[str, bytes], ...]:
    recorded = _recorded(data)
    return tuple((ref, c.spelled(recorded[ref])) for ref in partitions)
