"""A node of the lineage as a row: arrows as pairs of node and cut, null where they are open."""

from __future__ import annotations

import json
from typing import Any

from ledger.domain.lineage_graph import Arrow, Node, NodeKind
from ledger.wire.exact_numbers import format_number, parse_number


def node_of(rows: list[dict[str, Any]]) -> Node:
    """The node that a row holds."""
    (row,) = rows
    return Node(
        row["position"],
        row["time"],
        NodeKind(row["kind"]),
        row["organisation"],
        parents=_arrows(row["parents"]),
        children=_arrows(row["children"]),
        members=tuple(json.loads(row["members"])),
        epsilon=None if row["epsilon"] is None else parse_number(row["epsilon"], "epsilon"),
    )


def _arrows(stored: str) -> tuple[Arrow, ...]:
    return tuple(Arrow(node, before) for node, before in json.loads(stored))


def rows_of(key: int, value: Node) -> list[dict[str, Any]]:
    """The row of a node."""
    return [
        {
            "position": key,
            "time": value.time,
            "kind": value.kind.value,
            "organisation": value.organisation,
            "parents": json.dumps([[one.node, one.before] for one in value.parents]),
            "children": json.dumps([[one.node, one.before] for one in value.children]),
            "members": json.dumps(value.members),
            "epsilon": None if value.epsilon is None else format_number(value.epsilon),
        }
    ]
