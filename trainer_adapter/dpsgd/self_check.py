"""The self-check: the engine's sum against a slower reference computation that shares only the record's loss with it.

``reference_gradient`` computes one unit's gradient by an ordinary backward pass: no vmap, no tracing, no layer rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.per_sample.microbatch import Batch
from trainer_adapter.per_sample.record_loss import RecordLoss

AGREEMENT: Final = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 0.1}
"""Relative, in norm: what two ways to compute in float32 may differ by; a wrong rule is off by far more."""


class SelfCheckFailed(RuntimeError):  # noqa: N818 - named for what happened, as the other refusals are
    """The engine's sum is not that of the records one by one; nothing of it was released."""


def reference_gradient(record: RecordLoss, values: Mapping[str, Tensor], unit: Sequence[Tensor]) -> Tensor:
    """The gradient of one unit, flat, float64, by an ordinary backward pass for each of its records.

    Args:
        unit: inputs (records, ...), targets (records, ...), which are valid (records,), and keys (records, 2).
    """
    trained = {name: values[name].detach().requires_grad_() for name in record.trained}
    total = torch.zeros(sum(value.numel() for value in trained.values()), dtype=torch.float64)
    inputs, targets, valid, keys = unit
    for place in torch.nonzero(valid).flatten().tolist():
        one = slice(place, place + 1)
        with torch.enable_grad():
            outputs = record.outputs({**values, **trained}, inputs[one], PerExampleDropout(keys[place]))
            loss = record.loss(outputs, targets[one])
            gradients = torch.autograd.grad(loss, list(trained.values()), materialize_grads=True)
        total += torch.cat([value.flatten() for value in gradients]).to("cpu", torch.float64)
    return total


def reference_clipped_sum(record: RecordLoss, values: Mapping[str, Tensor], batch: Batch, bound: float) -> Tensor:
    """What a microbatch's clipped sum must come near: units one by one, shape (parameters,), float64."""
    total = torch.zeros(sum(values[name].numel() for name in record.trained), dtype=torch.float64)
    for place in torch.nonzero(batch.mask).flatten().tolist():
        unit = (batch.inputs[place], batch.targets[place], batch.valid[place], batch.keys[place])
        gradient = reference_gradient(record, values, unit)
        norm = float(gradient.norm())
        if norm < float("inf"):  # false for a NaN too
            total += gradient * min(1.0, bound / max(norm, 1e-300))
    return total


def agree(ours: Tensor, theirs: Tensor, precision: str) -> bool:
    """Whether two sums are the same but for rounding; both must be finite."""
    apart = float((ours.to("cpu", torch.float64) - theirs).norm())
    return apart <= AGREEMENT[precision] * float(theirs.norm()) + 1e-30
