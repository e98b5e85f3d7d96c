"""The graph of lineage: organisations at a time, models and coalitions, and arrows along which knowledge flows.

A node knows the runs authored at it and what its arrows bring. An arrow p → c that is cut at ``before`` brings
what p knew when the log had ``before`` entries; an open one brings all that p knows, at any time. An arrow exists
from the entry on that made the later of its two ends, so copies of c from before that entry lack it:

    K(n, b) = {runs authored at n with an index < b} ∪ ⋃ {K(p, min(before, b)) : p → n made before b}

and K(n, ∞) is what n knows now. K only grows with b, so one greatest b per node is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from heapq import heappop, heappush
from typing import Final

END: Final = 2**63 - 1
"""Beyond every index: the cut of an open arrow."""


class NodeKind(StrEnum):
    """The kind of a node. Organisations are at the first two kinds; the others represent models and coalitions."""

    ORGANISATION = "organisation"
    COLLUSION = "collusion"
    MODEL = "model"
    PUBLIC = "public"
    COALITION = "coalition"


SUCCESSION: Final = (NodeKind.ORGANISATION, NodeKind.COLLUSION)
"""Kinds of nodes that organisations are at; an arrow between two of them is a succession, not a single transfer."""


@dataclass(frozen=True, slots=True)
class Arrow:
    """The other end of an arrow, and its cut; None if it is open."""

    node: int
    before: int | None = None

    @property
    def cut(self) -> int:
        """The index from which on it brings nothing."""
        return END if self.before is None else self.before


@dataclass(frozen=True, slots=True)
class Node:
    """One node, named by the index of the entry that made it.

    Attributes:
        time: of that entry.
        organisation: its legal body; for a model or a publication its giver, for a coalition its declarer.
        members: the organisations that are here now; for a coalition, those it follows.
        epsilon: of a coalition's cap, at each partition's δ.
    """

    index: int
    time: int
    kind: NodeKind
    organisation: str
    parents: tuple[Arrow, ...] = ()
    children: tuple[Arrow, ...] = ()
    members: tuple[str, ...] = ()
    epsilon: Fraction | None = None


def reach(nodes: Mapping[int, Node], node: int, before: int | None = None) -> dict[int, int | None]:
    """The knowledge of a node, now or when the log had ``before`` entries.

    Per node from which knowledge came, the greatest cut over all paths: runs authored there are known if their
    index is less; all of them if it is None. A search for widest paths (Dijkstra, with the least cut as width).
    """
    cuts: dict[int, int | None] = {}
    todo = [(-Arrow(node, before).cut, node)]
    while todo:
        width, at = heappop(todo)
        if at in cuts:
            continue
        cut = -width
        cuts[at] = None if cut == END else cut
        for arrow in nodes[at].parents:
            # An arrow made later did not exist yet when this was copied.
            if arrow.node not in cuts and max(arrow.node, at) < cut:
                heappush(todo, (-min(cut, arrow.cut), arrow.node))
    return cuts


def knowers(nodes: Mapping[int, Node], author: int, index: int) -> frozenset[int]:
    """Every node that knows what was authored at ``author`` by the entry at ``index``: :func:`reach` the other way.

    A search for the entry since when each node has known it.
    """
    if not nodes[author].children:
        return _alone(author)
    since: dict[int, int] = {}
    todo = [(index, author)]
    while todo:
        known, at = heappop(todo)
        if at in since:
            continue
        since[at] = known
        for arrow in nodes[at].children:
            if arrow.node not in since and known < arrow.cut:
                heappush(todo, (max(known, at, arrow.node), arrow.node))
    return frozenset(since)


@lru_cache(maxsize=1_024)
def _alone(author: int) -> frozenset[int]:
    return frozenset((author,))


def knows(nodes: Mapping[int, Node], node: int, author: int, index: int) -> bool:
    """Whether a node knows one run."""
    cuts = reach(nodes, node)
    return author in cuts and index < Arrow(author, cuts[author]).cut


def ancestors(
    nodes: Mapping[int, Node],
    node: int,
    visited: Iterable[int] = (),
    signed: int = -1,
    joint: frozenset[int] | None = None,
) -> frozenset[int]:
    """The node itself and all nodes whose contracts it continues; a transferred or public model brings no contract.

    Args:
        visited: the nodes that the requesting organisation has been at. Colluders are one lineage without being one
            body: beyond the node that joins them, and those after it, each goes on with its own past alone.
        signed: the index of the contract's entry: organisations that split from its signer before do not continue it.
        joint: the nodes where organisations are without being one body; :func:`joint_nodes` by default.
    """
    own, shared = frozenset(visited), joint_nodes(nodes, node) if joint is None else joint

    def barred(at: Node, arrow: Arrow) -> bool:
        return arrow.cut <= signed or (at.index in shared and arrow.node not in own)

    return _walk(nodes, (node,), lambda at: at.parents, barred)


def joint_nodes(nodes: Mapping[int, Node], node: int) -> frozenset[int]:
    """The colluders' nodes that a node is or succeeds, and those that succeed them: not all there are one body.

    Whoever merges with a colluder, or splits from one, moves the others along.
    """
    joint = set[int]()
    # Whom a node succeeds is older.
    for at in sorted(forebears(nodes, (node,))):
        if nodes[at].kind is NodeKind.COLLUSION or any(arrow.node in joint for arrow in nodes[at].parents):
            joint.add(at)
    return frozenset(joint)


def forebears(nodes: Mapping[int, Node], starts: Iterable[int]) -> frozenset[int]:
    """The nodes themselves and all that they succeed, colluders included."""
    return _walk(nodes, starts, lambda at: at.parents, lambda _at, _arrow: False)


def descendants(nodes: Mapping[int, Node], starts: Iterable[int], since: int = -1) -> frozenset[int]:
    """The nodes themselves and all that succeed them by entries later than the time ``since``."""
    return _walk(nodes, starts, lambda at: at.children, lambda _at, arrow: nodes[arrow.node].time <= since)


def _walk(
    nodes: Mapping[int, Node],
    starts: Iterable[int],
    arrows: Callable[[Node], tuple[Arrow, ...]],
    barred: Callable[[Node, Arrow], bool],
) -> frozenset[int]:
    todo = list(starts)
    seen = set(todo)
    while todo:
        at = nodes[todo.pop()]
        for arrow in arrows(at):
            if arrow.node not in seen and nodes[arrow.node].kind in SUCCESSION and not barred(at, arrow):
                seen.add(arrow.node)
                todo.append(arrow.node)
    return frozenset(seen)


def coalitions_of(nodes: Mapping[int, Node], node: int) -> tuple[int, ...]:
    """The declared coalitions that follow the organisations at a node."""
    return tuple(arrow.node for arrow in nodes[node].children if nodes[arrow.node].kind is NodeKind.COALITION)


def changed_since(nodes: Mapping[int, Node], node: int, index: int) -> tuple[int, ...]:
    """Of a node and the coalitions that follow it, those that lineage has changed by an entry after ``index``.

    By a merger, collusion or a model that was given, they know more than by the runs of their own organisations; or
    they were made then.
    """
    return tuple(at for at in (node, *coalitions_of(nodes, node)) if _has_learned_since(nodes, at, index))


def _has_learned_since(nodes: Mapping[int, Node], node: int, index: int) -> bool:
    known = reach(nodes, node)
    if any(one > index for one in known):
        return True
    # Collusion that is reported later adds to models that were given before, and makes no node of those who got them.
    givers = [one for one in known if nodes[one].kind in SUCCESSION]
    return len(givers) < len(known) and any(
        one > index and nodes[one].kind is NodeKind.COLLUSION for one in descendants(nodes, givers)
    )
