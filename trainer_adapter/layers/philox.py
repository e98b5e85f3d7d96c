"""Philox 4x32-10 in whole tensors: random words by number, none of which depends on what was drawn before.

Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3. Words of 32 bits are held
in int64, where a product of two of them wraps with all its 64 bits right; so the same operations run on every device,
under ``vmap``, traced and compiled. It is a statistical generator and keeps no secret.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import torch
from torch import Tensor

Word: TypeAlias = Tensor | int
Block: TypeAlias = tuple[Word, Word, Word, Word]

WORD: Final = (1 << 32) - 1
ROUNDS: Final = 10
_FACTORS: Final = (0xD2511F53, 0xCD9E8D57)
_STEPS: Final = (0x9E3779B9, 0xBB67AE85)


def philox(counter: Block, key: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words for each counter: int64 from 0 to 2^32 - 1, as the counter's four and the key's two must be.

    All are broadcast together; at least the key is a tensor.
    """
    a, b, c, d = counter
    for low, high in zip(*map(_schedule, key, _STEPS), strict=True):
        first, second = a * _FACTORS[0], c * _FACTORS[1]
        # A whole product serves as its lower word; the bits above are cut off before they count.
        a, b = ((second >> 32) ^ b ^ low) & WORD, second
        c, d = ((first >> 32) ^ d ^ high) & WORD, first
    return a & WORD, b & WORD, c & WORD, d & WORD  # type: ignore[return-value] # tensors, since the key is one


def _schedule(word: Tensor, step: int) -> tuple[Tensor, ...]:
    """One word of the key for each round, by a few operations for all of them."""
    rounds = torch.arange(ROUNDS, device=word.device).reshape(-1, *(1 for _ in word.shape))
    return ((word + rounds * step) & WORD).unbind()
