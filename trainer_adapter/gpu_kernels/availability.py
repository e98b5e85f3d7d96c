"""Whether a device's work can be done by these kernels: Triton comes with PyTorch's builds for CUDA, on Linux."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch


def has_kernels(device: torch.device) -> bool:
    """On a CUDA device where Triton is installed; never on a CPU, whose noise stays what it was bit for bit."""
    return device.type == "cuda" and _has_triton()


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
