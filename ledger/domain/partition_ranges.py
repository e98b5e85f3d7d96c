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
                opened = [*(orders[name].refs if name in orders else ()), *refs]
                orders[name] = OpeningOrder(sorted(opened, key=lambda ref: partitions[ref].index))
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
    refs = [*listed]
    for place, range_ in enumerate(ranges):
        refs += _within(facts, range_, f"body.ranges[{place}]")
        if len(refs) > PARTITIONS_MAX:
            rule = f"names more than {PARTITIONS_MAX} partitions with those before it"
            raise _broken(f"body.ranges[{place}]", rule)
    if len(set(refs)) != len(refs):
        twice = next(ref for place, ref in enumerate(refs) if ref in refs[:place])
        raise _broken("body.ranges", f"names {twice} twice")
    return tuple(refs)


def _within(facts: Facts, range_: PartitionRange, field: str) -> tuple[str, ...]:
    order = facts.opening_order(range_.dataset)
    ends = []
    for side, name in (("first", range_.first), ("last", range_.last)):
        place = order.places.get(f"{range_.dataset}/{name}")
        if place is None:
            detail = f"there is no partition {range_.dataset}/{name}"
            raise Rejected(Code.NOT_FOUND, detail, f"{field}.{side}")
        ends.append(place)
    first, last = ends
    if first > last:
        raise _broken(field, f"is reversed: {range_.last} opened before {range_.first}")
    return order.refs[first : last + 1]


def _broken(field: str, rule: str) -> Rejected:
    return Rejected(Code.MALFORMED, f"{field}: {rule}", field)


def runs_of_places(places: Collection[int]) -> Iterator[tuple[int, int]]:
    """Ascending places as runs: the first place and how many follow one another from it on."""
    for _, run in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        members = [place for _, place in run]
        yield members[0], len(members)


def in_words(partitions: Sequence[str], some: Collection[str]) -> str:
    """Some partitions of a charge for people: ``claims[2026-W31..2026-W33], claims[2026-W40]``.

    Args:
        partitions: all of the charge, in its order.
        some: those to be named: by their places in the charge (the first is 1), if the names are too long.
    """
    chosen = set(some)
    runs = [*runs_of_places([place for place, ref in enumerate(partitions) if ref in chosen])]
    words = []
    for first, count in runs:
        # A run of places may go from one dataset into the next.
        for dataset, within in groupby(partitions[first : first + count], key=dataset_of_ref):
            names = [ref.rpartition("/")[2] for ref in within]
            words.append(f"{dataset}[{names[0]}..{names[-1]}]" if len(names) > 1 else f"{dataset}/{names[0]}")
    listed = ", ".join(words)
    if len(listed) <= _NAMES_MAX:
        return listed
    places = (f"{first + 1}-{first + count}" if count > 1 else str(first + 1) for first, count in runs)
    return f"numbers {', '.join(places)} of the {len(partitions)} partitions"
