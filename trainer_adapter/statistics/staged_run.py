"""A run of stages: statistics of its records, training scaled by them, and metrics of its model on records held out.

    charge, key, data -> statistics -> training -> metrics -> one post -> the model, with all answers in its file

The stages are one plan, so one price and one post. What was answered leaves with the model and as it does: in the
metadata of its file, sealed where that is sealed. However the run ends, what began counts: statistics whose answers
were lost with the process, too, so such a run is not resumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final

import torch
from torch import Tensor, nn

from client.dataset_files.stored_partition import PartitionData
from ledger.mechanisms.statistics import Moments, PrivateCategories
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.job.job_spec import LOSSES, Assignment
from trainer_adapter.job.preprocessing import OwnStatistic
from trainer_adapter.run.checkpointing import Position
from trainer_adapter.statistics.columns import RecordColumns
from trainer_adapter.statistics.held_out import held_out, kept_records
from trainer_adapter.statistics.model_outputs import MeasuredColumns, ModelOutputs, at_places
from trainer_adapter.statistics.noisy_answers import Answers, noisy_answer
from trainer_adapter.statistics.opendp_noise import measurement_of
from trainer_adapter.statistics.statistics_run import check_units
from trainer_adapter.training.attach import assignment_of, refuse_compiled
from trainer_adapter.training.model_file import model_bytes
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.preprocessing_constants import PreparedConstants
from trainer_adapter.training.run_options import Loss, Options

_DEVIATION_MIN: Final = 8
ANSWERS: Final = "answers"
"""The member of a model's metadata that holds what its run answered, as JSON."""


class StagedRun(ModelRun):
    """A run whose plan has stages; iterating takes the steps of its training.

    Attributes:
        answers: by name, of the statistics and then of the metrics; they leave with the model alone.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a run is made of, and its loss by name
        self,
        model: nn.Module,
        optimiser: torch.optim.Optimizer,
        loss: Loss,
        assignment: Assignment,
        options: Options,
        loss_name: str,
    ) -> None:
        """Use :func:`attach_stages`."""
        self.stages: Final = StagedPlan.of(assignment.plan)
        self.answers: Answers = {}
        saved = {**options.also, ANSWERS: _SavedAnswers(self.answers)}
        super().__init__(model, optimiser, loss, assignment, replace(options, also=saved))
        self._loss_name = loss_name
        self._last: Final = len(self.stages.statistics) + self.stages.training.steps
        self._records: Records | None = None
        self._columns: RecordColumns | None = None
        self._measured = torch.zeros(0, dtype=torch.bool)

    def open(self) -> None:
        """As :meth:`ModelRun.open`; the statistics are taken before it returns. Raises: as there."""
        self.check_stages()
        super().open()

    def check(self) -> None:
        """As :meth:`ModelRun.check`, and that every statistic and metric can be taken. Raises: as there."""
        self.check_stages()
        super().check()

    def check_stages(self) -> None:
        """What can fail without the key. Raises: Malformed, naming the statistic; Refused, Unreachable."""
        for statistic in (*self.stages.statistics, *self.stages.metrics):
            measurement_of(statistic, self.stages.relation)
        check_units(self.assignment, self.service)
        if self.options.example is None:
            raise Malformed("test", "is missing: stages are tried on a public record first")
        inputs, _ = self.options.example
        self._check_scaled(inputs)
        seen = self.load_constants().inputs(inputs)
        ModelOutputs.of(self.model, self._loss_name, seen).require(self.stages.metrics)

    def _check_scaled(self, inputs: Any) -> None:  # noqa: ANN401 - a tree of tensors
        """Hold moments that standardise to the inputs, all of them in their order. Raises: Malformed."""
        names = {
            constants.source.statistic
            for constants in self.assignment.preprocessing
            if isinstance(constants.source, OwnStatistic)
        }
        for statistic in self.stages.statistics:
            if not isinstance(statistic, Moments) or statistic.name not in names:
                continue
            width = inputs.shape[1] if isinstance(inputs, Tensor) and inputs.dim() == 2 else 0
            wanted = [f"inputs[{place}]" for place in range(width)]
            if not width or [each.column for each in statistic.columns] != wanted:
                rule = f"must be of each of the {width} inputs in order to standardise them: inputs[0], inputs[1], ..."
                raise Malformed(f"train.plan.statistics.{statistic.name}.columns", rule)

    def load_constants(self) -> PreparedConstants:
        """With those of the run's own statistics: from public bounds until they are taken. Raises: as before."""
        own = own_constants(self.stages, self.answers)
        assignment = self.assignment
        return PreparedConstants.load(assignment.preprocessing, self.service, assignment.log, own)

    def make_ready(self, loss: Loss, opened: Mapping[str, PartitionData], present: Tensor | None) -> None:
        """Take the statistics of the records that train, then make the engine of these. Raises: as :meth:`open`."""
        kept = kept_records(opened, present)
        out = held_out(opened, self.stages.held_out)
        self._measured = kept & out
        self._columns = RecordColumns(opened, self._measured)
        if self.stages.statistics:
            self.begin_at_saved()
            self._take_statistics(RecordColumns(opened, kept & ~out))
        self.constants = self.load_constants()
        self._records = self.read_all(opened)
        if not self.stages.statistics:
            self.begin_at_saved()
        self._engine = self._checked_engine(loss, self._records, None, kept & ~out)

    def _take_statistics(self, columns: RecordColumns) -> None:
        if self.answers:
            return
        if self.budget.steps_durable:
            rule = "had begun when the process died, and their answers died with it: what began stays charged"
            raise Malformed("statistics", rule)
        for statistic in self.stages.statistics:
            if (step := self.budget.next_step()) is None:
                return
            self.answers.update(noisy_answer(statistic, self.stages.relation, columns))
            self.done(step)
        self._at = Position(self.budget.taken, ended=False)
        if self.checkpoints is not None:
            # Else a run that dies in its first block could not go on.
            self.checkpoints.save_run(self._at, self.model, self.optimiser, self.options.also)

    def _next_step(self, *, update: bool) -> int | None:
        if self.over or self._at.ended or self.budget.taken >= self._last:
            return None
        return super()._next_step(update=update)

    def _take_metrics(self) -> None:
        """Measure the model on what was held out. Raises: Malformed, Refused, OSError."""
        if self.over or self._at.ended or self._engine is None or not self.stages.metrics:
            return
        if self.budget.taken < self._last:
            self.say("training ended early, so no metric is taken: they are of the whole training")
            return
        columns: MeasuredColumns | None = None
        while (step := self.budget.next_step()) is not None:
            # Whatever looks at the records comes after the step began.
            columns = columns or self._measured_columns()
            metric = self.stages.metrics[step - self._last - 1]
            self.answers.update(noisy_answer(metric, self.stages.relation, columns, "metrics"))
            self._at = Position(step, ended=False)
            self.done(step)

    def _measured_columns(self) -> MeasuredColumns:
        assert self._records is not None
        assert self._columns is not None
        assert self.options.example is not None
        try:
            # A public record first: what fails for every record may be told.
            public = ModelOutputs.of(self.model, self._loss_name, self.load_constants().inputs(self.options.example[0]))
            inputs = at_places(self._records, torch.nonzero(self._measured).flatten())
            outputs = ModelOutputs.of(self.model, self._loss_name, inputs, public.scores.shape[1])
        except (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
            rule = f"failed ({type(error).__name__}); its message may quote a record"
            raise Malformed("metrics", rule) from None
        return MeasuredColumns(self._columns, outputs)

    def _model_bytes(self) -> bytes:
        texts = json.dumps({name: value.tolist() for name, value in self.answers.items()}, sort_keys=True)
        return model_bytes(self.model, self.assignment, self._at.step, self.privacy, {**self.metadata, ANSWERS: texts})

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Measure the model, then post what ran, as :class:`ModelRun` does."""
        if error is None:
            try:
                self._take_metrics()
            except BaseException as broken:
                super().__exit__(type(broken), broken, broken.__traceback__)
                raise
        super().__exit__(kind, error, at)


def attach_stages(  # noqa: PLR0913 - as of attach, and what the outputs are
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: Loss,
    assignment: Assignment | Path | str,
    options: Options,
    *,
    loss_name: str,
    **changes: Any,  # noqa: ANN401 - members of the assignment
) -> StagedRun:
    """As :func:`~trainer_adapter.training.attach.attach`, of a plan of stages; the loop takes the steps of training.

    The statistics are taken before the first step, and the metrics where the block ends.

    Args:
        model: as there, with optimiser, loss, assignment and changes.
        options: with an ``example``, on which every stage is tried before anything is charged.
        loss_name: one of a job's losses: whether metrics read probabilities of classes, or the outputs themselves.

    Raises:
        Malformed, for another kind of plan, too; OSError, Refused, Unreachable: as there.
    """
    refuse_compiled(model)
    c.one_of(loss_name, "loss_name", LOSSES)
    return StagedRun(model, optimiser, loss, assignment_of(assignment, **changes), options, loss_name)


def own_constants(stages: StagedPlan, answers: Answers) -> dict[str, dict[str, Tensor]]:
    """What each of a plan's moments and private categories gives: as answered, or else from what is public alone.

    Moments that are not answered yet are the middle of the public bounds, and of categories none is released.

    A deviation is at least an eighth of half its column's range: in a column of nearly one value it is the noise's, and
    to divide by it would make much of nothing.
    """
    by_name = {}
    for statistic in stages.statistics:
        if isinstance(statistic, Moments):
            middle = torch.tensor([float((each.lower + each.upper) / 2) for each in statistic.columns])
            half = torch.tensor([float((each.upper - each.lower) / 2) for each in statistic.columns])
            constants = {"mean": middle, "deviation": half}
            answered = {name: answers.get(f"{statistic.name}.{name}") for name in constants}
            # Answers have 64 bits, and the records 32.
            known = {
                name: constants[name] if value is None else value.to(torch.float32) for name, value in answered.items()
            }
            by_name[statistic.name] = {**known, "deviation": torch.maximum(known["deviation"], half / _DEVIATION_MIN)}
        if isinstance(statistic, PrivateCategories):
            released = answers.get(f"{statistic.name}.values", torch.zeros(0))
            # As many places as may be released, so that how many were changes no shape; NaN is no record's category.
            places = torch.full((statistic.categories_max,), torch.nan)
            places[: len(released)] = released.to(torch.float32)
            by_name[statistic.name] = {"values": places}
    return by_name


def answers_of(model: bytes) -> Answers:
    """What a run of stages answered, from the metadata of its model's file. Raises: Malformed."""
    try:
        length = int.from_bytes(model[:8], "little")
        texts = json.loads(json.loads(model[8 : 8 + length])["__metadata__"][ANSWERS])
        return {name: torch.tensor(value, dtype=torch.float64) for name, value in texts.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Malformed("model", "says nothing of what its run answered") from None


class _SavedAnswers:
    """The answers as a checkpoint holds them."""

    def __init__(self, answers: Answers) -> None:
        """Those of a run, which are restored in place."""
        self._answers = answers

    def state_dict(self) -> dict[str, Any]:
        """Numbers and shapes."""
        return {
            name: {"shape": [*value.shape], "values": value.flatten().tolist(), "whole": not value.is_floating_point()}
            for name, value in self._answers.items()
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore them. Raises: KeyError, TypeError, ValueError, RuntimeError."""
        for name, tensor in state_dict.items():
            kind = torch.int64 if tensor["whole"] else torch.float64
            self._answers[name] = torch.tensor(tensor["values"], dtype=kind).reshape(tensor["shape"])
