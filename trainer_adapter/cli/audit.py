"""One job of ``epsilon audit``: an audited run, from its charge to the lower bound that its entry records."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from client.service.service import Service
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.commands.runs.audit_report import AuditFinding
from ledger.mechanisms.audited_plan import AuditedPlan
from ledger.wire.canonical_json import Object
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert
from trainer_adapter.audit.audited_run import AuditedRun
from trainer_adapter.audit.canaries import CanaryModel
from trainer_adapter.cli.train import MICROBATCH, best_device, measure_in_words
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.job_models.model_trial import try_models
from trainer_adapter.layers.tensor_trees import count_records, select
from trainer_adapter.session.protocol import Say
from trainer_adapter.training.named_losses import LOSS_BY_NAME, optimiser_of
from trainer_adapter.training.preprocessing_constants import PreparedConstants
from trainer_adapter.training.public_set import read_public_groups
from trainer_adapter.training.run_options import Options


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found, as its entry records it.

    Attributes:
        accuracy: of the audited model on the public test set; of a regression the mean squared error.
        by_group: the same for each group that the test set declares.
        claimed: the ε that the plan promises each record. correct: right ones of the plan's guesses.
        entry: the index of the entry.
    """

    accuracy: float
    by_group: dict[str, float]
    charge: str
    claimed: str
    correct: int
    entry: int
    found: AuditFinding
    measure: str
    plan: AuditedPlan
    privacy: ChargeEpsilon

    def to_json(self) -> Object:
        """For programs."""
        plan, found = self.plan, self.found.to_json()
        guesses: Object = {"canaries": plan.canaries, "correct": self.correct, "guesses": plan.guesses}
        own: dict[str, Any] = {"charge": self.charge, "entry": self.entry, self.measure: self.accuracy}
        if self.by_group:
            own["by_group"] = {**self.by_group}
        return {**own, **guesses, **found, "epsilon_claimed": self.claimed, **self.privacy.to_json()}

    def in_words(self) -> str:
        """For people."""
        found, plan = self.found, self.plan
        least = format_number(found.epsilon_least)
        relation = "DISPROVES" if found.above else "does not contradict"
        told = [
            f"{self.charge}: at least ε {least} at 95 %, which {relation} the claimed ε {self.claimed} of each record",
            f"{self.correct} of {plan.guesses} guesses were right, {plan.canaries} canaries; entry {self.entry}",
            f"{measure_in_words(self.measure, self.accuracy)} on the public test set",
            *(f"  of group {group}: {measure_in_words(self.measure, one)}" for group, one in self.by_group.items()),
            *self.privacy.in_words,
        ]
        if found.frozen:
            told.append(f"releases of pipeline {found.pipeline} are FROZEN")
        elif found.repeats:
            told.append(f"ALERT: audit this pipeline {found.repeats} times more, each with fresh coins")
        wrongly = float(found.false_accusation_max)
        told.append(
            f"{found.audits} audits are on record: a wrong freeze among them has a chance of {wrongly:.2g} at most"
        )
        return "\n  ".join(told)


def audit_job(job: Job, service: Service, say: Say) -> AuditReport:
    """One job whose plan is of kind 'audited', from its charge to its entry.

    Args:
        service: as the consumer calls it.
        say: receives one line for each stage.

    Raises:
        Refused: if the charge or the key is. Malformed, OSError, Unreachable.
    """
    try_models(job)
    made = JobModel.make(job, best_device())
    groups = read_public_groups(job.test, count_records(made.test[1], "test"))
    run = audited_run(made, Options(service=service, say=say, read=made.records))
    with run:
        for _ in run:
            pass
    right, by_group = made.measure(run.constants.inputs(made.test[0])), _by_group(made, groups, run.constants)
    answer = run.report()
    assert answer.index is not None
    request: Any = answer.body["request"]
    found = {name: value for name, value in answer.body.items() if name not in {"outcome", "request"}}
    return AuditReport(
        accuracy=right,
        by_group=by_group,
        charge=job.id,
        claimed=str(request["epsilon_claimed"]),
        correct=int(request["correct"]),
        entry=answer.index,
        found=convert(AuditFinding, found, "answer.body"),
        measure=job.measure,
        plan=run.audited,
        privacy=run.privacy,
    )


def _by_group(made: JobModel, groups: Tensor | None, constants: PreparedConstants) -> dict[str, float]:
    """What is measured on the public records of each group."""
    found: dict[str, float] = {}
    for group in [] if groups is None else groups.unique().tolist():
        test = select(made.test, torch.nonzero(groups == group).flatten())
        found[str(group)] = replace(made, test=test).measure(constants.inputs(test[0]))
    return found


def audited_run(made: JobModel, options: Options) -> AuditedRun:
    """The run of a job whose plan is of kind 'audited'. Raises: Malformed, OSError."""
    job = made.job
    if not isinstance(job.plan, AuditedPlan):
        raise Malformed("train.plan", "must be of kind 'audited': `epsilon train` runs a job of one training")
    model = CanaryModel(made.model, job.plan.canaries)
    known = replace(options, example=select(made.test, slice(2)), microbatch=MICROBATCH)
    return AuditedRun(model, optimiser_of(job, model), LOSS_BY_NAME[job.loss], job, known)
