"""A run that answers questions: charge, key, data, one noisy answer a step, post, and the answers' release.

The answers leave as the run's model does, if its Level permits: one file of safetensors, whose metadata name each
statistic, the charge and its ε. A training run may take its constants from that file: see
:mod:`trainer_adapter.job.preprocessing`.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from client.service.service import Service
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.mechanisms.run_plan import RECORD
from ledger.mechanisms.statistics_plans import StatisticsPlan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.run.charged_run import Run
from trainer_adapter.run.declared_records import form_is_described
from trainer_adapter.run.unit_bounds import unit_bounds
from trainer_adapter.session.model_release import Pause
from trainer_adapter.session.protocol import Say
from trainer_adapter.session.slice_files import with_slices
from trainer_adapter.statistics.columns import RecordColumns
from trainer_adapter.statistics.noisy_answers import noisy_answer, shown
from trainer_adapter.statistics.opendp_noise import measurement_of
from trainer_adapter.training.model_file import tensors_bytes
from trainer_adapter.training.record_join import join_partitions
from trainer_adapter.training.training_records import counted_records, read_records


@dataclass(frozen=True, slots=True)
class StatisticsReport:
    """What may be known outside.

    Attributes:
        answers: by name, in words; empty unless the answers were released.
        model: the SHA-256 of the released answers, or empty if their release was refused.
        privacy: the ε of the whole run, one line a partition.
    """

    answers: dict[str, str]
    charge: str
    model: str
    steps: int
    steps_charged: int
    privacy: ChargeEpsilon

    def to_json(self) -> c.Object:
        """For programs. ``epsilon`` is the greatest of ``run_epsilon``, and ``partition`` is where."""
        whole = self.privacy.epsilon
        return {
            "answers": {**self.answers},
            "charge": self.charge,
            "epsilon": whole.number,
            "model": self.model,
            "partition": whole.partition,
            "steps": self.steps,
            "steps_charged": self.steps_charged,
            **self.privacy.to_json(),
        }

    def in_words(self) -> str:
        """For people."""
        done = f"{self.charge}: {self.steps} of {self.steps_charged} statistics"
        shown = [f"{name} = {value}" for name, value in self.answers.items()]
        return "\n  ".join((done, *self.privacy.in_words, *shown))


class StatisticsRun(Run):
    """A run whose steps are answers."""

    leases_by_default = True
    joins = bounds_units = True

    def columns(self) -> RecordColumns:
        """The columns of the records that count, joined where the job joins; once.

        Raises:
            Malformed: for what one record cannot change. Refused, Unreachable.
        """
        opened, assignment = self.open_data(), self.assignment
        described = form_is_described(opened)
        try:
            opened, present = join_partitions(opened, assignment)
        except Malformed:
            self.count_as_begun()
            raise
        try:
            if present is None:
                # A join counts the records of a person itself.
                present = counted_records(opened, unit_bounds(opened, assignment, self.service), read_records)
            return RecordColumns(opened, present)
        except Malformed:
            # No record shows by a form that is described; of other data the charge stays.
            if described:
                self.count_as_begun()
            raise


def run_statistics(job: Assignment, service: Service, say: Say, pause: Pause | None = None) -> StatisticsReport:
    """One job of statistics, from its charge to the release of its answers.

    Args:
        pause: waits some seconds: with it a run stays until its providers' notice of the answers has run.

    Raises:
        Refused: if the charge or the key is. Malformed, OSError, Unreachable.
    """
    plan = StatisticsPlan.of(job.plan)
    if job.resume is not None:
        raise Malformed("train.resume", "is for training: what is killed stays charged")
    # What can fail without the key fails before anything is charged.
    for statistic in plan.statistics:
        measurement_of(statistic, plan.relation)
    check_units(job, service)
    answers: dict[str, Tensor] = {}
    with StatisticsRun(job, service, say) as run:
        columns = run.columns()
        for step in run.begin():
            answers |= noisy_answer(plan.statistics[step - 1], plan.relation, columns)
            run.done(step)
        taken = run.budget.taken
        run.model_data = tensors_bytes(answers, job, taken, run.privacy)
    released = run.release_model(run.model_data, pause) if taken else ""
    answered = {name: shown(value) for name, value in answers.items()} if released else {}
    return StatisticsReport(answered, job.id, released, taken, run.steps, run.privacy)


def check_units(job: Assignment, service: Service) -> None:
    """Raises: Malformed, where the job does not state how many records of one unit count. Refused, Unreachable."""
    if job.unit_records_max is not None:
        return
    for ref in with_slices(job, service).data:
        if (unit := service.partition(ref)["unit"]) != RECORD:
            rule = f"is missing: the unit of {ref} is the {unit}, and at most so many records of each count"
            raise Malformed("train.unit_records_max", rule)
