"""The coins and the guesses of a one-run audit; :mod:`ledger.accounts.audit_bound` has what they prove."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ledger.accounts.audit_bound import Tally
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.csprng import Stream


def flip(stream: Stream, canaries: int) -> NDArray[np.bool_]:
    """Fair coins, shape (canaries,): which canaries go into the data. Raises: OverflowError."""
    return (stream.words(canaries) >> np.uint64(63)).astype(np.bool_)


def tally(scores: NDArray[np.float64], included: NDArray[np.bool_], guesses: int, *, only_in: bool = False) -> Tally:
    """Say "in" of the half of the guesses with the highest scores, "out" of the half with the lowest, and count.

    Args:
        scores: shape (canaries,); the higher, the more a canary looks as if it had been trained on.
        included: shape (canaries,); the coins.
        guesses: how many of both together; chosen without the coins.
        only_in: whether all guesses are "in". Where records are drawn rarely, one that was drawn is louder than one
            that was not is silent: the absent look like many that were never drawn.

    Raises:
        Malformed: for scores that are not finite, shapes that differ, or more guesses than canaries.
    """
    if scores.ndim != 1 or scores.shape != included.shape:
        raise Malformed("scores", "must be one number for each coin")
    if not np.isfinite(scores).all():
        raise Malformed("scores", "must be finite")
    order = np.argsort(scores, kind="stable")
    lowest = 0 if only_in else guesses // 2
    low, high = order[:lowest], order[len(order) - (guesses - lowest) :]
    return Tally(len(scores), guesses, int((~included[low]).sum() + included[high].sum()))
