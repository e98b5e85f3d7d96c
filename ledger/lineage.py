"""Lineage: who knows what. Nodes are organisations at a time; arrows lead back to what each one knew before.

Exposure(holder, partition) is the sum over the *distinct* runs whose author the holder descends from: a set,
not a sum of totals. So two parents that share a run count it once, merging twice changes nothing, and the
order of mergers does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ledger.loss import Loss
from ledger.registry import Account, Facts, Node, holder_of


def ancestors(nodes: Mapping[int, Node], node: int) -> frozenset[int]:
    """The node itself and all it descends from."""
    return _reach(nodes, node, lambda at: at.parents)


def descendants(nodes: Mapping[int, Node], node: int) -> frozenset[int]:
    """The node itself and all that descend from it: everyone who knows what it knew."""
    return _reach(nodes, node, lambda at: at.children)


def _reach(nodes: Mapping[int, Node], start: int, arrows: Callable[[Node], tuple[int, ...]]) -> frozenset[int]:
    seen, todo = {start}, [start]
    while todo:
        for other in arrows(nodes[todo.pop()]):
            if other not in seen:
                seen.add(other)
                todo.append(other)
    return frozenset(seen)


def merged_accounts(facts: Facts, index: int, parents: tuple[int, ...]) -> list[Account]:
    """The accounts of a new node at ``index`` that descends from ``parents``: the union of their runs."""
    authors = frozenset[int]().union(*(ancestors(facts.nodes, parent) for parent in parents))
    holder = holder_of(index)
    return [Account(partition, holder, posted, pending) for partition, posted, pending in facts.exposures(authors)]


def exposure(facts: Facts, partition: str, node: int) -> Loss | None:
    """What a lineage may know of a partition, pending counted in full; None if nothing."""
    account = facts.accounts.get((partition, holder_of(node)))
    return account.loss if account else None
