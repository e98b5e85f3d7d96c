"""ChaCha20 (RFC 8439) and Box-Muller in Triton: the words of ``dpsgd.csprng`` bit for bit, and its normals.

Words are 64 bits, little-endian, eight to a block. A uniform keeps 53 of a word's bits, as on the CPU: with the 24 of
float32 no normal would lie beyond sqrt(48 log 2) = 5.77 standard deviations. Radius and angle are in float64; they
differ from the CPU's by how each device rounds a logarithm, a cosine and a sine.
"""

from __future__ import annotations

import math
from typing import Final

import triton
import triton.language as tl

_UNIT: Final = tl.constexpr(2.0**-53)
_TURN: Final = tl.constexpr(2.0 * math.pi)


@triton.jit
def _rotated(word: tl.tensor, bits: tl.constexpr) -> tl.tensor:
    return (word << bits) | (word >> (32 - bits))


@triton.jit
def _quarter_round(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tl.tensor:
    a = a + b
    d = _rotated(d ^ a, 16)
    c = c + d
    b = _rotated(b ^ c, 12)
    a = a + b
    d = _rotated(d ^ a, 8)
    c = c + d
    b = _rotated(b ^ c, 7)
    return a, b, c, d


@triton.jit
def _key_word(key: tl.tensor, place: tl.constexpr) -> tl.tensor:
    return tl.load(key + place).to(tl.uint32, bitcast=True)


@triton.jit
def _word(low: tl.tensor, high: tl.tensor) -> tl.tensor:
    return low.to(tl.uint64) | (high.to(tl.uint64) << 32)


@triton.jit
def block(key: tl.tensor, counter: tl.tensor) -> tl.tensor:
    """The eight 64-bit words of each block in ``counter``, uint32; ``key`` points to 8 words of key, 3 of nonce."""
    zero = tl.zeros_like(counter)
    x0, x1, x2, x3 = zero + 0x61707865, zero + 0x3320646E, zero + 0x79622D32, zero + 0x6B206574
    x4, x5, x6, x7 = (
        zero + _key_word(key, 0),
        zero + _key_word(key, 1),
        zero + _key_word(key, 2),
        zero + _key_word(key, 3),
    )
    x8, x9, x10, x11 = (
        zero + _key_word(key, 4),
        zero + _key_word(key, 5),
        zero + _key_word(key, 6),
        zero + _key_word(key, 7),
    )
    x12, x13, x14, x15 = counter, zero + _key_word(key, 8), zero + _key_word(key, 9), zero + _key_word(key, 10)
    for _ in range(10):
        x0, x4, x8, x12 = _quarter_round(x0, x4, x8, x12)
        x1, x5, x9, x13 = _quarter_round(x1, x5, x9, x13)
        x2, x6, x10, x14 = _quarter_round(x2, x6, x10, x14)
        x3, x7, x11, x15 = _quarter_round(x3, x7, x11, x15)
        x0, x5, x10, x15 = _quarter_round(x0, x5, x10, x15)
        x1, x6, x11, x12 = _quarter_round(x1, x6, x11, x12)
        x2, x7, x8, x13 = _quarter_round(x2, x7, x8, x13)
        x3, x4, x9, x14 = _quarter_round(x3, x4, x9, x14)
    w0 = _word(x0 + 0x61707865, x1 + 0x3320646E)
    w1 = _word(x2 + 0x79622D32, x3 + 0x6B206574)
    w2 = _word(x4 + _key_word(key, 0), x5 + _key_word(key, 1))
    w3 = _word(x6 + _key_word(key, 2), x7 + _key_word(key, 3))
    w4 = _word(x8 + _key_word(key, 4), x9 + _key_word(key, 5))
    w5 = _word(x10 + _key_word(key, 6), x11 + _key_word(key, 7))
    w6 = _word(x12 + counter, x13 + _key_word(key, 8))
    w7 = _word(x14 + _key_word(key, 9), x15 + _key_word(key, 10))
    return w0, w1, w2, w3, w4, w5, w6, w7


@triton.jit
def words_by_block(key: tl.tensor, first: tl.tensor, lanes: tl.constexpr) -> tl.tensor:
    """Words ``first`` and after it, shape (8 * lanes,), uint64, one block a lane; ``first`` is a multiple of 8."""
    w0, w1, w2, w3, w4, w5, w6, w7 = block(key, (first // 8 + tl.arange(0, lanes)).to(tl.uint32))
    even = tl.interleave(tl.interleave(w0, w4), tl.interleave(w2, w6))
    odd = tl.interleave(tl.interleave(w1, w5), tl.interleave(w3, w7))
    return tl.interleave(even, odd)


@triton.jit
def words_one_by_one(key: tl.tensor, first: tl.tensor, count: tl.constexpr) -> tl.tensor:
    """The same from any ``first``, shape (count,), at eight times the work: of a stream's last piece alone."""
    index = first + tl.arange(0, count)
    w0, w1, w2, w3, w4, w5, w6, w7 = block(key, (index // 8).to(tl.uint32))
    place = index % 8
    low = tl.where(place == 0, w0, tl.where(place == 1, w1, tl.where(place == 2, w2, w3)))
    high = tl.where(place == 4, w4, tl.where(place == 5, w5, tl.where(place == 6, w6, w7)))
    return tl.where(place < 4, low, high)


@triton.jit
def box_muller(radius_words: tl.tensor, angle_words: tl.tensor) -> tl.tensor:
    """Two independent standard normals of each pair of words, float64 (Box and Muller 1958)."""
    radius = tl.sqrt(tl.log(((radius_words >> 11).to(tl.float64) + 1.0) * _UNIT) * -2.0)
    angle = ((angle_words >> 11).to(tl.float64) * _UNIT) * _TURN
    return radius * tl.cos(angle), radius * tl.sin(angle)
