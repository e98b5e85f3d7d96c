"""Lineage: who knows what others knew, as a graph and in words."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from typing import Final

from markupsafe import Markup

from api.console.charts.graph import Edge, Vertex, layered
from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import organisation, partition
from api.console.frame.pages import ROWS_MAX, Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table, first_of
from api.routes import lineage as lineage_routes
from api.routes import planning, registry
from api.routes.overviews import lineage_graph
from api.wire.lineage_answers import LineageNode
from ledger.wire import canonical_json as c

PAGES: Final = Pages()
_KINDS: Final = {
    "organisation": "organisation",
    "collusion": "organisations found to collude",
    "model": "a model that was given away",
    "public": "a model that was made public",
    "coalition": "a coalition under one cap",
}

_DAY_LETTERS: Final = len("2026-11-28")


@PAGES.page("/lineage", "Lineage", lineage_routes.read_lineage)
def lineage(reader: Reader, inputs: Inputs) -> Page:
    """The organisations on record. Raises: Malformed."""
    found = reader.page(registry.list_organisations, ROWS_MAX, inputs.get("cursor"))
    rows = tuple(
        (
            Cell(item.name, exact=item.organisation, href=address("lineage", item.organisation)),
            cells.text(item.organisation),
            cells.text(", ".join(item.roles)),
            cells.count(len(item.moves) - 1),
            cells.count(item.index, address("log", str(item.index))),
        )
        for item in found.items
    )
    columns = ("Organisation", "DID", "Roles", "Changes of lineage", "Entry")
    following, words = address("lineage-graph"), "The whole graph"
    if found.next_cursor:
        following, words = address("lineage", cursor=found.next_cursor), "Next rows"
    table = Table("organisations", "Organisations", columns, rows, following=following, following_words=words)
    return Page("list.html", "Lineage", (table,))


@PAGES.page("/lineage/{did}", "", lineage_routes.read_lineage)
def lineage_of(reader: Reader, inputs: Inputs) -> Page:
    """The graph around one organisation. Raises: Malformed, Problem."""
    did = inputs.path["did"]
    answer = reader.read(lineage_routes.read_lineage, did)
    table, chart = _drawn(answer.nodes, answer.node)
    return Page(
        "lineage.html",
        "Lineage of " + (organisation(reader, did).text),
        (table,),
        {"chart": chart, "complete": answer.complete, "did": did, "merges": reader.may(planning.ask_merger_impact)},
    )


@PAGES.page("/lineage-graph", "", lineage_graph.list_lineage)
def whole_lineage(reader: Reader, inputs: Inputs) -> Page:
    """The graph of all that the caller may see, a page of nodes at a time. Raises: Malformed."""
    found = reader.page(lineage_graph.list_lineage, ROWS_MAX, inputs.get("cursor"))
    following = address("lineage-graph", cursor=found.next_cursor) if found.next_cursor else ""
    table, chart = _drawn(found.items, None, following)
    return Page(
        "lineage.html", "The whole lineage", (table,), {"chart": chart, "complete": True, "did": "", "merges": False}
    )


def _drawn(nodes: Iterable[LineageNode], own: int | None, following: str = "") -> tuple[Table, Markup | None]:
    """Nodes as rows and as a graph; ``own`` is marked in it."""
    ordered = sorted(nodes, key=lambda node: node.index)
    names = {node.index: node.name for node in ordered}
    edges = [
        Edge(arrow.node, node.index, arrow.before is not None)
        for node in ordered
        for arrow in node.parents
        if arrow.node in names
    ]
    vertices = [
        Vertex(node.index, node.name, node.index == own, cells.moment(node.time).text[:_DAY_LETTERS])
        for node in ordered
    ]
    rows = tuple(
        (
            cells.count(node.index, address("log", str(node.index))),
            cells.text(node.name),
            cells.text(_KINDS.get(node.kind, node.kind)),
            cells.moment(node.time),
            cells.text(_knows(node, names)),
            cells.bound(node.epsilon) if node.epsilon else cells.text("–"),
        )
        for node in ordered
    )
    columns = ("Entry", "Who", "What", "Since", "Knows what was known by", "Cap in ε")
    return Table("nodes", "In words", columns, rows, following=following), layered(vertices, edges)


def _knows(node: LineageNode, names: dict[int, str]) -> str:
    parts = [
        f"{names.get(arrow.node, 'one that is not shown')}"
        + ("" if arrow.before is None else f" before entry {arrow.before}")
        for arrow in node.parents
    ]
    return "; ".join(parts) or "no one else"


@PAGES.page("/merger", "", planning.ask_merger_impact, slow=True)
def merger(reader: Reader, inputs: Inputs) -> Page:
    """What a merger of two organisations would change. Raises: Malformed, Problem."""
    first, second = inputs.get("first"), inputs.get("second")
    tables: tuple[Table, ...] = ()
    if first and second:
        reader.view.context.quotas.admit_questions(reader.caller)
        question = c.dump({"organisations": [*sorted({first, second})]})
        found = reader.read(planning.ask_merger_impact, question)
        rows = tuple(
            (
                partition(item.partition),
                cells.text("the two together"),
                cells.text(", ".join(f"{before.name} {before.used}" for before in item.before)),
                cells.share(item.after.used.share, str(item.after.used)),
                cells.bound(item.after.epsilon_max),
                cells.mark("over its cap" if item.after.over else "within", passed=not item.after.over),
            )
            for item in sorted(found.items, key=lambda item: not item.after.over)[:ROWS_MAX]
        )
        columns = ("Partition", "Whose account", "Before", "Used together", "Cap in ε", "State")
        empty = "Together they would know of no run on data that you may watch."
        caption = "Accounts after the merger, those over their cap first"
        tables = (Table("merged", first_of(caption, len(found.items), ROWS_MAX), columns, rows, empty),)
    words = ["epsilon", "lineage", "merge", "sro.toml", "DID_THAT_CONTINUES", first or "DID", second or "DID"]
    values = {"first": first, "second": second, "command": shlex.join(words)}
    return Page("merger.html", "What if two merge", tables, values)
