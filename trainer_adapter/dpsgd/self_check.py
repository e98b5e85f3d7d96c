"""The self-check: the engine's sum against a slower reference computation that shares only the record's loss with it.

``reference_gradient`` computes one unit's gradient by an ordinary backward pass: no vmap, no tracing, no layer rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.tensor_trees import select
from trainer_adapter.per_sample.microbatch import Batch, ClippedSum
from trainer_adapter.per_sample.record_loss import RecordLoss

AGREEMENT: Final = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 0.1}
"""Relative, in norm: what two ways to compute in float32 may differ by; a wrong rule is off by far more."""


class SelfCheckFailed(RuntimeError):  # noqa: N818 - named for what happened, as the other refusals are
    """The engine's sum is not that of the records one by one; nothing of it was released."""


def reference_gradient(record: RecordLoss, values: Mapping[str, Tensor], unit: Batch) -> Tensor:
    """The gradient of one unit, flat, float64, by an ordinary backward pass for each of its records.

    Args:
        unit: inputs (records, ...), targets (records, ...), which are valid (records,), and keys (records, 2).
    """
    trained = {name: values[name].detach().requires_grad_() for name in record.trained}
    total = torch.zeros(sum(value.numel() for value in trained.values()), dtype=torch.float64)
    for place in torch.nonzero(unit.valid).flatten().tolist():
        inputs, targets = (select(part, slice(place, place + 1)) for part in unit[:2])
        with torch.enable_grad():
            outputs = record.outputs({**values, **trained}, inputs, PerExampleDropout(unit.keys[place]))
            loss = record.loss(outputs, targets)
            gradients = torch.autograd.grad(loss, list(trained.values()), materialize_grads=True)
        total += torch.cat([value.to_dense().flatten() for value in gradients]).to("cpu", torch.float64)
    return total


@dataclass(frozen=True, slots=True)
class Comparison:
    """A microbatch's clipped sum beside that of its units one by one; private, unless all of them are public dummies.

    Attributes:
        apart: how far the sums are from each other, relative; infinite if one is not finite.
        short: by how much a unit's gradient is longer than its computed norm, relative, at most.
        margin: by how much computed norms are above those of the gradients, relative, on average.
    """

    apart: float
    short: float
    margin: float

    def agrees(self, precision: str) -> bool:
        """Whether the sums are the same but for rounding, and no gradient is longer than its computed norm."""
        return max(self.apart, self.short) <= AGREEMENT[precision]


def compare(
    record: RecordLoss, values: Mapping[str, Tensor], batch: Batch, bound: float, ours: ClippedSum
) -> Comparison:
    """Recompute the units one by one, and clip them by the computed norms."""
    total = torch.zeros(sum(values[name].numel() for name in record.trained), dtype=torch.float64)
    computed, true, short = 0.0, 0.0, 0.0
    for place in torch.nonzero(batch.mask).flatten().tolist():
        unit: Batch = select(batch, place)
        gradient = reference_gradient(record, values, unit)
        norm, known = float(gradient.norm()), float(ours.norms[place])
        if max(norm, known) < float("inf"):  # false for a NaN too
            total += gradient * min(1.0, bound / max(known, 1e-300))
            short = max(short, norm / max(known, 1e-300) - 1 if norm > 1e-30 else 0.0)
        computed, true = computed + known, true + norm
    difference, size = float((ours.total.to("cpu", torch.float64) - total).norm()), float(total.norm())
    apart = difference / (size + 1e-27) if difference < float("inf") else float("inf")
    return Comparison(apart, short, computed / true - 1 if true > 0 else 0.0)
