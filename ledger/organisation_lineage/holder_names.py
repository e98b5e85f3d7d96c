"""Holders of accounts as people read them: organisations by name, never the number of a node."""

from __future__ import annotations

from collections.abc import Iterable

from ledger.domain.facts import GLOBAL, Facts
from ledger.domain.organisation_graph import Node, NodeKind


def holder_name(facts: Facts, holder: str) -> str:
    """The holder of an account; for a hypothetical lineage, that it is hypothetical."""
    if holder == GLOBAL:
        return "everyone"
    node = facts.nodes.get(int(holder.partition(":")[2]))
    return "a hypothetical lineage" if node is None else _node_name(facts, node)


def organisation_names(facts: Facts, members: Iterable[str]) -> str:
    """Organisations by name, by their DIDs where two have the same name."""
    names = {did: facts.organisations[did].name for did in sorted(members) if did in facts.organisations}
    ambiguous = len(set(names.values())) < len(names)
    return ", ".join(did if ambiguous else name for did, name in names.items())


def _node_name(facts: Facts, node: Node) -> str:
    giver = organisation_names(facts, (node.organisation,)) or node.organisation
    match node.kind:
        case NodeKind.COALITION:
            return f"the coalition of {organisation_names(facts, node.members)}"
        case NodeKind.MODEL:
            return f"a model that {giver} gave away"
        case NodeKind.PUBLIC:
            return f"a model that {giver} made public"
        case _:
            return organisation_names(facts, node.members) or f"{giver}, before it changed"
