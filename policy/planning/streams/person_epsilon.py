"""The ε that a person of a stream has lost so far, of whom several slices may hold records."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from ledger.domain.facts import Partition
from policy.documents.stream import StreamDocument


def person_epsilon(stream: StreamDocument, slices: Iterable[tuple[Partition, Fraction | None]]) -> Fraction | None:
    """The sum of the greatest that the slices show which one person may be in; None where none is proven.

    In as many slices by every version of the stream. It holds at the δ of the stream's budget.

    Args:
        slices: each with the ε so far of everyone's account, None where none is proven.
    """
    finite = []
    for slice_, epsilon in slices:
        # Beyond a slice's part of the budget its part of δ does not hold either, where a person is in several.
        if epsilon is None or (stream.appearances_max > 1 and epsilon > slice_.epsilon):
            return None
        finite.append(epsilon)
    return sum(sorted(finite, reverse=True)[: stream.appearances_max], Fraction(0))
