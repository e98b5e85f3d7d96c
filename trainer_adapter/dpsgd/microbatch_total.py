"""The sum over the microbatches of one step, in float64, with or without compensation for its roundings.

Each addition rounds. Of few microbatches that is nothing; a step that may draw millions adds so often that the
roundings would count against the clipping norm. Kahan's summation carries what each addition lost into the next: the
whole is then off by at most 2u of the sum of the magnitudes, and a term of their number times u² (u = 2^-53; Higham
2002, algorithm 4.2 and equation 4.8), however many are added. It takes two vectors more and four additions for one.

Why not in float32, which is half as long: added plainly, n/b sums over n units are off by 2 u n n/b of the clipping
norm in the two neighbours' sums, u = 2^-24. The half of float32's margin, 2^-11, has room for n n/b = 2^12: 512 units
by microbatches of 64. Of 60,000 units it would be 6.7 times the clipping norm; compensated (6 u n) 2.1 % of it, where
the margin is 0.1 %, in three vectors of float32, which are longer than one of float64.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from ledger.wire.malformed import Malformed

ROUNDINGS_MAX: Final = 1 << 34
"""Of all units together, what the margin below the clipping norm covers in float64 (the proof is in ``engine``)."""
COMPENSATED_ROUNDINGS: Final = 3
"""Roundings (u) that a compensated sum of fewer than 2^40 terms is off by at most: 2, and the term of second order."""


def is_compensated(units: int, places: int, ranks: int = 1) -> bool:
    """Whether a draw of all units, so many at once, would round too often in a plain sum.

    ``ranks`` processes sum shards of the units, and their sums are added one after the other.

    Raises:
        Malformed: if one microbatch alone would.
    """
    more = ranks + 2
    if (places + COMPENSATED_ROUNDINGS + more) * units > ROUNDINGS_MAX:
        raise Malformed("microbatch", f"is too large for {units} records: sums would round too often")
    return (places + units // places + more) * units > ROUNDINGS_MAX


class MicrobatchTotal:
    """A running sum of vectors of one shape."""

    def __init__(self, *, compensated: bool) -> None:
        """Of nothing; ``compensated`` carries what each addition lost into the next."""
        self._compensated = compensated
        self._total: Tensor | None = None
        self._lost: Tensor | None = None

    def add(self, part: Tensor) -> None:
        """Add a vector, of any floating-point type; the first one may be summed up in its own place."""
        if self._total is None:
            self._total = part
            return
        total = self._total.to(torch.float64)
        if not self._compensated:
            # In place, widened number by number: no copy of it in float64.
            self._total = total.add_(part)
            return
        part = part.to(torch.float64)
        carried = part if self._lost is None else part - self._lost
        self._total = total + carried
        self._lost = (self._total - total) - carried

    @property
    def value(self) -> Tensor | None:
        """The sum: of the type of its only vector, else float64; None of nothing."""
        return self._total
