"""An audited run: trained as charged, with canaries that fresh coins put beside the records, and guessed in the room.

    charge, key, data -> coins -> the charged steps -> post -> guesses -> the report, an entry

The coins are of the hardware's generator, of this run alone, and live in memory. The canaries' scores are read off the
noisy sum of every step, all of which the charge's ε covers: the logarithm of how much likelier the sums are if the
canary was in. Nothing of a score leaves, nor does the model: only how many guesses were right.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from client.dataset_files.stored_partition import PartitionData
from client.service.answers import Answer
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.accounts.run_epsilon import RunEpsilon
from ledger.commands.runs.audit_report import claim_of
from ledger.domain.outcomes import Code
from ledger.mechanisms.audited_plan import AuditedPlan
from ledger.mechanisms.plan import Plan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from trainer_adapter.audit.canaries import CanaryModel, RecordsAndCanaries, canary_loss, marked
from trainer_adapter.dpsgd.csprng import CsprngRandomness
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.layers.tensor_trees import count_records
from trainer_adapter.session.protocol import Session, clean_room_service
from trainer_adapter.session.receipt_check import check_recorded
from trainer_adapter.training.model_mark import fingerprint_of
from trainer_adapter.training.model_run import ModelRun
from trainer_adapter.training.one_run_audit import flip, tally
from trainer_adapter.training.run_options import Loss, Options

_RARE: Final = Fraction(1, 2)
"""Of records that are drawn with a smaller probability, only those that were in are guessed."""


class CanaryScores:
    """How much likelier each step's noisy sum is if a canary was in: an optimiser's hook that adds up logarithms.

    Attributes:
        totals: shape (canaries,), float64.
    """

    def __init__(self, plan: Plan, model: CanaryModel) -> None:
        """Of a plan's steps."""
        self._weight, self._expected = model.weights.weight, plan.batch_size_expected
        self._clipping, self._noise = float(plan.clipping_norm), float(plan.noise_multiplier)
        self._drawn = float(plan.sampling_probability)
        self.totals = torch.zeros(len(self._weight) - 1, dtype=torch.float64)

    def __call__(self, *_: Any) -> None:  # noqa: ANN401 - the optimiser and its arguments
        """Before an optimiser's step, which consumes the noisy mean."""
        assert self._weight.grad is not None
        mean = self._weight.grad.detach()[1:, 0].to("cpu", torch.float64)
        # A canary that was drawn adds -C to its coordinate of the sum: in units of C the sum is 1 or 0, and noise.
        seen = -mean * (self._expected / self._clipping)
        louder = (2 * seen - 1) / (2 * self._noise**2)
        silent = math.log1p(-self._drawn) if self._drawn < 1 else -math.inf
        self.totals += torch.logaddexp(torch.full_like(louder, silent), louder + math.log(self._drawn))


@dataclass(frozen=True, slots=True)
class Guesses:
    """What a run reached: of its plan's guesses so many were right, against a claim of this ε for each record."""

    plan: AuditedPlan
    correct: int
    epsilon_claimed: Fraction


class AuditedRun(ModelRun):
    """A run of an audited plan; iterating takes the charged steps."""

    def __init__(
        self, model: CanaryModel, optimiser: torch.optim.Optimizer, loss: Loss, assignment: Assignment, options: Options
    ) -> None:
        """Nothing is sent to the service yet. Raises: Malformed, naming what cannot be audited; OSError."""
        self.audited: Final = AuditedPlan.of(assignment.plan)
        _check_terms(assignment)
        self._inner: Final[nn.Module] = model.model
        self._scores: Final = CanaryScores(self.audited.training, model)
        optimiser.register_step_pre_hook(self._scores)
        self._coins: NDArray[np.bool_] | None = None
        super().__init__(model, optimiser, loss, assignment, options)

    @property
    def training(self) -> Plan:
        """What the engine's steps keep to."""
        return self.audited.training

    def make_ready(self, loss: Loss, opened: Mapping[str, PartitionData], present: Tensor | None) -> None:
        """Read the records, flip the coins, and begin the run. Raises: as :meth:`ModelRun.open`."""
        records = RecordsAndCanaries(self.read_all(opened), self.audited.canaries)
        self._coins = flip(CsprngRandomness.fresh().stream("sampler", 1), self.audited.canaries)
        there = torch.ones(records.records, dtype=torch.bool) if present is None else present
        self.begin_at_saved()
        with_coins = torch.cat((there, torch.from_numpy(self._coins)))
        self._engine = self._checked_engine(self._with_canaries(loss), records, None, with_coins)

    def check_before_keys(self, session: Session) -> None:
        """Look for the marks of other runs in the weights. Raises: Malformed."""
        weights = fingerprint_of(self._inner.state_dict().values())
        if weights is not None:
            session.check_bases(weights)

    def _check_example(self, loss: Loss) -> None:
        if self.options.example is not None:
            inputs, targets = self.options.example
            none = torch.zeros(count_records(targets, "targets"), dtype=torch.int64)
            known = marked(self.constants.inputs(inputs), none), targets
            self._report(self._checked_engine(self._with_canaries(loss), known, None))

    def _with_canaries(self, loss: Loss) -> Loss:
        return canary_loss(loss, float(self.training.clipping_norm))

    def _save_last(self) -> None:
        """Nothing: the model of an audited run is no one's."""

    def release(self) -> str:
        """Raises: Malformed. The model of an audited run does not leave."""
        raise Malformed("run", "is an audit: its model does not leave; train another run for one that does")

    def guess(self) -> Guesses:
        """Guess the coins, as many as the plan says, after the block. Raises: Malformed, if a step was not taken."""
        if self._coins is None or self.taken != self.steps:
            raise Malformed("run", f"took {self.taken} of its {self.steps} steps: nothing is guessed, repeat the audit")
        plan = self.audited
        only_in = plan.training.sampling_probability < _RARE
        found = tally(self._scores.totals.numpy(), self._coins, plan.guesses, only_in=only_in)
        (line,) = self.privacy.run_epsilon
        return Guesses(plan, found.correct, record_claim(plan, line))

    def report(self) -> Answer:
        """Guess, and record how many guesses were right. Raises: Malformed, Refused, Unreachable."""
        guessed, session, assignment = self.guess(), self.session, self.assignment
        own = clean_room_service(assignment, self.service, session.identity, self.say)
        body: c.Object = {
            "charge": assignment.id,
            "correct": guessed.correct,
            "epsilon_claimed": format_number(guessed.epsilon_claimed),
            "plan": guessed.plan.to_json(),
        }
        answer = own.submit(session.identity.signer, assignment.actor, "audit_report", body)
        check_recorded(own, answer, assignment.log, "audit_report", Code.PERMITTED)
        self.say(f"audit recorded, entry {answer.index}")
        return answer


def record_claim(plan: AuditedPlan, line: RunEpsilon) -> Fraction:
    """The ε that a plan promises each record of a partition, as a report claims it."""
    return claim_of(reported_epsilon(plan.whole, line.delta, line.relation))


def _check_terms(assignment: Assignment) -> None:
    if assignment.resume is not None:
        raise Malformed("train.resume", "is for other runs: the coins of an audit die with its process")
    if assignment.watermark:
        raise Malformed("train.watermark", "is for models that leave, and an audited one does not")
    if assignment.join is not None or len(assignment.data) != 1:
        raise Malformed("train.data", "must name one partition: canaries are put beside its records")
    if assignment.pipeline is None:
        rule = "is missing: name the file that the jobs of the audited pipeline name"
        raise Malformed("train.pipeline", rule)
