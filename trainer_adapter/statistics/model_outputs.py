"""What a trained model gives for each record, alone: the columns ``outputs`` and ``predictions`` of its metrics.

Each record goes through the model by itself (``torch.func.vmap``), as it does in training, so that no layer could mix
two of them even if it would: then one record more or less changes its own row and no other, which is what the
sensitivity of a metric counts on. So each has buffers of its own too, and a record that the model fails on has a row
without a number: to end there would show, without noise, that it is among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from ledger.mechanisms.statistics import OF_MODELS, Statistic, columns_of
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.job.job_spec import LOSSES, SQUARED_ERROR
from trainer_adapter.layers.functional_call import call, in_modes
from trainer_adapter.layers.tensor_trees import TensorTree, count_records, map_tensors, select
from trainer_adapter.per_sample.model_checks import check_stateless
from trainer_adapter.statistics.columns import RecordColumns, Values

AT_ONCE: Final = 256
"""Records that pass through the model at once, each by itself."""
_BINARY: Final = LOSSES[1]
_OUTPUT: Final = re.compile(r"outputs(?:\[([0-9]+)\])?")


@dataclass(frozen=True, slots=True)
class ModelOutputs:
    """Of each record what a model gives.

    Attributes:
        scores: shape (records, outputs), float64: probabilities for a loss of classes, else the numbers themselves.
        predictions: the class of the greatest score, shape (records,), float64, -1 where a score is not finite; None
            of numbers.
    """

    scores: Tensor
    predictions: Tensor | None

    @classmethod
    def of(cls, model: nn.Module, loss: str, inputs: TensorTree, width: int | None = None) -> ModelOutputs:
        """For inputs (records, ...) as the model sees them, evaluated.

        Args:
            width: for private inputs, how many numbers the model gives for a public record. A private one for which it
                does not give so many has NaN in their place.

        Raises:
            Malformed: for public inputs, if the model keeps a tensor from one record for the next; what the model does.
        """
        raw = _each_alone(model, inputs, width)
        if loss == SQUARED_ERROR:
            return cls(raw, None)
        scores = functional.sigmoid(raw) if loss == _BINARY else functional.softmax(raw, dim=-1)
        bad = ~torch.isfinite(scores).all(dim=1)
        if loss != _BINARY:
            predicted = scores.argmax(dim=1).to(torch.float64)
        elif scores.shape[1] == 1:
            predicted = (scores[:, 0] >= 1 / 2).to(torch.float64)
        else:
            return cls(scores, None)
        return cls(scores, torch.where(bad, -1.0, predicted))

    def require(self, metrics: Sequence[Statistic]) -> None:
        """Raises: Malformed, for a metric that reads what the model does not give."""
        for place, metric in enumerate(metrics):
            for column in columns_of(metric):
                if column.startswith(OF_MODELS):
                    try:
                        _ = self.values(column)
                    except Malformed as error:
                        raise error.under(f"train.plan.metrics[{place}]") from None

    def values(self, column: str) -> Values:
        """One column, shape (records,). Raises: Malformed, for one that the model does not give."""
        if column == "predictions" and self.predictions is not None:
            output: Values = self.predictions.numpy()
            return output
        named, outputs = _OUTPUT.fullmatch(column), self.scores.shape[1]
        if named is None:
            raise Malformed(column, "is not what this loss's model gives: it predicts no one class")
        if named[1] is None and outputs != 1:
            raise Malformed(column, f"has {outputs} numbers a record: name one, as 'outputs[0]'")
        if int(named[1] or 0) >= outputs:
            raise Malformed(column, f"is not among the {outputs} numbers that the model gives")
        scores: Values = self.scores[:, int(named[1] or 0)].numpy()
        return scores


class MeasuredColumns:
    """The columns of the records that a model is measured on: their own, and what the model gives for them.

    Attributes:
        records: how many there are; private.
    """

    def __init__(self, own: RecordColumns, outputs: ModelOutputs) -> None:
        """Of the same records in the same order."""
        self._own, self._outputs, self.records = own, outputs, own.records

    def values(self, column: str) -> Values:
        """One column, shape (records,). Raises: Malformed."""
        return (self._outputs if column.startswith(OF_MODELS) else self._own).values(column)


def at_places(records: Records, places: Tensor) -> TensorTree:
    """The inputs at these places, as the model sees them."""
    if not isinstance(records, tuple):
        return records.take(places)[0]
    inputs: TensorTree = map_tensors(lambda tensor: tensor[places.to(tensor.device)], records[0])
    return inputs


def _each_alone(model: nn.Module, inputs: TensorTree, width: int | None) -> Tensor:
    """Shape (records, outputs), float64, on the CPU."""
    weights = {name: value.detach() for name, value in model.named_parameters()}

    def one(record: TensorTree) -> Tensor:
        # What a pass writes into a buffer ends with it.
        buffers = {name: value.detach().clone() for name, value in model.named_buffers()}
        output = call(model, {**weights, **buffers}, map_tensors(lambda part: part[None], record))
        if not isinstance(output, Tensor):
            raise Malformed("model", "must give one tensor to be measured")
        return output.reshape(-1)

    rows, records = list[Tensor](), count_records(inputs, "inputs")
    device = next(model.parameters()).device
    with torch.no_grad(), in_modes(dict.fromkeys(model.modules(), False)):
        if width is None and records:
            public = map_tensors(lambda each: each.to(device), select(inputs, 0))
            check_stateless(lambda: one(public))
        for start in range(0, records, AT_ONCE):
            part = map_tensors(lambda each: each.to(device), select(inputs, slice(start, start + AT_ONCE)))
            rows.append(_map_records(one, part, width).to(torch.float64).cpu())
    return torch.cat(rows) if rows else torch.zeros(0, 1, dtype=torch.float64)


def _map_records(function: Callable[[TensorTree], Tensor], part: TensorTree, width: int | None) -> Tensor:
    try:
        output: Tensor = torch.func.vmap(function)(part)
        if width is None or output.shape[1] == width:
            return output
    except RuntimeError:
        # What a model decides in Python cannot be mapped; then one after the other.
        pass
    except Exception:
        if width is None:
            raise
    each = [select(part, place) for place in range(count_records(part, "inputs"))]
    return torch.stack([function(one) if width is None else _row(function, one, width) for one in each])


def _row(function: Callable[[TensorTree], Tensor], record: TensorTree, width: int) -> Tensor:
    try:
        row = function(record).to(torch.float64).cpu()
    except Exception:  # noqa: BLE001 - whatever it is, it would show this record
        row = torch.empty(0)
    return row if row.numel() == width else torch.full((width,), torch.nan, dtype=torch.float64)
