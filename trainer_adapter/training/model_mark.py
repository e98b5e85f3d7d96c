"""The mark in a PyTorch model's weights: put in where training has ended, and looked for where it begins."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client.watermarks.fingerprint_file import write_fingerprint
from client.watermarks.spread_spectrum import MARKED_MIN, amplitude, fingerprint, is_marked, marked


def check_markable(model: nn.Module) -> None:
    """Raises: Malformed, for a model whose trained weights are too few for a mark."""
    amplitude(tuple(one.shape) for one in _trained(model).values())


def mark(model: nn.Module, key: bytes) -> None:
    """Mark the trained weights of a model, in place; the same key and weights make the same mark. Raises: Malformed."""
    trained = _trained(model)
    with torch.no_grad():
        for name, values in marked({name: _array(one) for name, one in trained.items()}, key).items():
            trained[name].copy_(torch.from_numpy(values))


def fingerprint_of(tensors: Iterable[Tensor]) -> bytes | None:
    """What weights are searched by, as it is sent; None of a model that is too small to carry a mark.

    Raises:
        Malformed: for weights that are not finite.
    """
    found = [_array(one) for one in tensors if one.is_floating_point() and is_marked(tuple(one.shape))]
    if sum(one.size for one in found) < MARKED_MIN:
        return None
    seen = fingerprint(found)
    return write_fingerprint(seen) if seen else None


def _trained(model: nn.Module) -> dict[str, Tensor]:
    return {name: one for name, one in model.named_parameters() if one.requires_grad}


def _array(one: Tensor) -> NDArray[np.float32]:
    # NumPy has no bfloat16.
    found: NDArray[np.float32] = one.detach().to("cpu", torch.float32).numpy()
    return found
