"""The newest slices of a stream that one run may cover: a range that a charge may name if each has room."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.domain.facts import Facts, Partition
from policy.decisions.stream_slices import missed_between
from policy.decisions.streams_in_force import slice_terms
from policy.documents.stream import WINDOW_MAX
from policy.planning.streams.slice_status import OPEN, RETIRED, Slice, slice_status


def newest_window(facts: Facts, slices: Sequence[Slice], at: int) -> tuple[Partition, ...]:
    """The newest consecutive slices that are open at a time (ms), in the order of opening; empty if none is.

    The row ends where a period was missed, where a unit or relation differs, and at the least ``window_max`` that
    binds one of its slices: a charge over more is refused.
    """
    inside: list[Partition] = []
    most = WINDOW_MAX
    for partition in reversed(slices):
        newest = partition.partition
        if newest is None:
            continue
        # A retired slice stays retired; reading its terms would cost more with every past slice.
        if partition.status == RETIRED or slice_status(facts, newest, at).status != OPEN:
            if inside:
                break
            continue
        terms = slice_terms(facts, newest)
        most = 0 if terms is None else min(most, terms.window_max)
        if len(inside) >= most or (inside and not _follow(facts, newest, inside[-1])):
            break
        inside.append(newest)
    return tuple(reversed(inside))


def _follow(facts: Facts, first: Partition, then: Partition) -> bool:
    """Whether one range of a run may hold both, the later one directly after the other."""
    comparable = (first.unit, first.relation) == (then.unit, then.relation)
    return comparable and next(missed_between(facts, first, then), None) is None
