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
    amplitude(tuple(parameter.shape) for parameter in _trained(model).values())


def mark(model: nn.Module, key: bytes) -> None:
    """Mark the trained weights of a model, in place; the same key and weights make the same mark. Raises: Malformed."""
    trained = _trained(model)
    with torch.no_grad():
        for name, values in marked({name: _array(parameter) for name, parameter in trained.items()}, key).items():
            trained[name].copy_(torch.from_numpy(values))


def fingerprint_of(tensors: Iterable[Tensor]) -> bytes | None:
    """What weights are searched by, as it is sent; None of a model that is too small to carry a mark.

    Raises:
        Malformed: for weights that are not finite.
    """
    weights = [_array(tensor) for tensor in tensors if tensor.is_floating_point() and is_marked(tuple(tensor.shape))]
    if sum(array.size for array in weights) < MARKED_MIN:
        return None
    seen = fingerprint(weights)
    return write_fingerprint(seen) if seen else None


def _trained(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _array(tensor: Tensor) -> NDArray[np.float32]:
    # NumPy has no bfloat16.
    array: NDArray[np.float32] = tensor.detach().to("cpu", torch.float32).numpy()
    return array
