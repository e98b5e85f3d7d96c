"""The report of an audited run: a lower bound on ε, recorded beside the ε that its plan is charged for.

The clean room put canaries beside the records by coins of its own, trained as charged, and guessed the coins from what
the run released (:mod:`ledger.accounts.audit_bound`). It reports how many of its guesses were right. The plan, which
the charge's entry fixed, says how many canaries and guesses there are; bound and verdict follow from these numbers
alone. One charge has one report, and each has fresh coins and canaries, so no other run has seen the same.

A bound that disproves the claim at 95 % orders repeats. If :data:`ACCUSATIONS` audits of one pipeline in a row do, no
model of that pipeline is released any more. Wherever such a row begins, a private run has it with a chance of at most
1/20 to the fourth. So over all audits of a book that is at most their number times as much, which each entry states.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Annotated, Final

from ledger.accounts.audit_bound import DOUBT, PLACES, Tally, disproves, epsilon_least
from ledger.commands.command_fields import Natural
from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context, require_posted
from ledger.domain.charge_record import Charge
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Audit, Partition
from ledger.domain.outcomes import Code
from ledger.domain.roles import CCR
from ledger.mechanisms.audited_plan import GUESSES_MAX, AuditedPlan
from ledger.mechanisms.plan_reader import AnyPlan
from ledger.wire.exact_numbers import format_number
from ledger.wire.field_types import Name, Positive, Sha256, between
from ledger.wire.records import Record

ACCUSATIONS: Final = 4
"""So many audits in a row whose bound is above the claim freeze the releases of a pipeline."""
_CLAIM_SLACK: Final = Fraction(1, 1_000_000)
"""How far below what is computed here a claim may lie: another machine's floats end a search elsewhere."""
_CLAIM_PART: Final = Fraction(1, 20)
"""How far above it a claim may lie: an accountant of a later version may prove less."""


class ReportAudit(Record, frozen=True):
    """How many guesses of an audited run were right.

    Attributes:
        plan: of the charge, by its digest.
        correct: guesses that were right.
        epsilon_claimed: what the plan promises each record at the partition's δ, rounded up to a hundredth.
    """

    charge: Name
    plan: AnyPlan
    correct: Annotated[int, between(0, GUESSES_MAX)]
    epsilon_claimed: Positive


class AuditFinding(Record, frozen=True):
    """What follows from a report, as its entry records it.

    Attributes:
        above: whether the claim is disproved, with a chance of at most 1/20 to say so wrongly.
        audits: how many audits the book has with this one.
        epsilon_least: the lower bound, in hundredths; 0 if nothing is disproved.
        false_accusation_max: the chance that any pipeline of the book whose runs keep their claims is frozen by now.
        frozen: whether releases of the pipeline are frozen from this entry on, or were before.
        pipeline: what was audited.
        repeats: how many further audits, with fresh coins, decide on the freeze; 0 if none is ordered.
    """

    above: bool
    audits: Natural
    epsilon_least: Fraction
    false_accusation_max: Fraction
    frozen: bool
    pipeline: Sha256
    repeats: Natural


def decide(context: Context[ReportAudit]) -> Decision:
    """Decide an audit report."""
    body, charge = context.body, context.charge(context.body.charge)
    context.require_clean_room(charge)
    require_posted(charge, "an audit is reported after its run was posted")
    if charge.id in context.facts.audits:
        raise Rejected(Code.CONFLICT, f"the audit of charge {charge.id} is reported already", "body.charge")
    plan, pipeline = _audited(charge, body), charge.pipeline
    if len(charge.partitions) != 1 or pipeline is None:
        detail = f"charge {charge.id} is audited on one partition, and names its pipeline: it does not"
        raise Rejected(Code.CONFLICT, detail, "body.charge")
    partition = context.partition(charge.partitions[0])
    _check_claim(context.prices.record_epsilon(partition, plan), body.epsilon_claimed)
    return context.permit(_finding(context.facts.audits, partition, body, plan, pipeline))


def _audited(charge: Charge, body: ReportAudit) -> AuditedPlan:
    """The plan of an audited run that took all its steps. Raises: Rejected."""
    plan = body.plan
    if plan.digest != charge.plan or not isinstance(plan, AuditedPlan):
        raise Rejected(Code.CONFLICT, f"charge {charge.id} has another plan, or one without an audit", "body.plan")
    if charge.steps_posted != charge.steps:
        detail = f"charge {charge.id} took {charge.steps_posted} of its {charge.steps} steps: repeat the audit"
        raise Rejected(Code.CONFLICT, detail, "body.charge")
    if body.correct > plan.guesses:
        raise Rejected(Code.MALFORMED, f"body.correct: at most the {plan.guesses} guesses", "body.correct")
    return plan


def _check_claim(computed: Fraction, claimed: Fraction) -> None:
    """A claim that is too low accuses wrongly, and one that is too high hides what an audit found. Raises: Rejected."""
    least = computed * (1 - _CLAIM_SLACK) - _CLAIM_SLACK
    most = computed * (1 + _CLAIM_PART) + Fraction(1, PLACES)
    if not least <= claimed <= most or (claimed * PLACES).denominator != 1:
        promised = f"the plan promises {format_number(computed)}, rounded up to a hundredth"
        detail = f"body.epsilon_claimed: is {format_number(claimed)}, and {promised}"
        raise Rejected(Code.MALFORMED, detail, "body.epsilon_claimed")


def claim_of(epsilon: Fraction) -> Fraction:
    """An ε as a report claims it, rounded up to a hundredth."""
    return Fraction(max(1, math.ceil(epsilon * PLACES)), PLACES)


def _finding(
    audits: Mapping[str, Audit], partition: Partition, body: ReportAudit, plan: AuditedPlan, pipeline: str
) -> AuditFinding:
    seen = Tally(plan.canaries, plan.guesses, body.correct)
    above = disproves(seen, body.epsilon_claimed, partition.delta)
    row = accusations(audits.values(), pipeline)
    now = row if is_frozen(row) else row + 1 if above else 0
    return AuditFinding(
        above=above,
        audits=len(audits) + 1,
        epsilon_least=epsilon_least(seen, partition.delta),
        false_accusation_max=min(Fraction(1), (len(audits) + 1) * DOUBT**ACCUSATIONS),
        frozen=is_frozen(now),
        pipeline=pipeline,
        repeats=ACCUSATIONS - now if 0 < now < ACCUSATIONS else 0,
    )


def accusations(audits: Iterable[Audit], pipeline: str) -> int:
    """How many of a pipeline's newest audits in a row are above their claim; once it is frozen, that many."""
    row = 0
    for audit in sorted((one for one in audits if one.pipeline == pipeline), key=lambda one: one.index):
        row = row + 1 if audit.above else 0
        if is_frozen(row):
            break
    return row


def is_frozen(row: int) -> bool:
    """Whether so many accusations in a row freeze a pipeline."""
    return row >= ACCUSATIONS


def apply(change: Change[ReportAudit]) -> None:
    """Record the audit."""
    found, charge = change.recorded(AuditFinding), change.body.charge
    change.state.audits[charge] = Audit(charge, found.pipeline, found.above, change.index)


AUDIT_REPORT: Final = CommandKind(
    "audit_report", ReportAudit, decide, (CCR,), "/v1/audit-reports", apply, recorded=AuditFinding
)
