"""Whether a cap admits any run: how much of the declared plan fits an empty account, and the least ε for all of it.

A cap may be closed at every coordinate of a partition's rule, or open and still below the cheapest step of the declared
plan; and a document's limits on one run may bar the plan too. Nothing is refused for that, since replay would then
decide earlier documents differently. It is reported when a document is checked, previewed or entered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from msgspec import structs

from ledger.accounting.calibration import most_steps
from ledger.accounts.headroom import steps_that_fit
from ledger.accounts.pricing import COMPUTED, for_first_run
from ledger.commands.entry import Entry
from ledger.commands.organisation_lineage.coalition import Declare
from ledger.commands.registration.document import EnterDocument
from ledger.commands.registration.partition import PARTITION
from ledger.domain.command import Command
from ledger.domain.decision import Rejected
from ledger.domain.facts import Facts, Partition
from ledger.filters import Cap, NoRoom, Rule, read_rule
from ledger.mechanisms.loss import Loss, Segment
from ledger.mechanisms.price_proofs import NotPriced
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire.exact_numbers import ceil_decimal, format_number
from ledger.wire.field_types import Ref
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record
from policy.decisions.documents_in_force import (
    binding,
    caps_of,
    dataset_of,
    last_moment,
    parts_in_force,
    read_contract,
    read_policy,
)
from policy.decisions.streams_in_force import slice_terms
from policy.documents import ContractDocument, DatasetName, Policy
from policy.documents.cap_parts import CapParts
from policy.documents.stated_caps import NamedCap, NamedRunLimits, Stated, contract_states, policy_states
from policy.planning.plan_search import mechanism_of, with_steps
from policy.planning.reported_values import Natural

LEAST_STEPS: Final = 12
"""Halvings in the search for the least ε: some rules take a second for each."""
Declared = Callable[[Partition], RunPlan | None]
"""The plan that a partition was opened for."""


def declared_load(entry: Callable[[int], bytes]) -> Declared:
    """The plan in each partition's entry, which is read by its index."""

    def declared(partition: Partition) -> RunPlan | None:
        return PARTITION.read_body(Entry.parse(entry(partition.index)).command).load

    return declared


@dataclass(frozen=True, slots=True)
class _PricedPlan:
    """The declared plan and its price."""

    plan: RunPlan
    segments: tuple[Segment, ...]
    unit_records_max: int | None = None


class CapReport(Record, frozen=True):
    """The runs that an account without any run could hold under a cap.

    Attributes:
        least_epsilon: the least cap under which the declared plan, or without one any run, would fit; None if none
            within the partition's budget is known.
        plan_steps: of the declared plan; None without one.
        steps: how many of those would fit.
        text: the whole report in a sentence.
        usable: whether anything could run: a step of the declared plan or, without one, a run of the least loss.
    """

    epsilon: Fraction
    least_epsilon: Fraction | None
    partition: Ref
    plan_steps: Natural | None
    source: str
    steps: Natural | None
    text: str
    usable: bool

    @property
    def fits(self) -> bool:
        """Whether the whole declared plan would fit, or without one any run."""
        return self.usable and self.steps == self.plan_steps


def report_cap(partition: Partition, cap: NamedCap, declared: RunPlan | None) -> CapReport:
    """The runs that fit under one cap. Slow if the rule searches for its capacities in floats."""
    epsilon = min(cap.epsilon, partition.epsilon)
    try:
        priced = _price_plan(partition, declared)
    except (Rejected, Malformed) as error:
        reason = error.decided.detail if isinstance(error, Rejected) else str(error)
        text = f"{_where(partition, cap)}: the declared plan has no price: {reason}"
        steps = declared.steps if declared else None
        return CapReport(epsilon, None, partition.ref, steps, cap.source, 0, text, usable=False)
    charged = for_first_run(partition, priced.segments, priced.plan.steps) if priced else partition
    rule = read_rule(charged.terms)
    steps = _steps(rule, _capacity(rule, epsilon, cap.share), priced)
    plan_steps = None if priced is None else priced.plan.steps
    fits = steps == (1 if plan_steps is None else plan_steps)
    least = epsilon if fits else _least(rule, partition.epsilon, cap.share, priced)
    steps_shown = None if priced is None else steps
    text = f"{_where(partition, cap)}: {_sentence(steps, plan_steps, least)}"
    return CapReport(epsilon, least, partition.ref, plan_steps, cap.source, steps_shown, text, usable=steps > 0)


def report_run_limits(partition: Partition, limits: NamedRunLimits, declared: RunPlan) -> CapReport:
    """How many steps of the declared plan could be one run. Raises: Malformed, NotPriced, Rejected."""
    where, most = f"{limits.source}: ε {format_number(limits.epsilon)} on {partition.ref}", declared.steps
    barred, least, steps = limits.bounds.bars(partition.delta, declared), None, 0
    if not barred:
        most = min(most, limits.bounds.steps_max or most)
        epsilon = COMPUTED.epsilon(partition, _PricedPlan(declared, ()))
        least = None if most < declared.steps else Fraction(ceil_decimal(epsilon, 3))
        of = mechanism_of(lambda count: with_steps(declared, count), partition)
        whole = epsilon <= limits.epsilon and most == declared.steps
        steps = most if whole else most_steps(of, limits.epsilon, partition.delta, partition.relation, most)
    why = barred or (f"a run has at most {most} steps" if most < declared.steps else "")
    text = f"{where}: {_sentence(steps, declared.steps, least, why)}"
    return CapReport(limits.epsilon, least, partition.ref, declared.steps, limits.source, steps, text, usable=steps > 0)


def _price_plan(partition: Partition, declared: RunPlan | None) -> _PricedPlan | None:
    """Raises: Malformed, Rejected."""
    if declared is None:
        return None
    return _PricedPlan(declared, COMPUTED.price(partition, _PricedPlan(declared, ())))


def _capacity(rule: Rule, epsilon: Fraction, share: Fraction | None) -> Cap | None:
    try:
        whole = rule.cap(epsilon)
    except NoRoom:
        return None
    return whole if share is None else whole.part(share)


def _steps(rule: Rule, cap: Cap | None, priced: _PricedPlan | None) -> int:
    """How many steps of the declared plan an empty account would hold; without a plan 1 if any loss would fit."""
    if cap is None:
        return 0
    places = len(rule.coordinates)
    if priced is not None:
        return steps_that_fit(rule, Loss.zero(places), cap, priced.segments, priced.plan.steps)
    # The least loss: one unit at each coordinate but the slack, which a run without a black box leaves alone.
    least = tuple(int(coordinate.name != "delta slack") for coordinate in rule.coordinates)
    return int(rule.admits(Loss(least, (0,) * places), cap))


def _least(rule: Rule, most: Fraction, share: Fraction | None, priced: _PricedPlan | None) -> Fraction | None:
    """The least ε, within a thousandth of the budget, at which the whole plan fits; None if it never does."""
    steps = 1 if priced is None else priced.plan.steps
    if _steps(rule, _capacity(rule, most, share), priced) < steps:
        return None
    low, high = Fraction(0), most
    for _ in range(LEAST_STEPS):
        middle = (low + high) / 2
        if _steps(rule, _capacity(rule, middle, share), priced) == steps:
            high = middle
        else:
            low = middle
    return min(most, Fraction(ceil_decimal(high, 3)))


def _where(partition: Partition, cap: NamedCap) -> str:
    quota = "" if cap.share is None else f" with a quota of {format_number(cap.share)}"
    return f"{cap.source}: ε {format_number(cap.epsilon)}{quota} on {partition.ref}"


def _sentence(steps: int, plan_steps: int | None, least: Fraction | None, why: str = "") -> str:
    fitting = why or (
        "no ε within the partition's budget is enough"
        if least is None
        else f"{'a run' if plan_steps is None else 'the whole plan'} fits from ε {format_number(least)} on"
    )
    if plan_steps is None:
        return "a run can fit" if steps else f"no run can ever be admitted; {fitting}"
    if steps == plan_steps:
        return f"the declared plan of {plan_steps} steps fits"
    if steps:
        return f"{steps} of the declared plan's {plan_steps} steps fit; {fitting}"
    return f"not one step of the declared plan can ever be admitted; {fitting}"


def policy_caps(facts: Facts, policy: Policy, now: int, declared: Declared) -> Iterator[CapReport]:
    """The caps that a policy would set on the open partitions of its domain at a time (ms), each distinct one once."""
    mine = (partition for partition in _open(facts) if dataset_of(facts, partition).domain == policy.domain)
    known: dict[Hashable, CapReport | None] = {}
    for partition in mine:
        stated = policy_states(policy, partition.epsilon, _parts(facts, partition, now))
        yield from cap_reports((partition,), stated, lambda one: policy.load or declared(one), known)


def contract_caps(facts: Facts, contract: ContractDocument, now: int, declared: Declared) -> Iterator[CapReport]:
    """The caps that bind a contract's runs on the open partitions of its datasets, of all documents the least."""
    known: dict[Hashable, CapReport | None] = {}
    for partition in _open(facts):
        if DatasetName(partition.dataset, partition.provider) not in contract.datasets:
            continue
        binds = binding(facts, partition, now)
        if binds is None or (binds.age_days_max is not None and last_moment(partition, binds.age_days_max) < now):
            continue
        caps = caps_of(partition.epsilon, binds, contract)
        stated = contract_states(partition.epsilon, caps, binds.policy, contract, binds.parts)
        yield from cap_reports((partition,), stated, declared, known)


def coalition_caps(facts: Facts, epsilon: Fraction, now: int, declared: Declared) -> Iterator[CapReport]:
    """The cap of a coalition on every open partition at a time (ms)."""
    known: dict[Hashable, CapReport | None] = {}
    for partition in _open(facts):
        parts = _parts(facts, partition, now)
        stated = [NamedCap(parts.of(epsilon), parts.source("the coalition"))]
        yield from cap_reports((partition,), stated, declared, known)


def _parts(facts: Facts, partition: Partition, now: int) -> CapParts:
    terms = slice_terms(facts, partition)
    return parts_in_force(terms.stream if terms else None, now)


def command_caps(facts: Facts, command: Command, body: Record, now: int, declared: Declared) -> Iterable[CapReport]:
    """The caps that a policy, a contract or a coalition states, as it is entered."""
    if isinstance(body, Declare):
        return coalition_caps(facts, body.epsilon, now, declared)
    if not isinstance(body, EnterDocument) or command.kind not in {"contract", "policy"}:
        return ()
    return document_caps(facts, command.kind, facts.documents[body.document], now, declared)


def document_caps(facts: Facts, kind: str, data: bytes, now: int, declared: Declared) -> Iterable[CapReport]:
    """The caps that a policy or a contract states. Raises: Malformed."""
    if kind == "policy":
        return policy_caps(facts, read_policy(data), now, declared)
    return contract_caps(facts, read_contract(data), now, declared)


def _open(facts: Facts) -> Iterator[Partition]:
    refs = sorted(facts.partitions)
    facts.fetch_partitions(refs)
    return (partition for ref in refs if not (partition := facts.partitions[ref]).retired)


def cap_reports(
    partitions: Iterable[Partition],
    stated: Sequence[Stated],
    declared: Declared,
    known: dict[Hashable, CapReport | None] | None = None,
) -> Iterator[CapReport]:
    """Partitions of equal terms are computed once; limits on one run are reported only with a declared plan.

    Args:
        known: what earlier calls computed, by terms and limit.
    """
    reports = {} if known is None else known
    for partition in partitions:
        plan = declared(partition)
        for limit in stated:
            terms = (partition.terms, partition.relation, partition.unit, partition.unit_records_max)
            key = (*terms, partition.epsilon, plan and plan.digest, limit)
            if key not in reports:
                reports[key] = _report(partition, limit, plan)
            first = reports[key]
            if first is None:
                continue
            text = first.text.replace(f" on {first.partition}:", f" on {partition.ref}:", 1)
            yield structs.replace(first, partition=partition.ref, text=text)


def _report(partition: Partition, limit: Stated, plan: RunPlan | None) -> CapReport | None:
    """The report of a cap, or of limits on one run; None if there is nothing to report."""
    if isinstance(limit, NamedCap):
        return report_cap(partition, limit, plan)
    try:
        return None if plan is None else report_run_limits(partition, limit, plan)
    except (Malformed, NotPriced, Rejected):
        return None  # the reports of the caps state that the plan has no price
