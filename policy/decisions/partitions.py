"""Partitions opened, within policy and recommendation and with new records alone, and retired."""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from ledger.commands.registration.partition import PARTITION, OpenPartition
from ledger.commands.registration.retirement import RETIREMENT, Retire
from ledger.domain.facts import Dataset, Facts
from ledger.domain.gate import Caps, Request, Verdict
from ledger.wire.exact_numbers import format_number
from policy.checks.findings import Findings
from policy.decisions.documents_in_force import (
    caps_everyone,
    policy_in_force,
    read_dataset,
    read_policy,
    read_recommendation,
)
from policy.decisions.fresh_records import check_fresh_records
from policy.decisions.request import on
from policy.documents import Policy


def partition(request: Request, body: OpenPartition, facts: Facts) -> Verdict:
    """A partition opened by its provider, with a budget within the policy of its dataset's domain."""
    findings = Findings()
    findings.equal("actor_not_provider", "actor", request.command.actor, body.provider)
    dataset = facts.datasets.get((body.provider, body.dataset))
    findings.check("dataset_unknown", dataset is not None, f"{body.provider}/{body.dataset}", "registered")
    if dataset is None:
        return findings.verdict()
    document = read_dataset(facts.documents[dataset.document])
    findings.equal("unit_not_described", "unit", body.unit, document.unit, document.source)
    version = policy_in_force(facts, dataset.domain, request.now)
    findings.check("policy_missing", version is not None, f"domain {dataset.domain}", "under a policy in force")
    if version is None:
        return findings.verdict()
    policy = read_policy(facts.documents[version.document])
    epsilon = _budget(findings, body, policy)
    _terms(findings, body, policy)
    _recommended(findings, body, dataset, facts)
    check_fresh_records(findings, body, policy, document, facts)
    everyone = epsilon if caps_everyone(policy, policy.level_of(body.provider, body.dataset)) else None
    caps = Caps(everyone, lineage=min(policy.lineage.epsilon_max, epsilon))
    return findings.verdict(caps=((body.ref, caps),))


def _budget(findings: Findings, body: OpenPartition, policy: Policy) -> Fraction:
    epsilon, delta = body.epsilon, body.delta
    findings.check("epsilon_not_positive", epsilon > 0, f"epsilon {format_number(epsilon)}", "greater than 0")
    findings.at_most("epsilon_above_budget", "the requested epsilon", epsilon, policy.budget.epsilon_max, policy.source)
    findings.at_most("delta_above_budget", "the requested delta", delta, policy.budget.delta_max, policy.source)
    for code, most in (
        ("run_delta_above_policy", policy.run.delta_max),
        ("lineage_delta_above_policy", policy.lineage.delta_max),
    ):
        if most is not None:
            findings.at_most(code, "delta", delta, most, policy.source)
    return epsilon


def _terms(findings: Findings, body: OpenPartition, policy: Policy) -> None:
    findings.equal("relation_not_permitted", "relation", body.relation, policy.relation, policy.source)
    findings.equal("unit_not_permitted", "unit", body.unit, policy.unit, policy.source)
    findings.one_of("rule_not_permitted", body.rule, policy.rules, policy.source)
    if policy.load is not None:
        expected = f"the one of digest {policy.load.digest[:16]}"
        findings.check("load_not_declared", body.load == policy.load, "the declared load", expected, policy.source)
    records, least = Fraction(body.records), Fraction(policy.records_min)
    findings.at_least("records_too_few", "the number of records", records, least, policy.source)


def _recommended(findings: Findings, body: OpenPartition, dataset: Dataset, facts: Facts) -> None:
    """A budget above the recommended one needs a reason, which the partition's own entry keeps."""
    if dataset.recommendation is None:
        return
    found = read_recommendation(facts.documents[dataset.recommendation])
    for name, requested, most in (
        ("epsilon", body.epsilon, found.budget.epsilon_max),
        ("delta", body.delta, found.budget.delta_max),
    ):
        within = requested <= most
        compared = (
            f"{format_number(requested)} {'is at most' if within else 'exceeds'} the recommended {format_number(most)}"
        )
        why = "" if within else f", {'with a reason' if body.reason else 'without a reason'}"
        findings.add(
            "reason_missing", within or bool(body.reason), f"the requested {name} {compared}{why}", found.source
        )


def retirement(request: Request, body: Retire, facts: Facts) -> Verdict:
    """A partition retired by its provider."""
    ref, findings = body.partition, Findings()
    found = facts.partitions.get(ref)
    findings.check("partition_unknown", found is not None, ref, "on record")
    if found is not None:
        findings.equal("actor_not_provider", "actor", request.command.actor, found.provider)
    return findings.verdict()


VERDICTS: Final = (on(PARTITION, partition), on(RETIREMENT, retirement))
"""By kind of command."""
