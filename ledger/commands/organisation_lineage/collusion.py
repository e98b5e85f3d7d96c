"""Collusion reported later, with its date: all that descend from the colluders of that date become one lineage."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

from ledger.commands.command_fields import Parents, Several
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Facts
from ledger.domain.organisation_graph import NodeKind, descendants, forebears
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.organisation_lineage.graph_edits import LineageEdit, members_at
from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.field_types import between
from ledger.wire.records import Record


class Collude(Record, frozen=True):
    """A report that organisations have shared what they know since ``effective`` (ms)."""

    organisations: Several
    effective: Annotated[int, between(0, INTEGER_MAX)]


def decide(context: Context[Collude]) -> Decision:
    """Decide a report of collusion."""
    facts, body = context.facts, context.body
    organisations = context.organisations(body.organisations, "organisations")
    if body.effective > context.now:
        raise Rejected(Code.MALFORMED, "body.effective: must not lie after now", "body.effective")
    former = {organisation.node_at(body.effective) for organisation in organisations}
    parents = _current_nodes(facts, descendants(facts.nodes, former, body.effective))
    if len(former) == 1:
        raise Rejected(Code.CONFLICT, "these organisations were one lineage then", "body.organisations")
    return context.permit(Parents(parents))


def draw(edit: LineageEdit, entry: Recorded[Collude]) -> None:
    """Join the organisations that have known what each of them knew after the effective date.

    Their former nodes do not change. But a model that any of them handed over or made public since then carried what
    all of them knew at that time, and so do copies of what its recipients knew: those arrows are added. An
    organisation that colluded with one of them before joins with all its past: too much rather than too little.
    """
    facts, body = edit.facts, entry.body
    former = {facts.organisations[did].node_at(body.effective) for did in body.organisations}
    family = descendants(facts.nodes, former, body.effective)
    parents = _current_nodes(facts, family)
    family |= forebears(facts.nodes, (node for node in family if facts.nodes[node].kind is NodeKind.COLLUSION))
    edit.add_node(NodeKind.COLLUSION, body.organisations[0])
    edit.merge_into(members_at(facts, parents), parents)
    for model in _given_since(facts, family, body.effective):
        # The cut of what the giver gave: the time of giving, or the charge whose ancestry alone was given.
        cut = max(arrow.cut for arrow in facts.nodes[model].parents if arrow.node in family)
        had = {arrow.node for arrow in facts.nodes[model].parents if arrow.cut >= cut}
        for node in sorted(family - had):
            if node < cut:
                edit.add_edge(node, model, cut)


def _current_nodes(facts: Facts, family: Iterable[int]) -> tuple[int, ...]:
    """The nodes of a family that organisations are at now."""
    return tuple(sorted(node for node in family if facts.nodes[node].members))


def _given_since(facts: Facts, family: frozenset[int], effective: int) -> list[int]:
    transferred = (facts.nodes[arrow.node] for node in family for arrow in facts.nodes[node].children)
    kinds = (NodeKind.MODEL, NodeKind.PUBLIC)
    return sorted({node.index for node in transferred if node.kind in kinds and node.time > effective})


COLLUSION: Final = CommandKind(
    "collusion", Collude, decide, (SRO,), "/v1/collusions", edit=draw, recorded=Parents, binds_all=True
)
