"""The kernel ``noise_step``: noise drawn, added to the sum, scaled, rounded and the weights updated, in one pass.

What it computes is what ``dpsgd.noisy_mean`` computes on a CPU: (total + noise_std * normals) / expected in float64,
rounded to float32. Normal i of n comes from the same words of the same stream: pairs lie in pieces of ``PIECE_PAIRS``,
a piece's words are those of all its radii and then those of all its angles; of pair j the cosine is normal j and the
sine normal j + ceil(n / 2). A program takes ``WIDTH`` pairs, both normals of each, and no two programs share a word.

The update is that of SGD (with momentum and Nesterov's) or of Adam and AdamW in float32, as PyTorch has it; weights and
moments are where the optimiser has them, and are reached by their addresses (``WeightUpdate`` names the factors).
"""

from __future__ import annotations

from typing import Final

import triton
import triton.language as tl

from trainer_adapter.gpu_kernels.chacha20 import box_muller, words_by_block, words_one_by_one

LANES: Final = 128
WIDTH: Final = 8 * LANES


@triton.jit
def _factor(factors: tl.tensor, place: tl.constexpr) -> tl.tensor:
    return tl.load(factors + place).to(tl.float32)


@triton.jit
def _sgd(weight: tl.tensor, moment: tl.tensor, factors: tl.tensor, gradient: tl.tensor, here: tl.tensor) -> None:
    value = tl.load(weight, mask=here, other=0.0)
    gradient = gradient * _factor(factors, 0) + _factor(factors, 1) * value
    # Blocks, since the interpreter compares a number as a number: whether there is a moment, and is one already.
    zero = tl.zeros_like(value)
    momentum, nesterov, new = zero + _factor(factors, 2), zero + _factor(factors, 4), zero + _factor(factors, 5)
    past = tl.load(moment, mask=here & (momentum != 0.0) & (new == 0.0), other=0.0)
    kept = tl.where(new != 0.0, gradient, momentum * past + _factor(factors, 3) * gradient)
    tl.store(moment, kept, mask=here & (momentum != 0.0))
    ahead = tl.where(nesterov != 0.0, gradient + momentum * kept, kept)
    tl.store(weight, value - _factor(factors, 6) * tl.where(momentum != 0.0, ahead, gradient), mask=here)


@triton.jit
def _adam(  # noqa: PLR0913, PLR0917 - two moments
    weight: tl.tensor, first: tl.tensor, second: tl.tensor, factors: tl.tensor, gradient: tl.tensor, here: tl.tensor
) -> None:
    value = tl.load(weight, mask=here, other=0.0)
    gradient = gradient * _factor(factors, 0) + _factor(factors, 1) * value
    mean = tl.load(first, mask=here, other=0.0)
    mean = mean + _factor(factors, 3) * (gradient - mean)
    square = tl.load(second, mask=here, other=0.0)
    square = _factor(factors, 4) * square + _factor(factors, 5) * gradient * gradient
    tl.store(first, mean, mask=here)
    tl.store(second, square, mask=here)
    root = tl.sqrt(square) / _factor(factors, 7) + _factor(factors, 8)
    tl.store(weight, value * _factor(factors, 2) - _factor(factors, 6) * mean / root, mask=here)


@triton.jit
def _address(table: tl.tensor, number: tl.tensor, offset: tl.tensor) -> tl.tensor:
    return tl.load(table + number).to(tl.pointer_type(tl.float32)) + offset


@triton.jit
def _released(  # noqa: PLR0913, PLR0917 - what the kernel reads
    total: tl.tensor,
    mean: tl.tensor,
    scales: tl.tensor,
    starts: tl.tensor,
    weights: tl.tensor,
    factors: tl.tensor,
    number: tl.tensor,
    place: tl.tensor,
    end: tl.tensor,
    normal: tl.tensor,
    weights_count: tl.tensor,
    kind: tl.constexpr,
) -> None:
    """Of the values at ``place``, below ``end``: the noisy mean, stored or made an update of the weights there."""
    inside = place < end
    summed = tl.load(total + place, mask=inside, other=0.0).to(tl.float64)
    gradient = ((normal * tl.load(scales) + summed) / tl.load(scales + 1)).to(tl.float32)
    if kind == 0:
        tl.store(mean + place, gradient, mask=inside)
    else:
        begin = tl.load(starts + number)
        while begin < end:
            stop = tl.load(starts + number + 1)
            here = inside & (place >= begin) & (place < stop)
            weight = _address(weights, number, place - begin)
            first = _address(weights + weights_count, number, place - begin)
            if kind == 1:
                _sgd(weight, first, factors + 9 * number, gradient, here)
            else:
                second = _address(weights + 2 * weights_count, number, place - begin)
                _adam(weight, first, second, factors + 9 * number, gradient, here)
            begin = stop
            number += 1


@triton.jit
def noise_step(  # noqa: PLR0913, PLR0917 - a launch has no objects
    total: tl.tensor,
    mean: tl.tensor,
    key: tl.tensor,
    scales: tl.tensor,
    starts: tl.tensor,
    numbers: tl.tensor,
    weights: tl.tensor,
    factors: tl.tensor,
    count: tl.tensor,
    weights_count: tl.tensor,
    skipped: tl.tensor,
    kind: tl.constexpr,
    aligned: tl.constexpr,
    piece: tl.constexpr,
    lanes: tl.constexpr,
) -> None:
    """``numbers`` holds, of each program, which weight its first cosine and its first sine belong to."""
    program = (skipped + tl.program_id(0)).to(tl.int64)
    width: tl.constexpr = 8 * lanes
    # Not of ``count + 1``: a count that fits 32 bits is passed in them, and one more than the greatest does not.
    pairs = count // 2 + count % 2
    start = program * width
    begin = start // piece * piece
    size = tl.minimum(pairs - begin, piece)
    word = begin + start
    if aligned:
        radius, angle = words_by_block(key, word, lanes), words_by_block(key, word + size, lanes)
    else:
        radius, angle = words_one_by_one(key, word, width), words_one_by_one(key, word + size, width)
    cosine, sine = box_muller(radius, angle)
    place, end = start + tl.arange(0, width), tl.minimum(start + width, pairs)
    one, other = tl.load(numbers + 2 * program), tl.load(numbers + 2 * program + 1)
    _released(total, mean, scales, starts, weights, factors, one, place, end, cosine, weights_count, kind)
    place, end = place + pairs, tl.minimum(end + pairs, count)
    _released(total, mean, scales, starts, weights, factors, other, place, end, sine, weights_count, kind)
