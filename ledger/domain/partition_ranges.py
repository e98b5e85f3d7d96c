"""Ranges of partitions: from a first one of a dataset to a last one, in order of opening, both included.

A run over many slices of a dataset names them by ranges. A partition that opens later has a later place in the log, so
a range between two open partitions always covers the same ones.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Final

from ledger.domain.decision import Rejected
from ledger.domain.facts import Facts, OpeningOrder, Partition
from ledger.domain.outcomes import Code
from ledger.wire.field_types import DatasetRef, Name, distinct
from ledger.wire.records import Record

PARTITIONS_MAX: Final = 1_024
"""Partitions of one charge, those in its ranges included."""
RANGES_MAX: Final = 64
"""Ranges of one charge."""
_NAMES_MAX: Final = 2_000
"""Characters of a list of partitions in a message; a longer list is given as places in the charge."""


class PartitionRange(Record, frozen=True):
    """The partitions of a dataset, in order of opening, from ``first`` to ``last``, both included."""

    dataset: DatasetRef
    first: Name
    last: Name

    def __str__(self) -> str:
        """``did:web:hospital.example/claims[2026-W31..2026-W43]``."""
        return f"{self.dataset}[{self.first}..{self.last}]"


Ranges = Annotated[tuple[PartitionRange, ...], distinct(RANGES_MAX)]


class OpeningOrders:
    """By dataset, the order in which its partitions opened; for any thread. Partitions are only ever added."""

    def __init__(self) -> None:
        """None yet."""
        self._known: tuple[int, dict[str, OpeningOrder]] = 0, {}

    def of(self, partitions: Mapping[str, Partition], dataset: str) -> OpeningOrder:
        """The order of one dataset, with all that opened since the last call."""
        # Replaced as a whole and never changed: several threads may compute the same at once.
        seen, orders = self._known
        if seen != len(partitions):
            every = [*partitions]
            new: dict[str, list[str]] = {}
            for ref in every[seen:]:
                new.setdefault(dataset_of_ref(ref), []).append(ref)
            orders = {**orders}
            for name, refs in new.items():
                known = [*(orders[name].refs if name in orders else ()), *refs]
                orders[name] = OpeningOrder(sorted(known, key=lambda ref: partitions[ref].index))
            self._known = len(every), orders
        return orders.get(dataset) or OpeningOrder()


def dataset_of_ref(ref: str) -> str:
    """``provider/dataset`` of a partition's reference."""
    return ref.rpartition("/")[0]


def partitions_within(facts: Facts, listed: tuple[str, ...], ranges: tuple[PartitionRange, ...]) -> tuple[str, ...]:
    """The listed partitions, then those of each range in order of opening.

    Raises:
        Rejected: where an end is not open, a range is reversed, a partition is in it twice, or there are too many.
    """
    found = [*listed]
    for place, range_ in enumerate(ranges):
        found += _within(facts, range_, f"body.ranges[{place}]")
        if len(found) > PARTITIONS_MAX:
            rule = f"names more than {PARTITIONS_MAX} partitions with those before it"
            raise _broken(f"body.ranges[{place}]", rule)
    if len(set(found)) != len(found):
        twice = next(ref for place, ref in enumerate(found) if ref in found[:place])
        raise _broken("body.ranges", f"names {twice} twice")
    return tuple(found)


def _within(facts: Facts, named: PartitionRange, field: str) -> tuple[str, ...]:
    order = facts.opening_order(named.dataset)
    ends = []
    for side, name in (("first", named.first), ("last", named.last)):
        place = order.places.get(f"{named.dataset}/{name}")
        if place is None:
            detail = f"there is no partition {named.dataset}/{name}"
            raise Rejected(Code.NOT_FOUND, detail, f"{field}.{side}")
        ends.append(place)
    first, last = ends
    if first > last:
        raise _broken(field, f"is reversed: {named.last} opened before {named.first}")
    return order.refs[first : last + 1]


def _broken(field: str, rule: str) -> Rejected:
    return Rejected(Code.MALFORMED, f"{field}: {rule}", field)


def runs_of_places(places: Collection[int]) -> Iterator[tuple[int, int]]:
    """Ascending places as runs: the first place and how many follow one another from it on."""
    for _, run in groupby(enumerate(places), key=lambda one: one[1] - one[0]):
        members = [place for _, place in run]
        yield members[0], len(members)


def in_words(partitions: Sequence[str], some: Collection[str]) -> str:
    """Some partitions of a charge for people: ``claims[2026-W31..2026-W33], claims[2026-W40]``.

    Args:
        partitions: all of the charge, in its order.
        some: those to be named: by their places in the charge (the first is 1), if the names are too long.
    """
    wanted = set(some)
    runs = [*runs_of_places([place for place, ref in enumerate(partitions) if ref in wanted])]
    words = []
    for first, count in runs:
        # A run of places may go from one dataset into the next.
        for dataset, within in groupby(partitions[first : first + count], key=dataset_of_ref):
            names = [ref.rpartition("/")[2] for ref in within]
            words.append(f"{dataset}[{names[0]}..{names[-1]}]" if len(names) > 1 else f"{dataset}/{names[0]}")
    named = ", ".join(words)
    if len(named) <= _NAMES_MAX:
        return named
    places = (f"{first + 1}-{first + count}" if count > 1 else str(first + 1) for first, count in runs)
    return f"numbers {', '.join(places)} of the {len(partitions)} partitions"
