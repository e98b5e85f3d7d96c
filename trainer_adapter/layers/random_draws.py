"""What a model draws from PyTorch's own generators, made its own: no pass draws what another left behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


def generators(model: nn.Module) -> list[torch.Generator]:
    """PyTorch's own that a model on its device draws from."""
    device = next(model.parameters()).device
    return [torch.default_generator, *([torch.cuda.default_generators[device.index]] if device.type == "cuda" else [])]


@contextmanager
def own_draws(model: nn.Module, seed: int) -> Iterator[None]:
    """Within its block those generators draw from this seed; afterwards they go on as before."""
    before = [(generator, generator.get_state()) for generator in generators(model)]
    try:
        for generator, _ in before:
            generator.manual_seed(seed)
        yield
    finally:
        for generator, state in before:
            generator.set_state(state)
