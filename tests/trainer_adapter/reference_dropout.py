"""Dropout masks worked out a second time: Philox 4x32-10 in Python's own integers, one place after another."""

from __future__ import annotations

import math
from typing import Final

import torch
from torch import Tensor

WORD: Final = 0xFFFFFFFF


def philox_of(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """One block, as Salmon et al. 2011 write it: multiply, permute, exclusive or, and raise the key by Weyl's steps."""
    left_1, right_1, left_2, right_2 = counter
    first, second = key
    for _ in range(10):
        high_1, low_1 = divmod(0xD2511F53 * left_1, 2**32)
        high_2, low_2 = divmod(0xCD9E8D57 * left_2, 2**32)
        left_1, right_1, left_2, right_2 = high_2 ^ right_1 ^ first, low_2, high_1 ^ right_2 ^ second, low_1
        first, second = (first + 0x9E3779B9) & WORD, (second + 0xBB67AE85) & WORD
    return left_1, right_1, left_2, right_2


def kept(key: int, call: int, shape: tuple[int, ...], p: float) -> Tensor:
    """Which places of the ``call``-th mask under a record's 64-bit key stay, bool.

    A block gives eight places, from its words' lower and upper halves: all places of the first half come first.
    """
    count = math.prod(shape)
    blocks = -(-count // 8)
    words = [philox_of((block, call, 0, 0), (key & WORD, key >> 32)) for block in range(blocks)]
    places = [half(block[word]) for word in range(4) for half in (_lower, _upper) for block in words]
    return torch.tensor([place >= round(p * 65536) for place in places[:count]]).reshape(shape)


def _lower(word: int) -> int:
    return word & 0xFFFF


def _upper(word: int) -> int:
    return word >> 16
