"""Canaries: synthetic records, each with a weight of its own that nothing else moves.

A canary passes through sampler, clipping, sum and noise as any record does. Its loss is loud, and depends on its own
weight alone: so its clipped gradient is that weight's direction, C long (a Dirac canary; Nasr et al. 2023,
arXiv 2302.07956). No record moves those weights, so neither do records hide canaries, nor do canaries change what the
model learns. What an audit by them sees is the sampler's rate, the bound of clipping, the noise and its generator, and
the number of steps. A gradient of a real layer that is longer than the engine thinks it does not see.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch
from torch import Tensor, nn

from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.layers.tensor_trees import TensorTree, map_tensors, select, tensors, tree_of
from trainer_adapter.training.run_options import Loss

NAME: Final = "canary"
"""Under which a model's inputs by keyword say which canary a record is."""
_LOUD: Final = 1e3
"""How many times longer than the clipping norm a canary's gradient is, so that it is clipped to all of it."""


class CanaryModel(nn.Module):
    """A model, and a weight for each canary; of inputs it takes one more, which canary a record is: 0 for none.

    Attributes:
        weights: of shape (1 + canaries, 1); the first is every record's, and never moves.
    """

    def __init__(self, model: nn.Module, canaries: int) -> None:
        """The model itself trains as before."""
        super().__init__()
        self.model = model
        self.weights = nn.Embedding(1 + canaries, 1)
        nn.init.zeros_(self.weights.weight)
        self.to(next(model.parameters()).device)

    def forward(self, *places: Any, **named: Any) -> tuple[Any, Tensor, Tensor]:  # noqa: ANN401 - as the model takes them
        """What the model gives, the canary's weight (records, 1), and which it is (records,)."""
        if NAME in named:
            which: Tensor = named.pop(NAME)
        else:
            *rest, which = places
            places = tuple(rest)
        return self.model(*places, **named), self.weights(which), which


def canary_loss(loss: Loss, clipping_norm: float) -> Loss:
    """The loss of a record, or of a canary."""

    def either(found: tuple[Any, Tensor, Tensor], targets: Any) -> Tensor:  # noqa: ANN401 - as the loss takes them
        outputs, weight, which = found
        own = -_LOUD * clipping_norm * weight.sum()
        return torch.where(which.sum() > 0, own, loss(outputs, targets).sum())

    return either


def marked(inputs: TensorTree, which: Tensor) -> TensorTree:
    """Inputs that say which canary each record is. Raises: Malformed, for a name that the model has for another."""
    if isinstance(inputs, Mapping):
        if NAME in inputs:
            raise Malformed("data", f"has an array of the name {NAME}, which audits give to their own")
        return tree_of({**inputs, NAME: which}, "inputs")
    return (inputs, which) if isinstance(inputs, Tensor) else (*inputs, which)


class RecordsAndCanaries:
    """The records of a run, and behind them canaries, whose inputs and targets are zeros.

    Attributes:
        prototypes: inputs (0, ...) and targets (0, ...), in the shapes and types of the records.
        records: how many records there are.
    """

    prototypes: tuple[TensorTree, TensorTree]

    def __init__(self, records: Records, canaries: int) -> None:
        """Nothing is copied."""
        self._records, self._canaries = records, canaries
        inputs, targets = records if isinstance(records, tuple) else records.prototypes
        self.records = len(tensors(targets)[0]) if isinstance(records, tuple) else len(records)
        none = torch.zeros(0, dtype=torch.int64)
        self.prototypes = marked(select(inputs, slice(0)), none), select(targets, slice(0))

    def __len__(self) -> int:
        """How many there are, canaries among them."""
        return self.records + self._canaries

    def take(self, places: Tensor) -> tuple[TensorTree, TensorTree]:
        """Inputs and targets at ``places``, of shape (*places, ...), on the CPU; private."""
        which = (places - (self.records - 1)).clamp(min=0)
        inputs, targets = self._taken(torch.where(which > 0, 0, places))
        for part in (*tensors(inputs), *tensors(targets)):
            part[which > 0] = 0
        return marked(inputs, which), targets

    def _taken(self, places: Tensor) -> tuple[TensorTree, TensorTree]:
        if not self.records:
            shape = places.shape
            inputs, targets = self._records if isinstance(self._records, tuple) else self._records.prototypes
            empty: tuple[TensorTree, TensorTree] = map_tensors(
                lambda tensor: tensor.new_zeros((*shape, *tensor.shape[1:])).cpu(), (inputs, targets)
            )
            return empty
        if isinstance(self._records, tuple):
            held = ((part, places.to(tensors(part)[0].device)) for part in self._records)
            inputs, targets = (map_tensors(Tensor.cpu, select(part, at)) for part, at in held)
            return inputs, targets
        return self._records.take(places)
