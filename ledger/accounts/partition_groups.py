"""Groups of a charge's partitions that share one price and one limit.

A charge that names ranges may be on a thousand partitions, nearly all of the same terms. Its prices and capacities are
computed once for each group, recorded once for each, and every partition of it is charged and checked by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction
from functools import cache
from itertools import groupby
from typing import Final

from ledger.domain.decision import Rejected
from ledger.domain.facts import Partition
from ledger.domain.gate import Caps
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c

GROUPS_MAX: Final = 32
"""Different terms among the partitions of one charge: its entry records the price and the caps of each."""
Group = tuple[Partition, ...]


def group_by_terms(partitions: Sequence[Partition]) -> tuple[Group, ...]:
    """Partitions on which any run costs the same. Raises: Rejected, for too many groups."""
    return _group_by(partitions, _terms)


def group_by_caps(
    partitions: Sequence[Partition], caps: dict[str, Caps], coalitions: Sequence[Fraction]
) -> tuple[Group, ...]:
    """Partitions of equal price that have the same caps too. Raises: Rejected, for too many groups.

    Args:
        coalitions: the ε of each coalition that follows the author.
    """

    @cache
    def of_coalitions(stated: Caps, budget: Fraction) -> Hashable:
        return tuple(stated.of_coalition(epsilon, budget) for epsilon in coalitions)

    def key_of(partition: Partition) -> Hashable:
        stated = caps[partition.ref]
        own = of_coalitions(stated, partition.epsilon) if coalitions else ()
        return *_terms(partition), stated.everyone, stated.lineage, stated.share, own

    return _group_by(partitions, key_of)


def _terms(partition: Partition) -> tuple[Hashable, ...]:
    return (
        partition.terms,
        partition.relation,
        partition.unit,
        partition.unit_records_max,
        partition.epsilon,
        partition.delta,
    )


def _group_by(partitions: Sequence[Partition], key: Callable[[Partition], Hashable]) -> tuple[Group, ...]:
    groups: dict[Hashable, list[Partition]] = {}
    for partition in partitions:
        groups.setdefault(key(partition), []).append(partition)
    if len(groups) > GROUPS_MAX:
        rule = f"partitions of {len(groups)} different terms are more than the {GROUPS_MAX} of one charge"
        raise Rejected(Code.MALFORMED, f"body.ranges: {rule}", "body.ranges")
    return tuple(map(tuple, groups.values()))


def group_runs(partitions: Sequence[Partition], groups: Sequence[Group]) -> list[c.Json]:
    """The partitions in order, run-length encoded: a group's number and how many in a row belong to it."""
    number = {partition.ref: place for place, group in enumerate(groups) for partition in group}
    return [[group, sum(1 for _ in run)] for group, run in groupby(number[partition.ref] for partition in partitions)]


def require_same_unit(partitions: Sequence[Partition]) -> None:
    """Check that partitions of ranges have one privacy unit and one neighbouring relation. Raises: Rejected."""
    first = partitions[0]
    for other in partitions:
        if (other.unit, other.relation) != (first.unit, first.relation):
            rule = (
                f"{first.ref} has the unit {first.unit} and the relation {first.relation}, "
                f"{other.ref} has {other.unit} and {other.relation}: one run cannot span both"
            )
            raise Rejected(Code.MALFORMED, f"body.ranges: {rule}", "body.ranges")
