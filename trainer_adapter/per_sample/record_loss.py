"""The loss of one record, run alone: a model, its loss function and a precision, with any values of its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from trainer_adapter.layers.dropout import PerExampleDropout
from trainer_adapter.layers.functional_call import call
from trainer_adapter.layers.tensor_trees import TensorTree
from trainer_adapter.per_sample.rounding_margins import Precision

LossFn: TypeAlias = Callable[[Any, Any], Tensor]
"""From what the model gives for one record, and its targets, to one number."""


@dataclass(frozen=True, slots=True)
class RecordLoss:
    """The loss of one record as a function of the model's values.

    Attributes:
        loss_fn: from outputs (1, ...) and targets (1, ...), each a tensor or what holds several, to one number.
        trained: the names of the parameters that train, in the order of the sum.
    """

    model: nn.Module
    loss_fn: LossFn
    precision: Precision
    trained: tuple[str, ...]

    def values(self) -> dict[str, Tensor]:
        """The current values of all parameters and buffers, by name, without a gradient."""
        named = chain(self.model.named_parameters(), self.model.named_buffers())
        return {name: value.detach() for name, value in named}

    def outputs(self, values: Mapping[str, Tensor], inputs: TensorTree, dropout: PerExampleDropout) -> Any:  # noqa: ANN401 - any output of a model
        """What the model gives for inputs (1, ...), in the precision's autocast."""
        dtype = self.precision.autocast
        device = next(iter(values.values())).device
        with dropout, torch.autocast(device.type, dtype=dtype, enabled=dtype is not None):
            return call(self.model, values, inputs)

    def loss(self, outputs: Any, targets: TensorTree) -> Tensor:  # noqa: ANN401 - any output of a model
        """One number, of outputs whose floating-point tensors are widened to float32."""
        return self.loss_fn(tree_map_only(Tensor, _widened, outputs), targets).sum()


def _widened(value: Tensor) -> Tensor:
    return value.to(torch.float32) if value.is_floating_point() else value
