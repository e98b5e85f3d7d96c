"""The smallest coalitions of consumers that together would exceed a cap, for each open partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from ledger.domain.facts import Facts
from ledger.filters import NoRoom, read_rule
from ledger.lineage.coalitions import SmallestCoalitions, smallest_coalitions
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal, format_number
from policy.planning.account_caps import partition_bounds


@dataclass(frozen=True, slots=True)
class Coalitions:
    """The smallest coalitions on one partition.

    Attributes:
        epsilon: the cap they would exceed.
        asked: how many organisations were searched.
    """

    partition: str
    epsilon: Fraction
    asked: int
    listing: SmallestCoalitions

    def to_json(self) -> c.Object:
        """As JSON."""
        found: list[c.Json] = [
            {"members": list(members), "used": f"{ceil_decimal(100 * share, 1)} %"}
            for members, share in self.listing.coalitions
        ]
        return {
            "asked": self.asked,
            "coalitions": found,
            "complete": self.listing.complete,
            "epsilon_max": format_number(self.epsilon),
            "partition": self.partition,
            "searched_up_to": self.listing.searched,
        }


def consumers(facts: Facts) -> tuple[str, ...]:
    """Every organisation registered as TDC."""
    return tuple(sorted(did for did in facts.organisations if "TDC" in facts.organisations[did].roles))


def coalitions(
    facts: Facts, now: int, partitions: Iterable[str] | None = None, epsilon: Fraction | None = None
) -> tuple[Coalitions, ...]:
    """The smallest coalitions of consumers that together would exceed a cap.

    Args:
        partitions: all open ones unless given.
        epsilon: the cap, at each partition's δ and at most its own ε; that of each lineage unless given. Partitions
            where the cap has no room, or that are under no policy, are passed over.

    Raises:
        KeyError: if a partition is not on record.
    """
    asked, found = consumers(facts), []
    for ref in partitions if partitions is not None else sorted(facts.partitions):
        partition = facts.partitions[ref]
        bounds = partition_bounds(facts, partition, now)
        cap = epsilon if epsilon is not None else bounds.lineage if bounds else None
        if cap is None or (partitions is None and partition.retired):
            continue
        cap = min(cap, partition.epsilon)
        try:
            capacity = read_rule(partition.terms).cap(cap)
        except NoRoom:
            continue
        found.append(Coalitions(ref, cap, len(asked), smallest_coalitions(facts, ref, capacity, asked)))
    return tuple(found)
