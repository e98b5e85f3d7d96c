"""Breaches: accounts over the cap that binds them now, and by how much; what a merger or collusion found late leaves.

A breach is told, never undone. Its account is frozen: it takes nothing until new records open a new partition, or an
SRO's decree lets it begin anew.
"""

from __future__ import annotations

from collections.abc import Iterator

from ledger.domain.facts import GLOBAL, Facts
from ledger.domain.lineage_graph import NodeKind
from policy.planning.account_caps import Standing, bounds_of, standing


def breaches(facts: Facts, now: int) -> Iterator[Standing]:
    """Every frozen account: of everyone, of each lineage at which somebody stands, and of each coalition."""
    for ref, holder in sorted(facts.accounts):
        partition = facts.partitions[ref]
        bounds = bounds_of(facts, partition, now)
        if bounds is None or not _counts(facts, holder):
            continue
        found = standing(facts, facts.accounts[ref, holder], bounds)
        if found.over:
            yield found


def _counts(facts: Facts, holder: str) -> bool:
    """Not of a lineage that all have left for another: what it knew, that one knows."""
    if holder == GLOBAL:
        return True
    node = facts.nodes[int(holder.partition(":")[2])]
    return node.kind is NodeKind.COALITION or bool(node.members)
