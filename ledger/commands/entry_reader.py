"""Reading stored entries to apply them: the entries of runs by their declared records, all others strictly.

Nearly every entry of a long book is a charge or its settlement. Such an entry is decoded by its declared record and
accepted if it encodes to the same bytes again; the strict reader reads every other entry.
What a charge's entry records beside its request (prices, limits, alerts) repeats from entry to entry: its bytes are
checked once and cached.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from msgspec import Raw, Struct

from ledger.commands.apply import Effect, effect_of
from ledger.commands.entry import ENTRY_BYTES_MAX, Entry
from ledger.commands.runs.charge_entry import Charged, charged
from ledger.commands.runs.charge_reader import ChargeRequest, match_digest, matched_once, plan_of
from ledger.commands.runs.key_release import Released, ReleaseKey
from ledger.commands.runs.settlement import Post, Settle, Settled
from ledger.commands.runs.step_lease import Leased, LeaseSteps
from ledger.crypto.detached_jws import SIGNATURE_BYTES_MAX
from ledger.domain.gate import Refund
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, KeyBytes, Name, Time, between, constant, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import canonical_reader

B = TypeVar("B")
W = TypeVar("W")
R = TypeVar("R")


_did: Final = matched_once(Did)


class Read(Struct, frozen=True):
    """An entry's own id, kind and time, and its effect."""

    id: str
    kind: str
    time: int
    effect: Effect

    @property
    def time_after(self) -> int:
        """The least time (ms) of the entry after it."""
        return self.effect.time_after if isinstance(self.effect, Entry) else self.time


class _Plain(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The entry as a record, checked by its types only: entries are read often."""


class RunEntry(_Plain, Generic[B], frozen=True, kw_only=True):
    """The entry of a run; its actor, which repeats, is matched afterwards."""

    actor: str
    body: B
    id: Name
    key_id: KeyBytes
    kind: str
    signature: Annotated[str, text(SIGNATURE_BYTES_MAX)]
    time: Time
    v: Literal[1] = constant(1)


class Recorded(_Plain, Generic[W, R], frozen=True):
    """A permitted command of a run: its outcome, and its request."""

    outcome: W
    request: R


class ChargeRecord(_Plain, frozen=True):
    """A pending charge: the node of its author, the limits it stays within, its price, and its request."""

    author: Annotated[int, between(0, c.INTEGER_MAX)]
    limits: Raw
    outcome: Literal["pending"]
    plan: str
    prices: Raw
    request: ChargeRequest
    alerts: Raw | None = None
    refund: Refund | None = None
    groups: Raw | None = None


def _charge_effect(entry: RunEntry[ChargeRecord]) -> Charged:
    body, request = entry.body, entry.body.request
    match_digest(body.plan)
    request.match()
    _parse_recorded(bytes(body.limits))
    if body.alerts is not None:
        _parse_recorded(bytes(body.alerts))
    groups = None if body.groups is None else _parse_recorded(bytes(body.groups))
    prices = _prices(bytes(body.prices), None if request.ranges else request.partitions)
    return charged(entry.id, entry.actor, body.author, request, plan_of(request), prices, body.refund or "", groups)


def _release_effect(entry: RunEntry[Recorded[str, ReleaseKey]]) -> Released:
    return Released(entry.id, entry.body.request.charge)


def _lease_effect(entry: RunEntry[Recorded[str, LeaseSteps]]) -> Leased:
    request = entry.body.request
    return Leased(entry.id, request.charge, request.last, request.taken)


def _post_effect(entry: RunEntry[Recorded[str, Post]]) -> Settled:
    request = entry.body.request
    return Settled(request.charge, request.steps, entry.body.outcome, entry.id, request.model)


def _settle_effect(entry: RunEntry[Recorded[str, Settle]]) -> Settled:
    return Settled(entry.body.request.charge, None, entry.body.outcome)


_Closing = Recorded[Literal["posted", "voided"], Settle]
_READERS: Final[dict[str, tuple[Callable[[bytes], RunEntry[Any] | None], Callable[[Any], Effect]]]] = {
    "charge": (canonical_reader(RunEntry[ChargeRecord]), _charge_effect),
    "key_release": (canonical_reader(RunEntry[Recorded[Literal["permitted"], ReleaseKey]]), _release_effect),
    "step_lease": (canonical_reader(RunEntry[Recorded[Literal["permitted"], LeaseSteps]]), _lease_effect),
    "post": (canonical_reader(RunEntry[Recorded[Literal["posted"], Post]]), _post_effect),
    "void": (canonical_reader(RunEntry[_Closing]), _settle_effect),
    "lapse": (canonical_reader(RunEntry[_Closing]), _settle_effect),
}
"""By kind: the entry's record, and the reader of its effect."""
_KIND: Final = b'"kind":"'


def read_entry(data: bytes) -> Read:
    """Read the stored bytes of an entry, to apply it. Raises: Malformed."""
    if (run := _read_run(data)) is not None:
        return run
    entry = Entry.parse(data)
    return Read(entry.id, entry.kind, entry.time, effect_of(entry))


def _read_run(data: bytes) -> Read | None:
    """The entry of a run; None for other entries, and where the strict reader must decide."""
    run = read_run(data)
    return None if run is None else run[0]


def read_run(data: bytes) -> tuple[Read, RunEntry[Any]] | None:
    """The same, with the whole body of its entry."""
    # No quote is bare inside a text, and after the kind there is no object: it is the last of that name.
    at = data.rfind(_KIND) + len(_KIND)
    kind = data[at : data.find(b'"', at)].decode(errors="replace")
    if kind not in _READERS or len(data) > ENTRY_BYTES_MAX:
        return None
    reader, applied = _READERS[kind]
    if (entry := reader(data)) is None or entry.kind != kind:
        return None
    try:
        _did(entry.actor)
        return Read(entry.id, kind, entry.time, applied(entry)), entry
    except (Malformed, KeyError, AttributeError, TypeError):
        return None


@lru_cache(maxsize=4_096)
def _parse_recorded(data: bytes) -> Any:  # noqa: ANN401 - JSON as recorded
    """A value that an entry's body records, in canonical bytes. Raises: Malformed."""
    # Two levels around it, as in the entry: the depth limit is counted from there.
    whole: Any = c.parse_canonical(b'{"body":{"value":%s}}' % data, ENTRY_BYTES_MAX)
    return whole["body"]["value"]


@lru_cache(maxsize=4_096)
def _prices(data: bytes, partitions: tuple[str, ...] | None) -> tuple[tuple[str, bytes], ...]:
    recorded = _parse_recorded(data)
    return tuple((ref, c.spelled(recorded[ref])) for ref in (recorded if partitions is None else partitions))
