"""An odometer for rules whose filter is exact at one number only: checkpoints that share δ.

Reporting the ε of a data-dependent count at the whole of δ is no bound: which count is reached depends on outputs. The
counts n_1 < n_2 < ... are fixed beforehand, each with a share κ of δ; the reported ε is that of the least checkpoint
that the count has not passed, at κ·δ. Let E_j be the event that it is the j-th: on E_j the run equals the run cut off
at n_j, so the losses of δ over all j add up to at most δ·Σκ <= δ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ledger.mechanisms.loss import Loss

WITHIN: Final = 5
"""Checkpoints up to the budget, each twice the one before; they share half of δ equally."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A count, and its share of δ."""

    at: int
    weight: Fraction


def checkpoint(count: int, capacity: int) -> Checkpoint:
    """The least checkpoint that ``count`` has not passed; beyond the budget they go on doubling.

    The i-th one beyond has the weight 3/(10·i²), and Σ 3/(10·i²) = π²/20 < 1/2.

    Raises:
        ArithmeticError: without a capacity.
    """
    if capacity < 1:
        raise ArithmeticError("an account without capacity has no checkpoints")
    for place in range(WITHIN):
        at = -(-capacity // 2 ** (WITHIN - 1 - place))
        if count <= at:
            return Checkpoint(at, Fraction(1, 2 * WITHIN))
    beyond, at = 1, 2 * capacity
    while count > at:
        beyond, at = beyond + 1, 2 * at
    return Checkpoint(at, Fraction(3, 10 * beyond * beyond))


def checkpoint_epsilon(
    loss: Loss, slack: int, capacity: Callable[[], int], epsilon: Callable[[int, Fraction], Fraction | None]
) -> Fraction:
    """The ε of the checkpoint that a loss has reached, counted at its first coordinate; 0 when nothing ran.

    Args:
        slack: δ units that the loss may hold at the second coordinate, if it has one.
        capacity: the count that keeps the budget, which the checkpoints divide.
        epsilon: the ε that so many counts keep at this share of δ, None if none is proven.

    Raises:
        ArithmeticError: if a charge is infinite, the slack is overdrawn, or no ε is proven.
    """
    if any(loss.infinite) or sum(loss.finite[1:]) > slack:
        raise ArithmeticError("the account holds an infinite charge, or more than its slack")
    if loss.finite[0] == 0:
        return Fraction(0)
    reached = checkpoint(loss.finite[0], capacity())
    bound = epsilon(reached.at, reached.weight)
    if bound is None:
        raise ArithmeticError("no finite ε is proven at this δ")
    return bound
