"""Kernels of the tests: what the parts of ``noise_step`` give by themselves. Imported where Triton is."""

from __future__ import annotations

import triton
import triton.language as tl

from trainer_adapter.gpu_kernels.chacha20 import box_muller, words_by_block, words_one_by_one


@triton.jit
def keystream(into: tl.tensor, key: tl.tensor, first: tl.tensor, one_by_one: tl.constexpr, lanes: tl.constexpr) -> None:
    """Words ``first`` and after it, by whole blocks or one by one."""
    first = first + tl.zeros((), tl.int64)
    words = words_one_by_one(key, first, 8 * lanes) if one_by_one else words_by_block(key, first, lanes)
    tl.store(into + tl.arange(0, 8 * lanes), words.to(tl.int64, bitcast=True))


@triton.jit
def normals(into: tl.tensor, radius: tl.tensor, angle: tl.tensor, count: tl.constexpr) -> None:
    """Both normals of each pair of words, the cosines first."""
    place = tl.arange(0, count)
    words = tl.load(radius + place).to(tl.uint64, bitcast=True), tl.load(angle + place).to(tl.uint64, bitcast=True)
    cosine, sine = box_muller(words[0], words[1])
    tl.store(into + place, cosine)
    tl.store(into + count + place, sine)
