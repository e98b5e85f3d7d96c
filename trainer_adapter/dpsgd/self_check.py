"""The self-check: the engine's sum against a slower reference computation that shares only the model with it.

``reference_gradient`` computes one unit's gradient by an ordinary backward pass: no vmap, no tracing, no layer rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn

from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.functional_call import call

if TYPE_CHECKING:
    from trainer_adapter.per_sample.microbatch import Batch, LossFn
    from trainer_adapter.per_sample.rounding_margins import Precision

AGREEMENT: Final = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 0.1}
"""Relative, in norm: what two ways to compute in float32 may differ by; a wrong rule is off by far more."""


class SelfCheckFailed(RuntimeError):  # noqa: N818 - named for what happened, as the other refusals are
    """The engine's sum is not that of the records one by one; nothing of it was released."""


def reference_gradient(  # noqa: PLR0913, PLR0917 - as below
    model: nn.Module,
    loss_fn: LossFn,
    trained: Mapping[str, Tensor],
    rest: Mapping[str, Tensor],
    unit: Sequence[Tensor],
    precision: Precision,
) -> Tensor:
    """The gradient of one unit, flat, float64, by an ordinary backward pass for each of its records.

    Args:
        unit: inputs (records, ...), targets (records, ...), which are valid (records,), and keys (records, 2).
    """
    values = {name: value.detach().requires_grad_() for name, value in trained.items()}
    total = torch.zeros(sum(value.numel() for value in values.values()), dtype=torch.float64)
    inputs, targets, valid, keys = unit
    dtype = precision.autocast
    for place in torch.nonzero(valid).flatten().tolist():
        with torch.enable_grad():
            with (
                PerExampleDropout(keys[place]),
                torch.autocast(inputs.device.type, dtype=dtype, enabled=dtype is not None),
            ):
                outputs: Any = call(model, {**rest, **values}, inputs[place : place + 1])
            loss = loss_fn(outputs.to(torch.float32), targets[place : place + 1]).sum()
            found = torch.autograd.grad(loss, list(values.values()), materialize_grads=True)
        total += torch.cat([value.flatten() for value in found]).to("cpu", torch.float64)
    return total


def reference_clipped_sum(  # noqa: PLR0913, PLR0917 - one name for each thing a sum depends on
    model: nn.Module,
    loss_fn: LossFn,
    trained: Mapping[str, Tensor],
    rest: Mapping[str, Tensor],
    batch: Batch,
    bound: float,
    precision: Precision,
) -> Tensor:
    """What a microbatch's clipped sum must come near: units one by one, shape (parameters,), float64."""
    total = torch.zeros(sum(value.numel() for value in trained.values()), dtype=torch.float64)
    for place in torch.nonzero(batch.mask).flatten().tolist():
        unit = (batch.inputs[place], batch.targets[place], batch.valid[place], batch.keys[place])
        gradient = reference_gradient(model, loss_fn, trained, rest, unit, precision)
        norm = float(gradient.norm())
        if norm < float("inf"):  # false for a NaN too
            total += gradient * min(1.0, bound / max(norm, 1e-300))
    return total


def agree(ours: Tensor, theirs: Tensor, precision: str) -> bool:
    """Whether two sums are the same but for rounding; both must be finite."""
    apart = float((ours.to("cpu", torch.float64) - theirs).norm())
    return apart <= AGREEMENT[precision] * float(theirs.norm()) + 1e-30
