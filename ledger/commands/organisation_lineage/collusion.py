"""Collusion found later, with the date since when: who descends from the colluders of that date is one lineage now."""

from __future__ import annotations

from typing import Annotated, Final

from ledger.commands.command_kind import SRO, Change, CommandKind
from ledger.commands.context import Context
from ledger.commands.organisation_lineage.lineage_fields import Parents, Several
from ledger.domain.decision import Decision, Rejected
from ledger.domain.organisation_graph import descendants
from ledger.domain.outcomes import Code
from ledger.organisation_lineage.graph_edits import collude, occupied
from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.field_types import between
from ledger.wire.records import Record


class Collude(Record, frozen=True):
    """Organisations found to have shared what they know since ``effective`` (ms)."""

    organisations: Several
    effective: Annotated[int, between(0, INTEGER_MAX)]


def decide(context: Context[Collude]) -> Decision:
    """Decide a report of collusion."""
    facts, body = context.facts, context.body
    found = context.organisations(body.organisations, "organisations")
    if body.effective > context.now:
        raise Rejected(Code.MALFORMED, "body.effective: must not lie after now", "body.effective")
    stood = {one.stood(body.effective) for one in found}
    parents = occupied(facts, descendants(facts.nodes, stood, body.effective))
    if len(stood) == 1:
        raise Rejected(Code.CONFLICT, "these organisations were one lineage then", "body.organisations")
    return context.permit(Parents(parents))


def apply(change: Change[Collude]) -> None:
    """Join their lineages, and add to the past what left the group since."""
    collude(change.lineage_edit(), change.body.organisations, change.body.effective).apply_to(change.state)


COLLUSION: Final = CommandKind(
    "collusion", Collude, decide, (SRO,), "/v1/collusions", apply, recorded=Parents, binds_all=True
)
