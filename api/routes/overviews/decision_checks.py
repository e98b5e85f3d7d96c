"""All checks of a decision, those of a permit too: as its entry has them, or decided again on the state before it.

A permit's entry holds each cap that its accounts had room under, and no other check. Where the state before it is too
many entries long to be made again for one request, those are what is answered.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from api.auth.visibility import visible_entry
from api.http.field_types import Index, PathName
from api.http.snapshots import AS_OF_MAX
from api.routes.planning import plan_run
from api.routes.read_routes import ReadRoutes, View
from ledger.accounts.headroom import CODE, silent
from ledger.commands.entry import Entry
from ledger.commands.runs.charge import CHARGE
from ledger.commands.runs.charge_entry import RecordedLimit, Reserved
from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.gate import Check
from ledger.domain.roles import TDC
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from ledger.wire.field_types import Name
from ledger.wire.records import Record, convert

ROUTES: Final = ReadRoutes("log")


class DecisionChecks(Record, frozen=True):
    """Every check of a decision, with its numbers."""

    checks: tuple[Check, ...]
    id: Name
    index: Index
    permit: Annotated[bool, Meta(description="what these checks lead to")]
    recorded: Annotated[
        bool, Meta(description="whether the entry holds them; else they are decided again on the state before it")
    ]


@ROUTES.route("/v1/decisions/{id}/checks", slow=True)
def read_decision_checks(view: View, id: PathName) -> DecisionChecks:  # noqa: A002 - the wire's name
    """Every check of a decision; a charge's permit is decided again. Raises: Malformed, Problem."""
    index, entry = visible_entry(view.facts, id, view.caller)
    recorded = convert(tuple[Check, ...], entry.body.get("checks", []), "checks")
    if recorded or entry.kind != CHARGE.name or not _may_plan(view, entry):
        return DecisionChecks(checks=recorded, id=entry.id, index=index, permit=not entry.code.refused, recorded=True)
    if index > AS_OF_MAX:
        return DecisionChecks(checks=_recorded_room(entry), id=entry.id, index=index, permit=True, recorded=True)
    # This request has a slow place already, for which others wait.
    with view.context.snapshots.read(index, view.caller.organisation, wait_s=0) as past:
        then = view._replace(facts=past, as_of=index)
        found = plan_run(then, c.dump(entry.request), at=entry.time, search=False).decision
    return DecisionChecks(checks=found.checks, id=entry.id, index=index, permit=found.permit, recorded=False)


def _recorded_room(entry: Entry) -> tuple[Check, ...]:
    """The accounts that had room for a permitted charge, each under the cap that its entry records.

    Of a charge that names ranges each stands for all partitions of its group.
    """
    reserved = entry.recorded().fixed(Reserved)
    own = holder_of(reserved.author)
    return tuple(
        Check(CODE, passed=True, text=_room_text(limit, own), source=limit.holder) for limit in reserved.limits
    )


def _room_text(limit: RecordedLimit, own: str) -> str:
    if limit.holder not in {GLOBAL, own}:
        return silent(limit.partition, enough=True)
    whose = "the global account" if limit.holder == GLOBAL else "the account of this lineage"
    quota = "" if limit.share is None else f", of which its quota is {format_number(limit.share)}"
    cap = format_number(limit.cap.epsilon)
    return f"{whose} of {limit.partition} had room for all of the run under its cap of ε {cap}{quota}, as recorded"


def _may_plan(view: View, entry: Entry) -> bool:
    """Whether the caller may see the state that a charge was decided on: who made it, and who sees all of it."""
    if TDC in view.caller.roles and not view.caller.sees_all:
        return entry.actor == view.caller.organisation
    return view.caller.sees_all or all(
        view.facts.partitions[ref].provider == view.caller.organisation
        for ref in view.facts.charges[entry.id].partitions
    )
