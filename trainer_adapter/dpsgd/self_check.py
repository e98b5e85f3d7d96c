"""The self-check: the engine's sum against a slower reference computation that shares only the record's loss with it.

``reference_gradient`` computes one unit's gradient by an ordinary backward pass: no vmap, no tracing, no layer rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor

from ledger.wire.malformed import Malformed
from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.tensor_trees import map_tensors, select
from trainer_adapter.per_sample.microbatch import Batch, ClippedSum
from trainer_adapter.per_sample.record_loss import RecordLoss

AGREEMENT: Final = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 0.1, "bfloat16_products": 0.1}
"""Relative, in norm: what two ways to compute in float32 may differ by; a wrong rule is off by far more."""

PLACES_APART: Final = 1e-4
"""Relative, of a norm: far above the rounding of one computed twice, far below what another unit's values do to it."""


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


def check_places_apart(
    run: Callable[[Mapping[str, Tensor], Batch], ClippedSum], values: Mapping[str, Tensor], public: Batch
) -> None:
    """Change the units of some places and hold the norms of the others to what they were, for every pair of places.

    What a model kept from one unit for a later one, from whichever call on, is in its graph, and shows here.

    Args:
        run: the graph of a microbatch. public: dummies in its shape.

    Raises:
        Malformed: if a unit's norm depends on another's records.
    """
    places = torch.arange(len(public.mask), device=public.mask.device)
    whole = public._replace(mask=torch.ones_like(public.mask))
    before = run(values, whole).norms
    for bit in range(max(1, (len(places) - 1).bit_length())):
        for changed in ((places >> bit) % 2 == 1, (places >> bit) % 2 == 0):
            after = run(values, whole._replace(inputs=map_tensors(partial(_changed, changed), public.inputs))).norms
            if not torch.allclose(after[~changed], before[~changed], rtol=PLACES_APART, equal_nan=True):
                raise Malformed("model", "keeps something of one record for the next")


def _changed(places: Tensor, inputs: Tensor) -> Tensor:
    other = inputs * -3 + 7 if inputs.is_floating_point() else 1 - inputs.to(torch.int64)
    return torch.where(places.reshape(-1, *(1,) * (inputs.dim() - 1)), other.to(inputs.dtype), inputs)
