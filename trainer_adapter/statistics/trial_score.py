"""The private score of a trial: one charged statistic of its model, on records that no trial trains on.

Private selection prices a trial with its score (Papernot, Steinke 2022): the noise is drawn for each trial anew, the
greatest noisy score wins, and no score leaves. The same records are held out for every trial.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from client.dataset_files.stored_partition import PartitionData
from client.service.service import Service
from ledger.mechanisms.statistics import OF_MODELS, ConfusionMatrix, SquaredError, columns_of
from ledger.mechanisms.tuning import TrialScore
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.job.job_spec import Job
from trainer_adapter.layers.tensor_trees import TensorTree
from trainer_adapter.statistics.columns import RecordColumns
from trainer_adapter.statistics.held_out import held_out, kept_records
from trainer_adapter.statistics.model_outputs import MeasuredColumns, ModelOutputs, at_places
from trainer_adapter.statistics.noisy_answers import Answers, noisy_answer
from trainer_adapter.statistics.opendp_noise import measurement_of
from trainer_adapter.statistics.statistics_run import check_units

_WHERE: Final = "train.plan.score.metric"
_BROKEN: Final = (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError)


class HeldOutScore:
    """Judges the trials of one run."""

    def __init__(self, terms: TrialScore, job: Job) -> None:
        """Of the run of this job."""
        self._terms, self._job = terms, job
        self._columns: RecordColumns | None = None
        self._inputs: TensorTree | None = None
        self._public: TensorTree | None = None

    def check_terms(self, service: Service) -> None:
        """What can fail without a record. Raises: Malformed, Refused, Unreachable."""
        measurement_of(self._terms.metric, self._terms.relation)
        check_units(self._job, service)

    def check_model(self, model: nn.Module, inputs: TensorTree) -> None:
        """Measure public inputs (records, ...), as the model sees them. Raises: Malformed."""
        outputs = ModelOutputs.of(model, self._job.loss, inputs)
        self._public = inputs
        for column in columns_of(self._terms.metric):
            if column.startswith(OF_MODELS):
                try:
                    _ = outputs.values(column)
                except Malformed as error:
                    raise error.under(_WHERE) from None

    def hold_out(self, opened: Mapping[str, PartitionData], present: Tensor | None, records: Records) -> Tensor:
        """Keep the records that trials are judged on; which of all records train, shape (records,), bool.

        Raises:
            Malformed: for what one record cannot change.
        """
        kept = kept_records(opened, present)
        out = held_out(opened, self._terms.held_out)
        self._columns = RecordColumns(opened, kept & out)
        self._inputs = at_places(records, torch.nonzero(kept & out).flatten())
        return kept & ~out

    def score(self, model: nn.Module) -> float:
        """The noisy score of a trial, the greater the better; a model that cannot be measured has the least of all."""
        assert self._columns is not None
        assert self._inputs is not None
        assert self._public is not None
        try:
            width = ModelOutputs.of(model, self._job.loss, self._public).scores.shape[1]
            outputs = ModelOutputs.of(model, self._job.loss, self._inputs, width)
            answers = noisy_answer(
                self._terms.metric, self._terms.relation, MeasuredColumns(self._columns, outputs), "score"
            )
        except _BROKEN:
            # What fails for a public record: what one of these fails on has no number, and makes a noisy score lower.
            return -math.inf
        return self._merit(answers)

    def _merit(self, answers: Answers) -> float:
        metric = self._terms.metric
        if isinstance(metric, ConfusionMatrix):
            # The same records for each trial: by the number that is right, without the noise of all others.
            return float(np.trace(answers[metric.name].numpy()))
        if isinstance(metric, SquaredError):
            return -float(answers[metric.name][0])
        return float(answers[f"{metric.name}.auc"][0])
