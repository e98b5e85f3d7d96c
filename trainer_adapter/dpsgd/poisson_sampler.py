"""True Poisson sampling: at every step each record enters on its own, with one probability.

A record enters with probability floor(probability * 2^64) / 2^64, worked out on the exact fraction: at most the
plan's, by less than 2^-64, and the charge covers it. Up to 1/16 the gaps between records that enter are drawn, exactly
(``geometric_gaps``), by about as many words as records enter; above it a record enters if its own word is below.
A draw is then cut into microbatches of one fixed size whose last is filled with masked places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer_adapter.dpsgd.csprng import Stream
from trainer_adapter.dpsgd.geometric_gaps import gaps

WORDS_AT_ONCE: Final = 1 << 20
GAPS_BELOW: Final = 1 << 60
"""Up to this threshold, a probability of 1/16, gaps are drawn."""


@dataclass(frozen=True, slots=True)
class Microbatch:
    """The units that pass through the model at once.

    Attributes:
        indices: the records' places in the partition, shape (size,), int64; 0 where the mask is false.
        mask: true where a record was drawn, shape (size,).
    """

    indices: NDArray[np.int64]
    mask: NDArray[np.bool_]

    def only(self, place: int) -> Microbatch:
        """The same places with a single unit in them."""
        return Microbatch(self.indices, self.mask & (np.arange(len(self.mask)) == place))

    def filled(self, size: int) -> Microbatch:
        """Filled up to ``size`` places with masked ones."""
        more = size - len(self.mask)
        return Microbatch(np.pad(self.indices, (0, more)), np.pad(self.mask, (0, more)))


def threshold(probability: Fraction) -> int:
    """The number of 64-bit words that let a record in: floor(probability * 2^64), from 0 to 2^64."""
    return (probability.numerator << 64) // probability.denominator


def draw(stream: Stream, records: int, probability: Fraction) -> NDArray[np.int64]:
    """One logical batch: the places of the records that enter, rising, int64, their number random.

    Each enters by itself, whichever others do.
    """
    below = threshold(probability)
    if below <= GAPS_BELOW:
        return _by_gaps(stream, records, below)
    drawn = []
    for start in range(0, records, WORDS_AT_ONCE):
        words = stream.words(min(WORDS_AT_ONCE, records - start))
        # 2^64 is no 64-bit word: at probability 1 every record enters.
        inside = np.arange(len(words)) if below == 1 << 64 else np.flatnonzero(words < np.uint64(below))
        drawn.append(inside.astype(np.int64) + start)
    return np.concatenate(drawn) if drawn else np.empty(0, dtype=np.int64)


def _by_gaps(stream: Stream, records: int, below: int) -> NDArray[np.int64]:
    """The same, from one record that enters to the next."""
    drawn, last = [np.empty(0, dtype=np.int64)], -1
    while below and last < records - 1:
        expected = (records - 1 - last) * below / 2.0**64
        count = min(WORDS_AT_ONCE, int(expected + 4 * sqrt(expected)) + 8)
        places = last + np.cumsum(gaps(stream, count, below, records) + 1)
        last = int(places[-1])
        drawn.append(places[places < records])
    return np.concatenate(drawn)


def microbatches(drawn: NDArray[np.int64], size: int) -> Iterator[Microbatch]:
    """Cut a logical batch into masked microbatches of ``size`` places; an empty one gives none.

    An empty logical batch is still a step: its sum is zero and it gets its noise like any other.
    """
    for start in range(0, len(drawn), size):
        part = drawn[start : start + size]
        yield Microbatch(part, np.ones(len(part), dtype=np.bool_)).filled(size)
