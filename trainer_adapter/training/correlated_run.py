"""A run whose plan has correlated noise: a step of the charge is a round of steps, and it is never resumed."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor, nn

from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.correlated.correlated_engine import CorrelatedEngine
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.run_options import Loss, Options


class CorrelatedRun(ModelRun):
    """A run of a :class:`~ledger.mechanisms.correlated.CorrelatedPlan`; iterating takes its rounds."""

    def __init__(
        self, model: nn.Module, optimiser: torch.optim.Optimizer, loss: Loss, assignment: Assignment, options: Options
    ) -> None:
        """Use :func:`~trainer_adapter.training.attach.attach`. Raises: Malformed, for a run that may be resumed."""
        self.correlated = CorrelatedPlan.of(assignment.plan)
        if assignment.resume is not None:
            raise Malformed("train.resume", "is for other runs: noise that later steps take back lives in memory alone")
        super().__init__(model, optimiser, loss, assignment, options)

    def new_engine(self, loss: Loss, records: Records, users: Tensor | None, present: Tensor | None) -> Engine:
        """The engine that takes the run's rounds. Raises: Malformed."""
        given = {**self.options.engine_options, "present": present, "users": users}
        engine = CorrelatedEngine(self.correlated, self.model, loss, records, self.options.microbatch, **given)
        engine.traced.check_optimiser(self.optimiser)
        return engine

    def gradients(self) -> NoReturn:
        """Not of this run, whose rounds are of several updates. Raises: Malformed."""
        raise Malformed("train.plan", "is of correlated noise, whose rounds step the optimiser themselves: iterate")
