"""The digest of a run's state: its weights and its optimiser, as a lease names it.

The tensors are copied where they are, which costs about as much as reading them twice; names, sizes and bytes are
hashed when the result is called, in a thread beside the steps. A lease that names the digest commits to the state that
its generation had when the newest finished lease ended: a checkpoint can be shown to be that state, and leases of two
copies show where they parted. It proves nothing of how the state came about.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Digest = Callable[[], str]
"""Computes the digest of a state that was copied."""


def state_digest(model: nn.Module, optimiser: torch.optim.Optimizer) -> Digest:
    """Copy the state of both now; its SHA-256, in hexadecimal, when the result is called."""
    with torch.no_grad():
        tensors = {f"model.{name}": value.detach().clone() for name, value in model.state_dict().items()}
        saved, plain = optimiser.state_dict(), dict[str, Any]()
        for place, state in saved["state"].items():
            for name, value in state.items():
                if isinstance(value, Tensor):
                    tensors[f"optimiser.{place}.{name}"] = value.detach().clone()
                else:
                    plain[f"{place}.{name}"] = value
    about = json.dumps({"groups": saved["param_groups"], "plain": plain}, sort_keys=True, default=str)

    def compute() -> str:
        digest = hashlib.sha256(about.encode())
        for name in sorted(tensors):
            value = tensors[name].cpu().contiguous()
            head = json.dumps([name, str(value.dtype), [*value.shape]])
            digest.update(f"\n{head}\n".encode())
            digest.update(value.reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    return compute
