"""Calling a model with other values in the place of its parameters and buffers.

As ``torch.func.functional_call``, which, where one module stands in a model twice, leaves the values it was
given in the model (PyTorch 2.13). Here a tensor is known by identity: wherever it stands, and however often, the
new value takes its place, and afterwards the old one is back.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from torch import Tensor, nn


def call(model: nn.Module, values: Mapping[str, Tensor], inputs: Tensor) -> Any:  # noqa: ANN401 - whatever the model gives
    """The model's output with these values, by name as in ``named_parameters`` and ``named_buffers``."""
    named = chain(model.named_parameters(), model.named_buffers())
    new = {id(tensor): values[name] for name, tensor in named if name in values}
    places: list[tuple[dict[str, Any], str, Tensor]] = [
        (own, key, tensor)
        for module in model.modules()
        for own in (module._parameters, module._buffers)  # noqa: SLF001 - where a module keeps them
        for key, tensor in own.items()
        if tensor is not None and id(tensor) in new
    ]
    try:
        for own, key, tensor in places:
            own[key] = new[id(tensor)]
        return model(inputs)
    finally:
        for own, key, tensor in places:
            own[key] = tensor
