"""The global account as one sharer sees it: its own part exactly, the part of all others rounded up.

The exact sum less one's own part, divided by public prices, would reveal a competitor's plan. So the part of
others is one amount, in steps of a twentieth of the capacity at each coordinate: it is never less than what counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ledger.mechanisms.loss import Loss

STEPS: Final = 20
"""The capacity is divided into this many steps."""


def others_rounded_up(whole: Loss, own: Loss, capacity: Sequence[int | None]) -> Loss:
    """The part of others in ``whole``, rounded up to steps of ``capacity``."""
    # After a decree the global account may count less than one lineage's.
    finite = (max(0, all_ - mine) for all_, mine in zip(whole.finite, own.finite, strict=True))
    infinite = (int(all_ > mine) for all_, mine in zip(whole.infinite, own.infinite, strict=True))
    return Loss(tuple(map(_rounded_up, finite, capacity)), tuple(infinite))


def counted_with_others(whole: Loss, own: Loss, capacity: Sequence[int | None]) -> Loss:
    """What counts of an account with the part of others rounded up: ``whole``, or at most one step more.

    Of an account that is rounded already it is the same, at every coordinate that has a capacity.
    """
    # After a decree less may count of the whole than of one's own part.
    mine = Loss(tuple(map(min, own.finite, whole.finite)), tuple(map(min, own.infinite, whole.infinite)))
    return mine + others_rounded_up(whole, mine, capacity)


def least_of_others(shown: Loss, capacity: Sequence[int | None]) -> Loss:
    """The least that others may have if their part is shown as ``shown``; it follows from that and reveals no more."""
    return Loss(tuple(map(_one_step_less, shown.finite, capacity)), shown.infinite)


def _one_step_less(rounded: int, capacity: int | None) -> int:
    return max(0, rounded + capacity // -STEPS) if capacity else rounded // 2


def _rounded_up(loss: int, capacity: int | None) -> int:
    """To whole steps; where a coordinate has no capacity of its own, to a power of two."""
    if not capacity:
        return (1 << loss.bit_length()) if loss else 0
    step = -(-capacity // STEPS)
    return -(-loss // step) * step
