"""Searches around a planned run: the most steps at this noise, the least noise for these steps, how many runs fit.

The gate and the filters decided every result on the same facts: the reported steps are admitted and one more is not;
the reported noise is admitted and a ten-thousandth less is not. The search starts from the caps on runs and accounts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from msgspec import structs

from ledger.accounting.calibration import NOISE_PLACES, Crossing, find_crossing, least_noise, log_excess, most_steps
from ledger.domain.decision import Rejected
from ledger.domain.facts import GLOBAL, Account, Facts, Partition, holder_of
from ledger.domain.gate import Check
from ledger.domain.organisation_graph import coalitions_of
from ledger.mechanisms.audited_plan import AuditedPlan
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.loss import Loss
from ledger.mechanisms.mechanism import NOISE_MAX, NOISE_MIN, STEPS_MAX, Mechanism, SelfComposed
from ledger.mechanisms.plan import MechanismPlan, Plan
from ledger.mechanisms.run_plan import RunPlan, group_of
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.mechanisms.tuning import TuningPlan
from ledger.organisation_lineage.holder_names import holder_name
from ledger.wire.field_types import Ref
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record
from policy.planning.account_caps import Quota, empty_account
from policy.planning.hypothetical_facts import HypotheticalFacts
from policy.planning.reported_values import Holder, Natural, Percent, WhoseAccount
from policy.planning.what_if import WhatIf

RUNS_MAX: Final = 1_000_000
"""The most runs that are counted."""
_NEIGHBOURS: Final = 8
_NOISE_MOST: Final = int(NOISE_MAX * NOISE_PLACES)
_NOISE_LEAST: Final = int(NOISE_MIN * NOISE_PLACES)


def with_steps(plan: RunPlan, steps: int) -> RunPlan:
    """The same run with ``steps`` steps; for other plans than DP-SGD its first ``steps``. Raises: Malformed."""
    return structs.replace(plan, steps=steps) if isinstance(plan, Plan) else MechanismPlan(plan.mechanism(steps))


def with_noise(plan: RunPlan, noise: Fraction) -> RunPlan | None:
    """The same run, or training, with this noise multiplier; None if there is no single one. Raises: Malformed."""
    if isinstance(plan, Plan):
        return structs.replace(plan, noise_multiplier=noise)
    if isinstance(plan, StagedPlan | TuningPlan | AuditedPlan):
        return structs.replace(plan, training=structs.replace(plan.training, noise_multiplier=noise))
    changed = _noisier(plan.whole, noise)
    return MechanismPlan(changed) if changed else None


def _noisier(mechanism: Mechanism, noise: Fraction) -> Mechanism | None:
    if isinstance(mechanism, SelfComposed):
        inner = _noisier(mechanism.mechanism, noise)
        return structs.replace(mechanism, mechanism=inner) if inner else None
    changes: dict[str, Any] = {"noise_multiplier": noise}
    return structs.replace(mechanism, **changes) if hasattr(mechanism, "noise_multiplier") else None


def for_epochs(plan: Plan, epochs: Fraction) -> Plan:
    """The plan with the fewest steps for ``epochs`` epochs: expected passes over the records. Raises: Malformed."""
    return structs.replace(plan, steps=math.ceil(epochs / plan.sampling_probability))


def blocking_checks(question: WhatIf) -> tuple[Check, ...]:
    """The checks that fail for every noise and number of steps; empty if a small enough run might be admitted."""
    least = with_steps(question.run.plan, 1)
    mild = question.with_plan(with_noise(least, NOISE_MAX) or least)
    return tuple(check for check in mild.without_epsilon.checks if not check.passed)


def most_steps_admitted(question: WhatIf, most: int | None = None) -> int:
    """The most steps of the run's plan that would be charged, up to ``most``; 0 if not even one would.

    Exact: this number passes and, unless ``most`` was reached, one more does not. Both were decided.
    """
    plan = question.run.plan
    limit = most or (STEPS_MAX if isinstance(plan, Plan) else plan.steps)

    def of(steps: int) -> RunPlan:
        question.proceed()
        return with_steps(plan, steps)

    mild = question.with_plan(of(1))
    if _is_closed(mild):
        return 0
    count = find_crossing(_denial_excess(question, of), 0, limit + 1, Crossing(plan.steps, 1.0)).place
    count = find_crossing(_fullness(mild, of), 0, count + 1, Crossing(plan.steps, 1.0)).place
    for partition, cap in _run_caps(mild):
        if count:
            view = mechanism_of(of, partition, question.run.unit_records_max)
            count = most_steps(view, cap, partition.delta, partition.relation, count)
    return _correct_by_decisions(lambda steps: question.with_plan(of(steps)).is_admitted, count, 0, limit)


def least_noise_admitted(question: WhatIf) -> Fraction | None:
    """The least noise multiplier of the run's plan, to four decimals, that would be charged.

    Exact: it passes and a ten-thousandth less does not. Both were decided. None if no permitted noise passes, or the
    run has no single noise.
    """
    plan = question.run.plan
    mildest = with_noise(plan, NOISE_MAX)
    if mildest is None or _is_closed(mild := question.with_plan(mildest)):
        return None

    def of(noise: int) -> RunPlan:
        question.proceed()
        changed = with_noise(plan, Fraction(noise, NOISE_PLACES))
        assert changed is not None
        return changed

    def passes(noise: int) -> bool:
        return question.with_plan(of(noise)).is_admitted

    start, ends = Crossing(NOISE_PLACES, -2.0), (_NOISE_MOST, _NOISE_LEAST - 1)
    tests = (_denial_excess(question, of), _fullness(mild, of))
    place = max(find_crossing(test, *ends, start).place for test in tests)
    for partition, cap in _run_caps(mild):
        view = mechanism_of(of, partition, question.run.unit_records_max)
        least = least_noise(view, cap, partition.delta, partition.relation)
        if least is None:
            return None
        place = max(place, int(least * NOISE_PLACES))
    place = _correct_by_decisions(passes, place, _NOISE_MOST + 1, _NOISE_LEAST)
    return Fraction(place, NOISE_PLACES) if place <= _NOISE_MOST else None


def _is_closed(mild: WhatIf) -> bool:
    """Whether even the smallest plan is denied at every ε, or an account admits nothing."""
    try:
        return not mild.without_epsilon.permit or not mild.limits
    except (Rejected, Malformed, KeyError):
        return True


def _denial_excess(question: WhatIf, of: Callable[[int], RunPlan]) -> Callable[[int], float]:
    """The excess over the gate's bounds on the plan itself, without its ε: positive where the gate denies."""
    return lambda place: log_excess(None, Fraction(1), holds=question.with_plan(of(place)).without_epsilon.permit)


def _run_caps(question: WhatIf) -> list[tuple[Partition, Fraction]]:
    """The cap on the ε of one run, once for each combination of δ, relation and unit among the partitions."""
    least: dict[tuple[Fraction, str, str, int], tuple[Partition, Fraction]] = {}
    # Partitions of one dataset and of the same terms have the same caps on a run.
    first = {
        (group[0].ref, member.provider, member.dataset): member for group in question.alike for member in group[::-1]
    }
    for partition in first.values():
        cap = question.run_cap(partition.ref)
        view = (partition.delta, partition.relation, partition.unit, partition.unit_records_max)
        if view not in least or cap < least[view][1]:
            least[view] = (partition, cap)
    return list(least.values())


def mechanism_of(
    of: Callable[[int], RunPlan], partition: Partition, joined: int | None = None
) -> Callable[[int], Mechanism]:
    """By steps or noise, what the partition's privacy unit sees; ``joined`` records of it after joins."""

    def mechanism(place: int) -> Mechanism:
        plan = of(place)
        group = group_of(plan, partition.unit, partition.unit_records_max, joined)
        return group_privacy(group, plan.mechanism(plan.steps))

    return mechanism


def _fullness(question: WhatIf, of: Callable[[int], RunPlan]) -> Callable[[int], float]:
    """How far the fullest account would be over, by the rule's own test."""

    def excess(place: int) -> float:
        try:
            rooms = question.rooms(of(place))
        except (Rejected, Malformed):
            return log_excess(None, Fraction(1))
        shares = ((room.rule.share(room.after, room.limit.cap), room.enough) for room in rooms)
        return max(log_excess(share, Fraction(1), holds=enough) for share, enough in shares)

    return excess


def _correct_by_decisions(passes: Callable[[int], bool], number: int, none: int, limit: int) -> int:
    """The estimated place, corrected by decisions: it is admitted, and the next one on the way to ``limit`` is not.

    ``none`` means no place at all. Bisection covers an ε that is not monotone, and checks outside the estimate.
    """
    onward = 1 if limit > none else -1
    if number == none:
        closed = limit == none or not passes(none + onward)
        return number if closed else _correct_by_decisions(passes, none + onward, none, limit)
    if not passes(number):
        return find_crossing(
            lambda place: log_excess(None, Fraction(1), holds=passes(place)), none, number, Crossing(number, 1.0)
        ).place
    for _ in range(_NEIGHBOURS):
        if number == limit or not passes(number + onward):
            break
        number += onward
    return number


class RunsThatFit(Record, frozen=True):
    """How many more such runs one account admits, if there are no other charges, and the share of its capacity used.

    Attributes:
        epsilon_max: the cap that it is held to, share_max: or a quota, so much of the capacity of that ε.
        runs: 0 if every such run is denied, even with room.
        used: before the run.
        used_after: with it, if it were admitted.
    """

    holder: Holder
    name: WhoseAccount
    partition: Ref
    runs: Natural
    used: Percent
    used_after: Percent | None = None
    epsilon_max: Fraction | None = None
    share_max: Quota | None = None


class MoreRuns(Record, frozen=True):
    """How many more such runs would be admitted one after another, if there are no other charges.

    Attributes:
        accounts: each account by itself, by its rule.
        binding: of the decision on the run after the last.
        more: decided as a whole, contract and policy included.
        or_more: whether ``RUNS_MAX`` would be admitted; more are not counted.
    """

    accounts: tuple[RunsThatFit, ...]
    binding: Check | None
    more: Natural
    or_more: bool


def runs_that_fit(question: WhatIf) -> MoreRuns:
    """How many more such runs fit; the last one and the one after it are decided with all before them."""
    low, high = 0, RUNS_MAX + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _after(question, middle - 1).is_admitted else (low, middle)
    return MoreRuns(_account_runs(question), _after(question, low).decision.binding, low, low == RUNS_MAX)


def _account_runs(question: WhatIf) -> tuple[RunsThatFit, ...]:
    try:
        rooms = question.rooms(question.run.plan)
    except (Rejected, Malformed, KeyError):
        return ()
    permit = question.without_epsilon.permit
    return tuple(
        RunsThatFit(
            holder=room.limit.holder,
            name=holder_name(question.facts, room.limit.holder),
            partition=room.limit.partition,
            runs=room.rule.runs(room.before, room.limit.cap, room.run) if permit else 0,
            used=Percent.of_loss(room.rule, room.before, room.limit.cap),
            used_after=Percent.of_loss(room.rule, room.after, room.limit.cap),
            epsilon_max=room.limit.cap.epsilon,
            share_max=room.limit.share,
        )
        for room in rooms
    )


def _after(question: WhatIf, runs: int) -> WhatIf:
    """The same question after ``runs`` of these runs."""
    question.proceed()
    if not runs:
        return question
    facts, run = question.facts, question.run
    try:
        costs = {room.limit.partition: room.run for room in question.rooms(run.plan)}
        contract, node = facts.contracts[run.contract], question.author.node
    except (Rejected, Malformed, KeyError):
        return question
    holders = (GLOBAL, holder_of(node), *map(holder_of, coalitions_of(facts.nodes, node)))
    pairs = ((ref, holder, cost) for ref, cost in costs.items() for holder in holders)
    accounts = {(ref, holder): _account_after(facts, ref, holder, cost, runs) for ref, holder, cost in pairs}
    contracts = {run.contract: contract._replace(runs=contract.runs + runs)}
    partitions = {partition.ref: partition for partition in question.with_rules(run.plan)}
    after = HypotheticalFacts(facts, accounts=accounts, contracts=contracts, partitions=partitions)
    return replace(question, facts=after)


def _account_after(facts: Facts, ref: str, holder: str, cost: Loss, runs: int) -> Account:
    account = facts.accounts.get((ref, holder)) or empty_account(facts.partitions[ref], holder)
    whole = Loss(tuple(runs * units for units in cost.finite), tuple(runs * units for units in cost.infinite))
    return account._replace(pending=account.pending + whole)
