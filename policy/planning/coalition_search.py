"""The smallest coalitions of consumers that together would exceed a cap, for each open partition."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated

from msgspec import Meta

from ledger.domain.facts import Facts
from ledger.filters import NoRoom, read_rule
from ledger.organisation_lineage.coalitions import smallest_coalitions
from ledger.organisation_lineage.holder_names import organisation_names
from ledger.wire.exact_numbers import equal_part
from ledger.wire.field_types import Did, Ref
from ledger.wire.records import Record
from policy.planning.account_caps import partition_bounds
from policy.planning.reported_values import Natural, Percent


class CoalitionOverCap(Record, frozen=True):
    """Organisations that would exceed the cap together."""

    members: tuple[Did, ...]
    used: Percent
    name: Annotated[str, Meta(description="the members by name")] = ""


class SmallestCoalitions(Record, frozen=True):
    """The fewest consumers that together would exceed a cap on a partition."""

    asked: Annotated[Natural, Meta(description="organisations that were searched")]
    coalitions: tuple[CoalitionOverCap, ...]
    complete: bool
    epsilon_max: Fraction
    partition: Ref
    searched_up_to: Annotated[Natural, Meta(description="members")]


def consumers(facts: Facts) -> tuple[str, ...]:
    """Every organisation registered as TDC."""
    return tuple(sorted(did for did in facts.organisations if "TDC" in facts.organisations[did].roles))


def coalitions(
    facts: Facts, now: int, partitions: Iterable[str] | None = None, epsilon: Fraction | None = None
) -> tuple[SmallestCoalitions, ...]:
    """The smallest coalitions of consumers that together would exceed a cap.

    Args:
        partitions: all open ones by default.
        epsilon: the cap on one person, at each partition's δ and at most its own ε; by default that of each lineage. A
            slice has its part of it. Partitions where the cap has no room, or that are under no policy, are skipped.

    Raises:
        KeyError: if a partition is not registered.
    """
    searched, searches = consumers(facts), []
    for ref in partitions if partitions is not None else sorted(facts.partitions):
        partition = facts.partitions[ref]
        bounds = partition_bounds(facts, partition, now)
        cap = bounds.lineage_epsilon_max if bounds else None
        if epsilon is not None:
            cap = equal_part(epsilon, bounds.appearances_max if bounds else 1)
        if cap is None or (partitions is None and partition.retired):
            continue
        cap = min(cap, partition.epsilon)
        try:
            capacity = read_rule(partition.terms).cap(cap)
        except NoRoom:
            continue
        smallest = smallest_coalitions(facts, ref, capacity, searched)
        searches.append(
            SmallestCoalitions(
                asked=len(searched),
                coalitions=tuple(
                    CoalitionOverCap(who, Percent.of(share), organisation_names(facts, who))
                    for who, share in smallest.coalitions
                ),
                complete=smallest.complete,
                epsilon_max=cap,
                partition=ref,
                searched_up_to=smallest.searched,
            )
        )
    return tuple(searches)
