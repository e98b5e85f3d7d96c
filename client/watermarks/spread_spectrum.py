"""A watermark by spread spectrum: signs drawn by a key are added to weights, and found again by their correlation.

A tensor w becomes w + γ r c: r is the root of its mean square, c its signs, ±1, drawn from a keystream under the key
and the tensor's shape, and γ = strength / sqrt(number of marked values). The key was drawn without looking at the data
or at the model, so this is post-processing of the model and costs no ε.

The score of a model under a key is sum(a c) / sqrt(sum(a²)), where a adds up the model's tensors of one shape, each
less its mean, divided by its root mean square and cut off at ±4, so that no outlier outweighs the rest. Of weights that
were made without knowledge of the key, whatever they are, the signs are independent fair coins: so the score is at
least t with probability at most exp(-t²/2) (Hoeffding 1963, theorem 2), over the key's randomness alone. No model of
foreign weights is assumed and none was fitted. The signs go by shape and not by name: renaming or reordering tensors
hides nothing.

The score of a marked model is about its strength. 0.7 of it is left in the mean of two unrelated models, and half of it
in the mean of a model with itself before the mark, or with another run's mark; noise, pruning and rounding of weights
take as much as they change of the weights.
What removes it: permuting neurons, training anew on the model's answers (distillation), merging a low-rank adapter into
its base, and anyone who knows the key.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from ledger.wire.malformed import Malformed

KEY_BYTES: Final = 32
STRENGTH: Final = 22.0
"""The score of a model that was just marked, about: half of it is enough in a search for a thousand marks."""
AMPLITUDE_MAX: Final = 0.1
"""The most that a mark may be of a tensor's root mean square: beyond it accuracy suffers."""
FALSE_POSITIVE_BITS: Final = 40
"""A search finds any mark in a foreign model with a probability of at most 2 to the minus this."""
VALUES_MIN: Final = 256
"""Values of the least tensor that is marked."""
MARKED_MIN: Final = 14_400
"""Values that a mark needs together: fewer would not be found after half of them are pruned."""
_CUT_OFF: Final = 4.0
_FLAT: Final = 1e-6
"""A tensor whose values differ by less, beside their size, is one value and carries nothing."""
_DOMAIN: Final = b"epsilon-ledger watermark v1 "

Shape = tuple[int, ...]
Weights = NDArray[np.floating]


def is_marked(shape: Shape) -> bool:
    """Whether a tensor of this shape carries a part of a mark: a matrix or more, and not a small one."""
    return len(shape) > 1 and math.prod(shape) >= VALUES_MIN


def signs(key: bytes, shape: Shape) -> NDArray[np.float32]:
    """The signs of a shape under a key, each 1 or -1: ChaCha20 (RFC 8439) under a key of its own for each shape."""
    own = hmac.digest(key, _DOMAIN + "x".join(map(str, shape)).encode("ascii"), "sha256")
    count = math.prod(shape)
    stream = Cipher(algorithms.ChaCha20(own, bytes(16)), mode=None).encryptor().update(bytes(-(-count // 8)))
    bits = np.unpackbits(np.frombuffer(stream, np.uint8), count=count)
    return (2 * bits.astype(np.float32) - 1).reshape(shape)


def amplitude(shapes: Iterable[Shape]) -> float:
    """γ of a model whose tensors have these shapes. Raises: Malformed, if a mark in them would not be found."""
    count = sum(math.prod(shape) for shape in shapes if is_marked(shape))
    if count < MARKED_MIN:
        rule = f"has {count} values in matrices of at least {VALUES_MIN}, and a watermark needs {MARKED_MIN}"
        raise Malformed("model", rule)
    return min(AMPLITUDE_MAX, STRENGTH / math.sqrt(count))


def marked(tensors: Mapping[str, Weights], key: bytes) -> dict[str, Weights]:
    """The marked tensors of a model, by name, each of its own type; those that carry no part of the mark are left out.

    Raises:
        Malformed: if the model is too small for a mark.
    """
    strength = amplitude(tensor.shape for tensor in tensors.values())
    made: dict[str, Weights] = {}
    for name, tensor in tensors.items():
        if is_marked(tensor.shape):
            size = math.sqrt(float(np.mean(np.square(tensor, dtype=np.float64))))
            made[name] = (tensor + np.float32(strength * size) * signs(key, tensor.shape)).astype(tensor.dtype)
    return made


def fingerprint(tensors: Iterable[Weights]) -> dict[Shape, NDArray[np.float32]]:
    """What a search looks at: by shape the sum of a model's tensors, each as its score takes it; empty without any.

    Raises:
        Malformed: for weights that are not finite.
    """
    sums: dict[Shape, NDArray[np.float32]] = {}
    for tensor in tensors:
        if not is_marked(tensor.shape):
            continue
        if not np.isfinite(tensor).all():
            raise Malformed("model", f"has a tensor of shape {list(tensor.shape)} with values that are not finite")
        wide = tensor.astype(np.float64) - float(np.mean(tensor, dtype=np.float64))
        size = math.sqrt(float(np.mean(np.square(wide))))
        if size > _FLAT * float(np.abs(tensor).max()):
            part = np.clip(wide / size, -_CUT_OFF, _CUT_OFF).astype(np.float32)
            sums[tensor.shape] = sums[tensor.shape] + part if tensor.shape in sums else part
    return sums


def score(sums: Mapping[Shape, NDArray[np.float32]], key: bytes) -> float:
    """How well a fingerprint agrees with a key, as a whole or in the one shape that agrees best.

    So a layer that was added to a marked model hides nothing. Of foreign weights each of these scores is at least t
    with probability at most exp(-t²/2): :func:`threshold` counts all of them. 0 of an empty fingerprint.
    """
    total, square, reached = 0.0, 0.0, list[float]()
    for shape, values in sums.items():
        wide = values.astype(np.float64)
        own, size = float(np.vdot(wide, signs(key, shape))), float(np.vdot(wide, wide))
        if size:
            total, square = total + own, square + size
            reached.append(own / math.sqrt(size))
    return max(*reached, total / math.sqrt(square)) if reached else 0.0


def threshold(keys: int, shapes: int = 1) -> float:
    """The score from which on a search takes a key for found: any false one has probability at most 2^-40.

    Args:
        keys: that are searched. shapes: of the model.
    """
    scores = max(1, keys) * (shapes + 1 if shapes > 1 else 1)
    return math.sqrt(2 * (FALSE_POSITIVE_BITS * math.log(2) + math.log(scores)))


def search(sums: Mapping[Shape, NDArray[np.float32]], keys: Mapping[str, bytes]) -> Iterator[tuple[str, float]]:
    """The names of the keys whose mark is in a model, with its score."""
    least = threshold(len(keys), len(sums))
    for name, key in keys.items():
        if (reached := score(sums, key)) >= least:
            yield name, reached
