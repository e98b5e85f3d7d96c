"""The whole graph of lineage, node by node in the order of entry, as far as a caller may see it."""

from __future__ import annotations

from typing import Final

from api.auth.authorisation import Caller
from api.http.pagination import Page, fetch_from
from api.routes.lineage import fetch_names, nodes_around, shown_among
from api.routes.read_routes import LISTED, ReadRoutes, View
from api.wire.lineage_answers import LineageNode
from ledger.domain.facts import GLOBAL
from ledger.domain.organisation_graph import Node
from ledger.store.snapshot import Snapshot

ROUTES: Final = ReadRoutes("lineage")
HOLDERS_MAX: Final = 10_000
"""Lineages with an account on a provider's data that are looked at."""


@ROUTES.route("/v1/lineage", LISTED, paged=True)
def list_lineage(view: View) -> Page[LineageNode]:
    """The nodes of the lineage that the caller may see, with the arrows between them. Raises: Malformed."""
    facts = view.facts
    assert isinstance(facts, Snapshot)
    read = fetch_from(facts.nodes)
    seen = None if view.caller.sees_all else _seen(facts, view.caller)

    def fetch(after: int | None, most: int) -> list[tuple[int, Node]]:
        found = read(after, most)
        facts.nodes.fetch_keys([index for index, _ in found])
        fetch_names(facts, (node for _, node in found))
        return found

    def show(node: Node) -> LineageNode | None:
        if seen is not None and node.index not in seen:
            return None
        return LineageNode.of_node(facts, node if seen is None else shown_among(node, seen))

    return view.page("lineage", fetch, show)


def _seen(facts: Snapshot, caller: Caller) -> set[int]:
    """The nodes that the caller sees as an organisation, and those that have an account on a partition of its."""
    known = facts.organisations.get(caller.organisation)
    own = set() if known is None else {node.index for node in nodes_around(facts, known.node, every=False)[0]}
    holders = facts.holders_of_provider(caller.organisation, HOLDERS_MAX)
    return own | {int(one.partition(":")[2]) for one in holders if one != GLOBAL}
