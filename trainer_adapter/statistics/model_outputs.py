"""What a trained model gives for each record, alone: the columns ``outputs`` and ``predictions`` of its metrics.

Each record goes through the model by itself, in a batch of one, always by the same path: its row is a function of that
record and the model, bit for bit. Beside others the number of records would choose the kernel, and so the rounding of
all of them. Then one record more or less changes its own row and no other, which is what the sensitivity of a metric
counts on. So each has buffers and random draws of its own too, and a record that the model fails on has a row without
a number: to end there would show, without noise, that it is among them.
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
from trainer_adapter.layers.random_draws import own_draws
from trainer_adapter.layers.tensor_trees import TensorTree, count_records, map_tensors
from trainer_adapter.per_sample.model_checks import check_stateless
from trainer_adapter.statistics.columns import RecordColumns, Values

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
        scores = _each_alone(model, loss, inputs, width)
        if loss == SQUARED_ERROR:
            return cls(scores, None)
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


def _each_alone(model: nn.Module, loss: str, inputs: TensorTree, width: int | None) -> Tensor:
    """The scores, shape (records, outputs), float64, on the CPU."""
    weights = {name: value.detach() for name, value in model.named_parameters()}
    device = next(model.parameters()).device

    def one(place: int) -> Tensor:
        # Nothing of a pass may come from the records before it: neither what the model draws, nor where a record lies
        # in memory, by which a kernel may choose how it rounds, nor what a pass writes into a buffer.
        record = map_tensors(lambda each: _copy(each[place : place + 1], device), inputs)
        buffers = {name: value.detach().clone() for name, value in model.named_buffers()}
        with own_draws(model, 0):
            output = call(model, {**weights, **buffers}, record)
        if not isinstance(output, Tensor):
            raise Malformed("model", "must give one tensor to be measured")
        return _scores(loss, output.reshape(-1).to(torch.float64).cpu())

    records = count_records(inputs, "inputs")
    with torch.no_grad(), in_modes(dict.fromkeys(model.modules(), False)):
        if width is None and records:
            check_stateless(lambda: one(0))
        rows = [one(place) if width is None else _row(one, place, width) for place in range(records)]
    # Without a record, too, there are as many numbers as for a public one.
    return torch.stack(rows) if rows else torch.zeros(0, 1 if width is None else width, dtype=torch.float64)


def _copy(part: Tensor, device: torch.device) -> Tensor:
    return part.clone(memory_format=torch.contiguous_format).to(device)


def _scores(loss: str, raw: Tensor) -> Tensor:
    # Of one record: in a longer tensor its place decides whether the vector or the scalar exponential is taken.
    if loss == SQUARED_ERROR:
        return raw
    return functional.sigmoid(raw) if loss == _BINARY else functional.softmax(raw, dim=-1)


def _row(function: Callable[[int], Tensor], place: int, width: int) -> Tensor:
    try:
        row = function(place)
    except Exception:  # noqa: BLE001 - whatever it is, it would show this record
        row = torch.empty(0)
    return row if row.numel() == width else torch.full((width,), torch.nan, dtype=torch.float64)
