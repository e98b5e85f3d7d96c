"""The reader of a charge's request: its plan, and other values that repeat, are read once and cached."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Annotated, Any, Final

from msgspec import Raw

from ledger.commands.runs.charge_entry import LISTED_MAX, MakeCharge
from ledger.domain.command import COMMAND_BYTES_MAX
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Ref, Sha256, distinct
from ledger.wire.malformed import Malformed
from ledger.wire.records import canonical_reader, convert


def matched_once(kind: Any) -> Callable[[str], object]:  # noqa: ANN401 - any type that msgspec reads
    """Matches texts that repeat between entries, each once; raises Malformed for a text of another form."""
    return lru_cache(maxsize=4_096)(partial(convert, kind))


match_digest: Final = matched_once(Sha256)
"""Check the digest of a document. Raises: Malformed."""
_match_ref: Final = matched_once(Ref)


class ChargeRequest(MakeCharge, frozen=True, kw_only=True):
    """The request of a charge. Repeated values are matched later, the plan stays in bytes: each is read once."""

    contract: str
    partitions: Annotated[tuple[str, ...], distinct(LISTED_MAX, 0)]
    plan: Raw  # type: ignore[assignment] # read by plan_of

    def match(self) -> None:
        """Check the repeated values other than the plan. Raises: Malformed."""
        match_digest(self.contract)
        for ref in self.partitions:
            _match_ref(ref)


def plan_of(request: ChargeRequest) -> RunPlan:
    """The plan of a request. Raises: Malformed."""
    return _plan(bytes(request.plan))


@lru_cache(maxsize=4_096)
def _plan(data: bytes) -> RunPlan:
    return parse_plan(c.parse_canonical(data, COMMAND_BYTES_MAX))


_canonical: Final = canonical_reader(ChargeRequest)


def read_request(data: bytes) -> MakeCharge | None:
    """The body of a charge from its canonical bytes; None where the strict reader must read it and report the error."""
    request = _canonical(data)
    if request is None:
        return None
    try:
        request.match()
        plan = plan_of(request)
    except Malformed:
        return None
    return MakeCharge(
        contract=request.contract,
        partitions=request.partitions,
        plan=plan,
        clean_room=request.clean_room,
        deadline=request.deadline,
        recipients=request.recipients,
        base=request.base,
        pipeline=request.pipeline,
        unit_records_max=request.unit_records_max,
        step_leases=request.step_leases,
        ranges=request.ranges,
    )
