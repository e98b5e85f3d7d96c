"""True Poisson sampling: at every step each record enters on its own, with one probability.

A record enters if and only if its own 64-bit word is below floor(probability * 2^64), worked out on the exact
fraction. So the sampler's probability is at most the plan's, by less than 2^-64, and the charge covers it.
A draw is then cut into microbatches of one fixed size whose last is filled with masked places.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer_adapter.dpsgd.csprng import Stream

WORDS_AT_ONCE: Final = 1 << 20


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

    Takes exactly ``records`` words of the stream, so a record's chance never depends on another's.
    """
    below = threshold(probability)
    drawn = []
    for start in range(0, records, WORDS_AT_ONCE):
        words = stream.words(min(WORDS_AT_ONCE, records - start))
        # 2^64 is no 64-bit word: at probability 1 every record enters.
        inside = np.arange(len(words)) if below == 1 << 64 else np.flatnonzero(words < np.uint64(below))
        drawn.append(inside.astype(np.int64) + start)
    return np.concatenate(drawn) if drawn else np.empty(0, dtype=np.int64)


def microbatches(drawn: NDArray[np.int64], size: int) -> Iterator[Microbatch]:
    """Cut a logical batch into masked microbatches of ``size`` places; an empty one gives none.

    An empty logical batch is still a step: its sum is zero and it gets its noise like any other.
    """
    for start in range(0, len(drawn), size):
        part = drawn[start : start + size]
        yield Microbatch(part, np.ones(len(part), dtype=np.bool_)).filled(size)
