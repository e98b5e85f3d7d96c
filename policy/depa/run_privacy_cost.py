"""The privacy cost of a pipeline's run for a number of records: its noise, steps, ε and δ, and how often it fits.

DEPA's trainer derives the noise from the requested ε (Opacus, ``make_private_with_epsilon``): sampling probability
one over the number of batches, as many steps an epoch, δ lowered to one over the number of records. The same noise is
computed here with the ledger's own accountant, and then the run is priced like any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ledger.accounting.calibration import calibrate_noise
from ledger.accounting.epsilon_report import Report, report_epsilon
from ledger.filters import NoRoom, Opening, choose_rule
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import Composed, Mechanism, Pure
from ledger.mechanisms.plan import MechanismPlan, Plan
from ledger.mechanisms.price_proofs import PURE, RULE_NAMES, NotPriced
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire.canonical_json import Json, Object
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from policy.depa.contract.contract import Contract
from policy.depa.contract.reasons import Reasons
from policy.depa.evaluation import RELATION, Terms, compared, group_of
from policy.depa.pipeline.pipeline import Pipeline
from policy.depa.pipeline.training_stage import Training


@dataclass(frozen=True, slots=True)
class Priced:
    """A run as it would be charged.

    Attributes:
        plans: of each training stage; ``whole`` is all of them as one plan.
        rows: the most rows of one data principal, which it is charged for; None if a join has no bound.
        report: the ε of one run at δ, for groups of ``rows``; of one row where no bound is known.
        budget: the ε that runs are counted against, at the same δ; None if there is none.
        runs: for each rule, how many such runs and no other an empty partition holds, or why none can be counted.
    """

    plans: tuple[RunPlan, ...]
    whole: RunPlan
    rows: int | None
    report: Report
    budget: Fraction | None
    runs: tuple[tuple[str, int | str], ...]

    def to_json(self) -> Object:
        """As JSON."""
        held: Object = {
            rule: {"runs": result} if isinstance(result, int) else {"why": result} for rule, result in self.runs
        }
        noises: list[Json] = [
            format_number(plan.noise_multiplier) if isinstance(plan, Plan) else None for plan in self.plans
        ]
        return {
            "budget": None if self.budget is None else format_number(self.budget),
            "noise_multipliers": noises,
            "plan": self.whole.to_json(),
            "report": self.report.to_json(),
            "rows_per_principal_max": self.rows,
            "runs_held": held,
            "steps": self.whole.steps,
        }


def price(contract: Contract, pipeline: Pipeline, terms: Terms, reasons: Reasons) -> Priced | None:
    """A pipeline's run with its price; None, with a reason, if it is unknown."""
    plans = [_plan(stage, contract, terms, reasons) for stage in pipeline.trainings if stage.private]
    finite = tuple(plan for plan in plans if plan is not None)
    if not finite or len(finite) < len(plans):
        return None
    delta = _delta(pipeline.trainings, contract, terms)
    if delta is None:
        return None
    composed = (plan.mechanism(plan.steps) for plan in finite)
    whole = finite[0] if len(finite) == 1 else MechanismPlan(Composed(tuple(composed)))
    rows = group_of(pipeline, terms)
    run = group_privacy(rows or 1, whole.mechanism(whole.steps))
    try:
        report = report_epsilon(run, delta, RELATION)
    except (Malformed, NotPriced, ArithmeticError) as error:
        reasons.refuse("not_priced", "pipeline.pipeline", None, str(error))
        return None
    most = contract.epsilon_max()
    if most is not None and report.epsilon > most and ((rows or 1) > 1 or len(finite) > 1):
        of = f"groups of {rows or 1}, {len(finite)} stage(s): {compared(report.epsilon, most)}"
        reasons.refuse("run_above_contract", "pipeline.pipeline", None, of)
    budget = terms.budget or most
    if budget is None:
        return Priced(finite, whole, rows, report, None, ())
    rules = *((name, delta) for name in RULE_NAMES), (PURE, Fraction(0))
    return Priced(
        finite, whole, rows, report, budget, tuple((name, _runs(name, run, of, budget)) for name, of in rules)
    )


def _plan(stage: Training, contract: Contract, terms: Terms, reasons: Reasons) -> RunPlan | None:
    privacy = stage.privacy
    if stage.trees:
        _hold_noise(contract, None, reasons)
        return None if privacy.epsilon is None else MechanismPlan(Pure(privacy.epsilon, RELATION))
    if terms.records is None:
        reasons.warn("noise_unknown", stage.path)
        return None
    delta = _delta((stage,), contract, terms)
    if privacy.epsilon is None or privacy.clipping is None or delta is None:
        return None
    if stage.batch is None or stage.epochs is None:
        return None
    if privacy.delta is not None and privacy.delta > Fraction(1, terms.records):
        detail = compared(privacy.delta, Fraction(1, terms.records))
        reasons.warn("delta_lowered", privacy.delta_path, privacy.delta, detail)
    batches = -(-terms.records // stage.batch)
    steps = stage.epochs * batches
    try:
        noise = calibrate_noise(Fraction(1, batches), steps, privacy.epsilon, delta, RELATION)
        plan = Plan(Fraction(1, batches), noise, privacy.clipping, steps, min(stage.batch, terms.records))
    except (Malformed, ArithmeticError) as error:
        reasons.refuse("not_priced", stage.path, None, str(error))
        return None
    _hold_noise(contract, noise, reasons)
    return plan


def _hold_noise(contract: Contract, noise: Fraction | None, reasons: Reasons) -> None:
    for bound in contract.bounds:
        if bound.noise is not None and (noise is None or noise < bound.noise):
            detail = (
                "boosted trees state none"
                if noise is None
                else f"{format_number(noise)} < {format_number(bound.noise)}"
            )
            reasons.refuse("noise_below_contract", f"{bound.path}.noise_multiplier", bound.noise, detail)


def _delta(stages: tuple[Training, ...], contract: Contract, terms: Terms) -> Fraction | None:
    """The least δ that any party states, and at most one over the number of records; None if there is none."""
    stated = [stage.privacy.delta for stage in stages if stage.privacy.delta is not None]
    agreed = contract.delta_max()
    stated += [agreed] if agreed is not None else []
    return min([*stated, Fraction(1, max(2, terms.records))] if terms.records else stated, default=None)


def _runs(kind: str, run: Mechanism, delta: Fraction, budget: Fraction) -> int | str:
    try:
        rule = choose_rule(kind if delta else RULE_NAMES[0], Opening(delta, (budget,), run, RELATION))
        segments = rule.segments(run, RELATION)
        loss = loss_of(segments, sum(segment.steps for segment in segments))
        rule = rule.for_first_run(loss)
        cap = rule.cap(budget)
        return rule.runs(Loss.zero(len(rule.coordinates)), cap, loss)
    except (Malformed, NoRoom, NotPriced, ArithmeticError) as error:
        return str(error)
