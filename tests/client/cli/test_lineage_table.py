"""The table of a lineage: whose exposure each node has is in words, and no number of a node stands for one."""

from __future__ import annotations

from contextvars import Context
from typing import Any

from client.cli.lineage import lineage_rows

A, B, C = (f"did:web:bank-{name}.example" for name in "abc")


def node(index: int, kind: str, organisation: str, members: tuple[str, ...], *parents: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """As the service answers it."""
    arrows = [{"before": before, "node": parent} for parent, before in parents]
    return {
        "children": [],
        "epsilon": None,
        "index": index,
        "kind": kind,
        "members": [*members],
        "organisation": organisation,
        "parents": arrows,
        "time": 1_795_000_000_000,
    }


NODES = [
    node(3, "organisation", A, ()),
    node(4, "organisation", B, (B,)),
    node(40, "model", B, (), (4, 38)),
    node(41, "public", A, (), (3, None)),
    node(42, "coalition", A, (B, C), (4, None), (7, None)),
    node(50, "collusion", A, (A, C), (3, None), (4, 45), (40, None), (41, None), (42, None)),
]
KNOWS = {
    3: "",
    4: "",
    40: f"{B}, before entry 38",
    41: f"{A}, before it changed",
    42: f"{B}; what entry 7 made",
    50: f"{A}, before it changed; {B}, before entry 45; a model that {B} gave away; a model that {A} made public; "
    f"the coalition of {B}, {C}",
}


def test_whose_exposure_a_node_has_is_in_words() -> None:
    """Each kind of node by name; one that is not in the answer by the entry that made it."""
    # A command that ran in this process before has learned names.
    rows = Context().run(lineage_rows, {"complete": False, "node": 50, "nodes": [*NODES], "organisation": A})
    assert {int(row[0]): row[-1] for row in rows} == KNOWS
    assert rows[0][1:] == ("organisation", A, "", "2026-11-18T11:06:40Z", "")
