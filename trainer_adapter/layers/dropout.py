"""Dropout (Srivastava et al. 2014) whose masks belong to a record, and to nothing else in the batch.

PyTorch draws masks from one generator in the order of the batch: a record more or less would change all others'. Here
each record has a key of its own at each step, and a mask is Philox's word at (place in the tensor, number of the call)
under it. So what a record adds to the sum is a function of the record, the weights and its own key: not of which others
were drawn, the microbatch, or how it runs.

Why that is private. The keys are words of a ChaCha20 stream (``randomness``), one for each record of the partition,
drawn or not: independent of each other and of all data. Put zero in a record's place, and with equal keys every other
contribution is the same, bit by bit. Take the record out, and those behind it get their neighbours' keys, which are as
independent and uniform as their own: the sampler's argument. No property of Philox is needed here: badly drawn masks
would train badly, no more. Keys and masks are private all the same, since the second argument averages over
them; they are never reported, and end with the process.

Caught are PyTorch's own functions, so it does not matter which module calls them: ``nn.Dropout``, its kin by channel
and by feature, ``AlphaDropout``, attention's ``dropout_p``, what drops between recurrent layers, and
``torch.nn.functional``. In evaluation mode they drop nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from trainer_adapter.layers.attention import AttentionCall
from trainer_adapter.layers.functional_call import FunctionMode, body_of
from trainer_adapter.layers.rnn import has_dropout, unrolled

Keys: TypeAlias = NDArray[np.uint64]
"""One 64-bit word for each record of the partition, shape (records,); private."""
Word: TypeAlias = Tensor | int
Block: TypeAlias = tuple[Word, Word, Word, Word]

WORD: Final = (1 << 32) - 1
ROUNDS: Final = 10
_FACTORS: Final = (0xD2511F53, 0xCD9E8D57)
_STEPS: Final = (0x9E3779B9, 0xBB67AE85)
LANES: Final = 1 << 16
"""A place drops if its 16 bits are below p of it. So p counts to the nearest 2^-16, and what is kept is scaled by
exactly that p."""
_ALPHA: Final = 1.7580993408473766
"""Minus the least value of SELU (Klambauer et al. 2017, section "New dropout technique")."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """One of PyTorch's functions: whether whole channels drop, to SELU's least value, and where they lie."""

    channels: bool
    alpha: bool
    in_place: bool


_KINDS: Final = {
    getattr(torch, name + "_" * in_place): _Kind(channels, alpha, in_place)
    for name, channels, alpha in (
        ("dropout", False, False),
        ("feature_dropout", True, False),
        ("alpha_dropout", False, True),
        ("feature_alpha_dropout", True, True),
    )
    for in_place in (False, True)
}
_OPENED: Final = frozenset({
    functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d, functional.alpha_dropout,
    functional.feature_alpha_dropout, functional.multi_head_attention_forward,
})  # fmt: skip
"""Made of the functions above: their bodies run under our eyes."""


def dropout_keys(keys: Keys | None, places: Tensor, valid: Tensor) -> Tensor:
    """The keys of the records at these places, as Philox takes them: shape (..., 2), int64, the lower 32 bits first.

    Zeros where nothing is valid, and without keys.
    """
    if keys is None:
        return torch.zeros((*places.shape, 2), dtype=torch.int64)
    words = keys[places.numpy()]
    parts = np.stack((words & np.uint64(WORD), words >> np.uint64(32)), axis=-1)
    return torch.where(valid[..., None], torch.from_numpy(parts.astype(np.int64)), 0)


class PerExampleDropout(FunctionMode):
    """Draws every mask of one record's forward pass from its key.

    Attributes:
        calls: how many masks were drawn.
    """

    def __init__(self, key: Tensor | None) -> None:
        """``key`` has shape (2,), int64, each from 0 to 2^32 - 1. Without one nothing drops."""
        super().__init__()
        self._key = key
        self.calls = 0

    def replace(self, function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any function of PyTorch's
        """Run the call, with this record's masks if it drops something."""
        if function in _OPENED:
            with self:
                return body_of(function)(*args, **kwargs)
        recurrent = unrolled(function, args, kwargs) if has_dropout(function, args) else None
        if recurrent is not None:
            with self:
                return recurrent(*args, **kwargs)
        if function is functional.scaled_dot_product_attention:
            return self._attention(AttentionCall(*args, **kwargs))
        kind = _KINDS.get(function)
        return function(*args, **kwargs) if kind is None else self._drop(kind, *args, **kwargs)

    def _drop(self, kind: _Kind, input: Tensor, p: float, train: bool) -> Tensor:  # noqa: A002, FBT001 - PyTorch's names
        below = _below(p)
        if not (train and below and self._key is not None):
            return input
        if p == 1:
            dropped = input * 0.0
        else:
            shape = _of_channels(input.shape) if kind.channels else input.shape
            dropped = _dropped(input, self._mask(shape, below), below / LANES, alpha=kind.alpha)
        return input.copy_(dropped) if kind.in_place else dropped

    def _attention(self, call: AttentionCall) -> Tensor:
        below = _below(call.dropout_p)
        if call.dropout_p == 1 or not below or self._key is None:
            whole = call._replace(dropout_p=0.0).run()
            return whole * 0.0 if below and self._key is not None else whole
        weights = _weights(call)
        weights = _dropped(weights, self._mask(weights.shape, below), below / LANES, alpha=False)
        return weights @ (_spread(call.value, call.query) if call.enable_gqa else call.value)

    def _mask(self, shape: Sequence[int], below: int) -> Tensor:
        """Which places of one record stay, bool: the next mask under its key."""
        assert self._key is not None
        count, low, high = math.prod(shape), self._key[:1], self._key[1:]
        blocks = torch.arange(-(-count // 8), device=low.device)
        words = philox((blocks, self.calls, 0, 0), (low, high))
        self.calls += 1
        lanes = (half for word in words for half in (word & (LANES - 1), word >> 16))
        return torch.cat([half >= below for half in lanes])[:count].reshape(shape)


def _below(p: float) -> int:
    """How many of 2^16 values of a place's bits drop it; all of them for 1 alone. Raises: ValueError."""
    if not 0 <= p <= 1:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    return LANES if p == 1 else min(round(p * LANES), LANES - 1)


def _of_channels(shape: Sequence[int]) -> tuple[int, ...]:
    """One place for each channel, which is the second dimension. Raises: ValueError."""
    if len(shape) < 2:
        raise ValueError("dropout of channels needs a dimension of channels")
    return (*shape[:2], *(1 for _ in shape[2:]))


def _weights(call: AttentionCall) -> Tensor:
    """Attention's weights of all pairs of positions (Vaswani et al. 2017, section 3.2.1), held at once.

    No fused kernel takes a mask of them from outside. Where nothing may be looked at they are zero, as in PyTorch.
    """
    query, mask = call.query * (call.query.shape[-1] ** -0.5 if call.scale is None else call.scale), call.attn_mask
    scores = query @ (_spread(call.key, query) if call.enable_gqa else call.key).mT
    if call.is_causal:
        if mask is not None:
            raise ValueError("attention takes a mask or is_causal, not both")
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask
    weights: Tensor = torch._safe_softmax(scores, -1)  # noqa: SLF001 - it has no other name
    return weights


def _spread(part: Tensor, query: Tensor) -> Tensor:
    """Keys or values of fewer heads, repeated for each query's."""
    return part.repeat_interleave(query.shape[-3] // part.shape[-3], dim=-3)


def _dropped(value: Tensor, kept: Tensor, rate: float, *, alpha: bool) -> Tensor:
    if not alpha:
        return torch.where(kept, value * (1 / (1 - rate)), 0.0)
    # Klambauer et al. 2017: back to mean 0 and variance 1, if they were that before.
    stretch = ((_ALPHA * _ALPHA * rate + 1) * (1 - rate)) ** -0.5
    result: Tensor = torch.where(kept, value, -_ALPHA) * stretch + stretch * _ALPHA * rate
    return result


def philox(counter: Block, key: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words for each counter: int64 from 0 to 2^32 - 1, as the counter's four and the key's two must be.

    Philox 4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 3.3) in
    whole tensors: random words by number, none of which depends on what was drawn before. Words of 32 bits are held in
    int64, where a product of two of them wraps with all its 64 bits right; so the same operations run on every device,
    under ``vmap``, traced and compiled. It is a statistical generator and keeps no secret.

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
