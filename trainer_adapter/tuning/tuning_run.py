"""The run of trials: charged once, a secret number of them trained, and only the best model leaves.

    charge, key, data -> K drawn -> K trials -> the rest of the time -> one post -> the best model

Papernot, Steinke 2022: private selection costs little because K is secret and drawn without a look at any record. So
everything that others see is that of the most trials whatever K is: one step, one lease, one post, and the time at
which the run ends and its model leaves. What the room's owner sees of its own machine (a bill for processor time, say)
is not. K and the finished trials are of one generation: they lie in the memory of its process, and nothing of them is
written. A later generation would have another K, so there is none: a run that dies is not resumed, its charge is posted
whole, and nothing of it leaves. Trials are judged on public data, or by a private score that is part of each trial.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import torch
from torch import Tensor, nn

from client.dataset_files.stored_partition import PartitionData
from client.service.service import Service
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.tuning import TuningPlan
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.dpsgd.engine import Engine
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job.tuning_terms import Point, TuningTerms, Value
from trainer_adapter.layers.tensor_trees import TensorTree
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.preprocessing_constants import PreparedConstants
from trainer_adapter.training.run_options import Loss, Options
from trainer_adapter.training.training_records import read_users
from trainer_adapter.tuning.points import check_space, draw_point, plan_at
from trainer_adapter.tuning.trial_number import draw_number

POINT: Final = "tuning_point"
"""The member of a model's metadata that holds the values of the best trial, as JSON; empty of the default."""
_PAUSE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """What a trial trains at a point, and how it is judged: by a number of public data, the greater the better.

    Where the run has a judge, that number is not computed.
    """

    model: nn.Module
    optimiser: torch.optim.Optimizer
    score: Callable[[PreparedConstants], float]


MakeCandidate = Callable[[Point], Candidate]


class Judge(Protocol):
    """Judges trials by records that none of them trains on; what that costs is charged with each trial."""

    def check_terms(self, service: Service) -> None:
        """What can fail without a record. Raises: Malformed, Refused, Unreachable."""

    def check_model(self, model: nn.Module, inputs: TensorTree) -> None:
        """Measure public inputs, as the model sees them. Raises: Malformed."""

    def hold_out(self, opened: Mapping[str, PartitionData], present: Tensor | None, records: Records) -> Tensor:
        """Keep the records that it judges on; which of all train, shape (records,), bool. Raises: Malformed."""

    def score(self, model: nn.Module) -> float:
        """Of a trial's model, the greater the better; it raises for nothing that records hold."""


@dataclass(frozen=True, slots=True)
class Clock:
    """The time that a run takes, in seconds, and how it waits."""

    now: Callable[[], float] = time.monotonic
    wait: Callable[[float], None] = time.sleep


@dataclass(frozen=True, slots=True)
class _Trial:
    """One that is finished. Equal scores are ordered by chance, so that no trial's place among others counts."""

    merit: tuple[float, int]
    model: nn.Module
    optimiser: torch.optim.Optimizer
    engine: Engine
    point: Point = field(default_factory=dict)


class TuningRun(ModelRun):
    """A run whose plan is of trials; iterating takes its one step, in which all of them are trained.

    Attributes:
        point: the values of the best trial, after the step; empty if there was none and the default leaves.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what a run is made of, and what judges it
        self,
        job: Job,
        make: MakeCandidate,
        loss: Loss,
        options: Options,
        clock: Clock | None = None,
        judge: Judge | None = None,
    ) -> None:
        """Nothing is sent to the service yet.

        Args:
            make: makes what a trial trains; at the empty point the default, which leaves untrained if no trial runs.
            judge: of trials whose plan has a private score; None of others.

        Raises:
            Malformed: naming what cannot be tuned. OSError.
        """
        self.tuning: Final = TuningPlan.of(job.plan)
        assert job.tuning is not None
        if job.resume is not None:
            raise Malformed("train.resume", "is for other runs: the secret number of trials dies with its process")
        if (self.tuning.score is None) != (judge is None):
            raise Malformed("train.plan.score", "is what trials are judged by, exactly if it is given")
        check_space(self.tuning.training, job.tuning.space)
        self.terms: Final[TuningTerms] = job.tuning
        self.duration_s: Final = self.tuning.trials.most * self.terms.trial_s
        if job.deadline_s <= self.duration_s:
            rule = f"must be more than the {self.duration_s} s that the most trials take"
            raise Malformed("train.deadline_s", rule)
        self.point: Point = {}
        self._make, self._clock, self._judge = make, clock or Clock(), judge
        self._trained_at: Point = {}
        self._inputs: tuple[Loss, Records, Tensor | None, Tensor | None] | None = None
        default = make({})
        super().__init__(default.model, default.optimiser, loss, job, options)

    @property
    def training(self) -> Plan:
        """The plan of the trial that is trained now."""
        return plan_at(self.tuning.training, self._trained_at)

    def make_ready(self, loss: Loss, opened: Mapping[str, PartitionData], present: Tensor | None) -> None:
        """Read the records, and begin the run. Raises: as :meth:`ModelRun.open`."""
        users = None if self.options.records_per_user_max is None else read_users(opened)
        records = self.read_all(opened)
        if self._judge is not None:
            present = self._judge.hold_out(opened, present, records)
        self._inputs = (loss, records, users, present)
        self.begin_at_saved()
        self._engine = self._checked_engine(*self._inputs)

    def _check_example(self, loss: Loss) -> None:
        """Hold each model of the space, and the default, to the engine's and the judge's terms. Raises: Malformed."""
        if self.options.example is None:
            raise Malformed("test", "is missing: trials are tried, and without a private score judged, on public data")
        if self._judge is not None:
            self._judge.check_terms(self.service)
        self._check_model(loss)
        default = self.model, self.optimiser
        for name, values in self.terms.space.items():
            for value in values:
                self._trained_at = {name: value}
                candidate = self._make(self._trained_at)
                self.model, self.optimiser = candidate.model, candidate.optimiser
                if name in {"model", "clipping_norm"}:
                    self._check_model(loss)
        self._trained_at = {}
        self.model, self.optimiser = default

    def _check_model(self, loss: Loss) -> None:
        super()._check_example(loss)
        if self._judge is not None and self.options.example is not None:
            self._judge.check_model(self.model, self.constants.inputs(self.options.example[0]))

    def _take(self, step: int, *, update: bool) -> None:  # noqa: ARG002 - as of every step
        """Train all trials, and keep the best. Raises: Malformed, for what ends the run: nothing of it leaves then."""
        assert self._engine is not None
        ends = self._clock.now() + self.duration_s
        best = _Trial((-math.inf, 0), self.model, self.optimiser, self._engine)
        for _ in range(draw_number(self.tuning.trials)):
            best = max(best, self._trial(ends), key=lambda one: one.merit)
        self.model, self.optimiser, self._engine = best.model, best.optimiser, best.engine
        self.point = best.point
        while (left := ends - self._clock.now()) > 0:
            self._check_time(ends)
            self._clock.wait(min(left, _PAUSE_S))

    def _trial(self, ends: float) -> _Trial:
        assert self._inputs is not None
        self._trained_at = point = draw_point(self.terms.space)
        candidate = self._make(point)
        self.model, self.optimiser = candidate.model, candidate.optimiser
        self._engine, self._randomness = self._checked_engine(*self._inputs), CsprngRandomness.fresh()
        for step in range(1, self.training.steps + 1):
            self._check_time(ends)
            super()._take(step, update=True)
        score = candidate.score(self.constants) if self._judge is None else self._judge.score(self.model)
        # A score that is late would end the run later than the most trials do.
        self._check_time(ends)
        merit = (score if math.isfinite(score) else -math.inf, secrets.randbits(64) + 1)
        return _Trial(merit, self.model, self.optimiser, self._engine, point)

    def _check_time(self, ends: float) -> None:
        if why := self.budget.why_ends():
            raise Malformed("run", f"ended during its trials: {why}")
        if self._clock.now() > ends:
            rule = f"is {self.terms.trial_s}, and the trials take longer: nothing of this run leaves"
            raise Malformed("train.tuning.trial_s", rule)

    @property
    def metadata(self) -> dict[str, str]:
        """What the model's file names beside the run: the values of the best trial."""
        return {**super().metadata, POINT: json.dumps(point_json(self.point), sort_keys=True)}


def point_json(point: Point) -> dict[str, str | int]:
    """A point for programs: numbers as the job states them."""
    return {name: _spelled(value) for name, value in point.items()}


def _spelled(value: Value) -> str | int:
    return value if isinstance(value, str | int) else format_number(value)
