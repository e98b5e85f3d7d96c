"""An assignment, one run of one clean room for the ledger, and the job of ``epsilon train``; read from a TOML file.

    v = 1

    [train]
    id = "bank-a-run-1"
    service = "http://127.0.0.1:8000"
    issuer = "http://127.0.0.1:8100"
    log = "epsilon.example/ledger+8f2c1a90+AQ..."
    actor = "did:web:bank-a.example"
    key = "keys/bank-a.pem"
    contract = "<sha256>"
    deadline_s = 3600
    block_steps = 20
    output = "runs/bank-a-run-1"

    [train.attester]
    issuer = "https://attester.example"
    key = "keys/attester.pem"

    [train.data]
    "did:web:hospital.example/digits/2026-q1" = "data/2026-q1.sealed"

    [train.plan]
    batch_size_expected = 350
    ...

Paths are relative to the file. The charge also states, where the file does: ``base``, the charges of the models that
the run starts from; ``recipients``, to whom its model will go, or "everyone"; ``unit_records_max``, the records of one
privacy unit after joins; and the SHA-256 of the file ``pipeline``, which the clean room's attestation names too.
``join`` lists the partitions that are joined, the base first (:mod:`trainer_adapter.training.record_join`).
``grants`` is the folder where providers put data keys (:mod:`trainer_adapter.session.key_grants`).
``step_leases`` and ``lease_s`` are of :mod:`trainer_adapter.run.block_leases`. With a table ``[train.resume]`` a
killed run can go on: see :mod:`trainer_adapter.run.checkpointing`.
In place of ``service``, ``issuer``, ``log``, ``actor`` and ``key`` it may name a ``profile`` that holds them, and in
place of the plan a table ``[train.privacy]`` (:mod:`trainer_adapter.job.privacy_target`).
A job says in the same table what ``epsilon train`` makes of its assignment:

    model = "digits-linear"
    learning_rate = "0.3"
    momentum = "0.9"
    test = "data/test.npz"

``model`` is a name of :mod:`trainer_adapter.job_models.models`, a function in a file beside the job, as
``networks.py:small``, or a folder with public weights; the file is then the run's ``pipeline``, unless the job names
another. ``accuracy_target`` is measured on public data only, so a run that stops at it may give its unexecuted steps
back. ``devices`` says how many processes train together. :mod:`trainer_adapter.job.job_schema` has the whole form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from client.profile.profile import read_table
from ledger.domain.range_names import is_range
from ledger.log.verification import parse_log_key
from ledger.mechanisms.audited_plan import AuditedPlan
from ledger.mechanisms.correlated.correlated_plan import CorrelatedPlan
from ledger.mechanisms.ensembles import EnsemblePlan
from ledger.mechanisms.mechanism import GROUP_MAX
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import USER, RunPlan
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.mechanisms.tuning import TuningPlan
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number, parse_positive
from ledger.wire.malformed import Malformed
from trainer_adapter.job.answer_terms import AnswerTerms, TeacherTerms
from trainer_adapter.job.category_inputs import check_own_statistics
from trainer_adapter.job.estimator import Estimator
from trainer_adapter.job.job_fields import (
    DEVICES_MAX,
    path_in,
    plain,
    read_by,
    read_contract,
    read_data,
    read_fields,
    read_model,
    read_plan,
    read_recipients,
    read_several,
)
from trainer_adapter.job.lora_terms import Lora
from trainer_adapter.job.preprocessing import Constants, read_preprocessing
from trainer_adapter.job.privacy_target import PrivacyTarget
from trainer_adapter.job.step_log import BLOCK_STEPS_MAX
from trainer_adapter.job.train_table import read_train_table
from trainer_adapter.job.tuning_terms import TuningTerms

OUTPUTS_MAX: Final = 1 << 20
SGD: Final = "sgd"
OPTIMISERS: Final = (SGD, "adam", "adamw", "rmsprop")
SQUARED_ERROR: Final = "mean_squared_error"
LOSSES: Final = ("cross_entropy", "binary_cross_entropy", SQUARED_ERROR)
LEASE_S_MAX: Final = 86_400
"""Seconds of work that one lease is for."""
JOIN_MAX: Final = 16
"""Tables that a clean room joins."""
RECORDS_PER_UNIT_MAX: Final = 1_024
"""Records of one privacy unit that train."""
Planner: TypeAlias = "Callable[[PrivacyTarget, Assignment], RunPlan]"
"""Chooses the plan that keeps a target, for an assignment that has no plan yet."""


@dataclass(frozen=True, slots=True)
class Attester:
    """The development attester that signs for the clean room: the name that a policy trusts, and its key's file."""

    issuer: str = field(metadata=plain(c.string, 200))
    key: Path = field(metadata=read_by(path_in))


@dataclass(frozen=True, slots=True)
class Resume:
    """How a killed run may go on: the file of the key that its state is sealed under, and how often it is saved."""

    key: Path = field(metadata=read_by(path_in))
    every_s: int = field(metadata=plain(c.integer, 0, 86_400))


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """One run. ``data`` maps each partition to its file at rest; without ``resume`` a run dies with its process.

    A range of partitions is mapped to a folder, until :mod:`trainer_adapter.session.slice_files` names each of them;
    then ``listed`` are those that no range covers, and ``ranges`` what the charge names. ``target`` is what the plan
    was chosen for, where the job states its ε.
    """

    id: str = field(metadata=plain(c.name))
    service: str = field(metadata=plain(c.string))
    issuer: str = field(metadata=plain(c.string))
    log: LogKey = field(metadata=plain(lambda value, where: parse_log_key(c.string(value, where))))
    actor: str = field(metadata=plain(c.did))
    key: Path = field(metadata=read_by(path_in))
    contract: str = field(metadata=read_by(read_contract))
    deadline_s: int = field(metadata=plain(c.integer, 60, 30 * 86_400))
    block_steps: int = field(metadata=plain(c.integer, 1, BLOCK_STEPS_MAX))
    output: Path = field(metadata=read_by(path_in))
    attester: Attester = field(metadata=read_by(partial(read_fields, Attester)))
    data: dict[str, Path] = field(metadata=read_by(read_data))
    plan: RunPlan = field(metadata=plain(read_plan))
    grants: Path | None = field(default=None, metadata=read_by(path_in))
    pipeline: Path | None = field(default=None, metadata=read_by(path_in))
    preprocessing: tuple[Constants, ...] = field(
        default=(), metadata=read_by(lambda value, _, folder: read_preprocessing(value, folder))
    )
    resume: Resume | None = field(default=None, metadata=read_by(partial(read_fields, Resume)))
    base: list[c.Json] | None = field(default=None, metadata=plain(partial(read_several, c.name)))
    recipients: list[c.Json] | str | None = field(default=None, metadata=plain(read_recipients))
    unit_records_max: int | None = field(default=None, metadata=plain(c.integer, 1, GROUP_MAX))
    join: tuple[str, ...] | None = field(default=None, metadata=plain(c.strings, JOIN_MAX))
    step_leases: bool | None = field(default=None, metadata=plain(c.boolean))
    watermark: bool = field(default=False, metadata=plain(c.boolean))
    lease_s: int = field(default=1, metadata=plain(c.integer, 0, LEASE_S_MAX))
    estimator: Estimator | None = field(default=None, metadata=read_by(Estimator.parse))
    listed: tuple[str, ...] | None = None
    ranges: tuple[c.Object, ...] = ()
    target: PrivacyTarget | None = None

    def __post_init__(self) -> None:
        """Hold its members to each other. Raises: Malformed."""
        if self.join is not None and (set(self.join) != set(self.data) or any(map(is_range, self.join))):
            raise Malformed("join", "must name each partition of data once, and no range of slices")
        if self.join is not None and self.plan.unit == USER:
            raise Malformed(
                "join", "is for plans whose unit is the record, with unit_records_max: their unit is the user"
            )
        check_own_statistics(self.preprocessing, self.plan)

    @property
    def training(self) -> Plan:
        """The plan of a run that trains, or of its stage that does. Raises: Malformed, for one of another kind."""
        if isinstance(self.plan, StagedPlan | CorrelatedPlan):
            return self.plan.training
        for kind, rule in (
            (TuningPlan, "of trials, which `epsilon tune`"),
            (AuditedPlan, "audited, as `epsilon audit`"),
        ):
            if isinstance(self.plan, kind):
                raise Malformed("train.plan", f"is {rule} runs")
        try:
            return Plan.of(self.plan)
        except Malformed as error:
            raise error.under("train.plan") from None

    @property
    def stated(self) -> c.Object:
        """What the charge's body says as the file says it."""
        stated = {"base": self.base, "recipients": self.recipients, "unit_records_max": self.unit_records_max}
        return {
            "partitions": [*(self.data if self.listed is None else self.listed)],
            **({"ranges": [*self.ranges]} if self.ranges else {}),
            **{name: value for name, value in stated.items() if value is not None},
        }

    @classmethod
    def load(cls, path: Path, planner: Planner | None = None) -> Assignment:
        """Read an assignment file, or what a job's says of its assignment. Raises: Malformed, OSError."""
        if "model" not in read_table(path, "train", ()):
            return read_train_table(Assignment, path, planner)
        job = read_train_table(Job, path, planner, folder=path.parent)
        return Assignment(**{member.name: getattr(job, member.name) for member in fields(Assignment)})


@dataclass(frozen=True, kw_only=True)
class Job(Assignment):
    """One run of a model that :mod:`trainer_adapter.job_models.models` makes; ``folder`` is the job's own."""

    folder: Path
    model: str = field(metadata=read_by(read_model))
    learning_rate: Fraction = field(metadata=plain(parse_positive))
    test: Path = field(metadata=read_by(path_in))
    momentum: Fraction | None = field(default=None, metadata=plain(parse_number))
    optimiser: str = field(default=SGD, metadata=plain(c.one_of, OPTIMISERS))
    weight_decay: Fraction = field(default=Fraction(0), metadata=plain(parse_number))
    loss: str = field(default=LOSSES[0], metadata=plain(c.one_of, LOSSES))
    outputs: int | None = field(default=None, metadata=plain(c.integer, 1, OUTPUTS_MAX))
    schema: Path | None = field(default=None, metadata=read_by(path_in))
    lora: Lora | None = field(default=None, metadata=read_by(partial(read_fields, Lora)))
    accuracy_target: Fraction | None = field(default=None, metadata=plain(parse_number))
    records_per_user_max: int | None = field(default=None, metadata=plain(c.integer, 1, RECORDS_PER_UNIT_MAX))
    teachers: TeacherTerms | None = field(default=None, metadata=plain(TeacherTerms.parse))
    answers: AnswerTerms | None = field(default=None, metadata=plain(AnswerTerms.parse))
    tuning: TuningTerms | None = field(default=None, metadata=read_by(TuningTerms.parse))
    devices: int | None = field(default=None, metadata=plain(c.integer, 1, DEVICES_MAX))

    def __post_init__(self) -> None:
        """Hold its members to each other. Raises: Malformed."""
        super().__post_init__()
        self._check_kind()
        if (self.optimiser == SGD) != (self.momentum is not None):
            rule = "is missing" if self.optimiser == SGD else f"is for sgd, not for {self.optimiser}: leave it out"
            raise Malformed("momentum", rule)
        if self.accuracy_target is not None and self.loss == SQUARED_ERROR:
            raise Malformed("accuracy_target", f"is for classes, and the loss is {SQUARED_ERROR}: leave it out")
        if self.devices is not None and not isinstance(self.plan, Plan):
            raise Malformed("devices", "is for a run that trains and does nothing else: leave it out")

    def _check_kind(self) -> None:
        """A model is trained with privacy, or tried with others, or is the form of teachers. Raises: Malformed."""
        for name, kind, named, why in (
            ("teachers", EnsemblePlan, "ensemble", "how long is each teacher of the ensemble trained?"),
            ("tuning", TuningPlan, "tuning", "which values are tried?"),
        ):
            if isinstance(self.plan, kind) and getattr(self, name) is None:
                raise Malformed(name, f"is missing: {why}")
            if not isinstance(self.plan, kind) and getattr(self, name) is not None:
                raise Malformed(name, f"is for a plan of kind '{named}': leave it out")
        match self.plan:
            case EnsemblePlan():
                self._check_ensemble()
            case TuningPlan() | AuditedPlan():
                if self.accuracy_target is not None:
                    raise Malformed("accuracy_target", "is for one training, which ends there: this takes all steps")
            case StagedPlan(metrics=metrics):
                if metrics and self.accuracy_target is not None:
                    raise Malformed("accuracy_target", "is for a run without metrics: they are of the whole training")
            case CorrelatedPlan():
                pass
            case _:
                _ = Plan.of(self.plan)

    def _check_ensemble(self) -> None:
        if self.resume is None:
            raise Malformed("resume", "is missing: the ensemble lies sealed under its key until its questions come")
        if self.step_leases is False:
            raise Malformed("step_leases", "must not be false: each answer of an ensemble needs a lease")

    @property
    def measure(self) -> str:
        """What is measured on the public test set."""
        return SQUARED_ERROR if self.loss == SQUARED_ERROR else "accuracy"

    @classmethod
    def load(cls, path: Path, planner: Planner | None = None) -> Job:
        """Read a job file. Raises: Malformed, naming the field; OSError."""
        job = read_train_table(Job, path, planner, folder=path.parent)
        if job.tuning is not None and job.pipeline is None:
            # The space that trials draw from is fixed before the run sees data, and can be shown to have been.
            return replace(job, pipeline=path)
        if ":" in job.model and job.pipeline is None:
            return replace(job, pipeline=path.parent / job.model.rpartition(":")[0])
        return job
