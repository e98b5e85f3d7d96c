"""``epsilon ensemble``: charge, key, data, teachers on disjoint chunks, and all of them sealed; nothing leaves."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import nn

from client.dataset_files.stored_partition import PartitionData
from client.service.service import Service
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.mechanisms.ensembles import USERS, Answer, ClippedMean, EnsemblePlan, Plurality
from ledger.wire.canonical_json import Object
from ledger.wire.malformed import Malformed
from trainer_adapter.cli.attester_check import check_attester
from trainer_adapter.cli.train import best_device
from trainer_adapter.ensembles.chunks import KEY_BYTES, chunks_of
from trainer_adapter.ensembles.ensemble_run import EnsembleRun
from trainer_adapter.ensembles.teachers import Teachers, Training, train_teachers
from trainer_adapter.job.answer_terms import AnswerTerms
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.layers.tensor_trees import concatenate
from trainer_adapter.session.protocol import Say
from trainer_adapter.session.quote_report import QuoteReport
from trainer_adapter.training.named_losses import LOSS_BY_NAME, optimiser_of
from trainer_adapter.training.preprocessing_constants import PreparedConstants
from trainer_adapter.training.training_records import user_numbers

WEIGHTS: Final = "class_weights"
SEED_MAX: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class SealedReport:
    """What may be known of a sealed ensemble: what was charged, and nothing that was computed from the records."""

    charge: str
    teachers: int
    questions: int
    privacy: ChargeEpsilon

    def to_json(self) -> Object:
        """For programs. ``epsilon`` is the greatest of ``run_epsilon``, and ``partition`` is where."""
        own: Object = {"charge": self.charge, "questions": self.questions, "teachers": self.teachers}
        whole = self.privacy.epsilon
        return {**own, **self.privacy.to_json(), "epsilon": whole.number, "partition": whole.partition}

    def in_words(self) -> str:
        """For people."""
        done = f"{self.charge}: {self.teachers} teachers are sealed, for {self.questions} questions"
        return "\n  ".join((done, *self.privacy.in_words))


@dataclass(frozen=True, slots=True)
class EnsembleJob:
    """A job with an ensemble, and what it makes before anything is charged.

    Attributes:
        terms: when answers leave; those of the table ``[train.answers]``, or as they are without it.
    """

    made: JobModel
    plan: EnsemblePlan
    constants: PreparedConstants
    terms: AnswerTerms

    @classmethod
    def make(cls, job: Job, service: Service) -> EnsembleJob:
        """Raises: Malformed, for what the job names wrongly; OSError, Refused, Unreachable."""
        try:
            plan = EnsemblePlan.of(job.plan)
        except Malformed as error:
            raise error.under("train.plan") from None
        if any(constants.kind == WEIGHTS for constants in job.preprocessing):
            raise Malformed("preprocessing", f"{WEIGHTS} is for `epsilon train`: teachers learn every record alike")
        made = JobModel.make(job, best_device())
        wanted = outputs_of(plan.answer)
        if made.outputs != wanted:
            rule = f"gives {made.outputs} numbers, and the answer '{plan.answer.kind}' takes {wanted}"
            raise Malformed("model", f"{job.model} {rule}")
        if not isinstance(made.test[0], torch.Tensor):
            raise Malformed("test", "has inputs of several arrays, and a question is one array")
        constants = PreparedConstants.load(made.job.preprocessing, service, job.log)
        return cls(made, plan, constants, job.answers or AnswerTerms())

    def run(self, service: Service, say: Say) -> EnsembleRun:
        """One process of the job's run. Raises: Malformed, OSError."""
        return EnsembleRun(self.made.job, service, say, at_once=self.terms.at_once)

    def train(self, opened: dict[str, PartitionData]) -> Teachers:
        """Teachers on the records of all partitions. Raises: Malformed, in words that quote no record."""
        try:
            return self._train(opened)
        except (ArithmeticError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, Malformed):
                raise
            rule = f"failed ({type(error).__name__}); its message may quote a record"
            raise Malformed("ensemble", rule) from None

    def _train(self, opened: dict[str, PartitionData]) -> Teachers:
        job, key = self.made.job, secrets.token_bytes(KEY_BYTES)
        assert job.teachers is not None
        parts, chunks = [], []
        for ref, data in opened.items():
            records = self.made.records(data, ref)
            users = user_numbers(data, ref) if self.plan.chunks_by == USERS else None
            chunks.append(chunks_of(key, ref, self.plan.chunks_by, self.plan.teachers, records, users))
            parts.append(records)
        inputs, targets = (concatenate(list(trees)) for trees in zip(*parts, strict=True))
        how = Training(
            LOSS_BY_NAME[job.loss],
            partial(_optimiser, job),
            job.teachers.steps,
            job.teachers.batch_size,
            secrets.randbelow(SEED_MAX),
        )
        seen = self.constants.inputs(inputs), targets
        return train_teachers(self.made.model, seen, np.concatenate(chunks), self.plan.teachers, how)


@dataclass(frozen=True, slots=True)
class EnsembleCheck:
    """What was found of a job with an ensemble; ``quote`` is what its charge would get now."""

    job: Job
    plan: EnsemblePlan
    test: int
    quote: QuoteReport

    def to_json(self) -> Object:
        """For programs."""
        return {
            "charge": self.job.id,
            "permitted": self.quote.permitted,
            "plan": self.plan.to_json(),
            "reasons": [{"code": reason.code, "detail": reason.detail} for reason in self.quote.reasons],
            "test_records": self.test,
        }

    def in_words(self) -> str:
        """For people."""
        plan = self.plan
        lines = (
            f"{self.job.id}: {plan.teachers} teachers of the model {self.job.model}, chunks by {plan.chunks_by};",
            f"  {plan.questions} questions, each answered by {plan.answer.kind}; {self.test} public test records",
            str(self.quote),
            "Nothing was recorded.",
        )
        return "\n".join(lines)


def check_ensemble(job: Job, service: Service, say: Say) -> EnsembleCheck:
    """Try attester, model, test set and plan, and get the decision on the charge; nothing is recorded.

    Raises:
        Malformed, Refused, Unreachable, OSError.
    """
    check_attester(job, service)
    ensemble = EnsembleJob.make(job, service)
    quote = ensemble.run(service, say).plan()
    return EnsembleCheck(job, ensemble.plan, len(ensemble.made.test[1]), quote)


def seal_ensemble(job: Job, service: Service, say: Say) -> SealedReport:
    """Train a job's ensemble in one clean room and seal it there; a killed training begins anew under its charge.

    Args:
        service: as the consumer calls it.
        say: receives one line for each stage.

    Raises:
        Refused: if the charge or the key is. Malformed, OSError, Unreachable.
    """
    ensemble = EnsembleJob.make(job, service)
    with ensemble.run(service, say) as run:
        if run.trained:
            raise Malformed("output", "holds a sealed ensemble already: `epsilon answer` opens it")
        opened = run.open_data()
        if run.over:
            raise Malformed("charge", f"{job.id} was posted: name another id and output in the job")
        run.seal(ensemble.train(opened))
        say("the teachers are sealed: nothing of them leaves but charged answers")
        return SealedReport(job.id, ensemble.plan.teachers, ensemble.plan.questions, run.privacy)


def outputs_of(answer: Answer) -> int:
    """How many numbers a teacher gives for a question."""
    match answer:
        case Plurality(classes=classes):
            return classes
        case ClippedMean(outputs=outputs):
            return len(outputs)
        case _:
            return 1


def _optimiser(job: Job, holder: nn.Module) -> torch.optim.Optimizer:
    return optimiser_of(job, holder)
