"""Policy decisions on opening partitions, within policy and recommendation and with new records only, and retiring."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Final

from ledger.commands.registration.partition import PARTITION, OpenPartition
from ledger.commands.registration.retirement import RETIREMENT, Retire
from ledger.domain.facts import Dataset, Facts
from ledger.domain.gate import Caps
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from policy.decisions.documents_in_force import (
    caps_everyone,
    parts_in_force,
    policy_in_force,
    read_dataset,
    read_policy,
    read_recommendation,
)
from policy.decisions.request import Case, on
from policy.decisions.stream_slices import check_slice
from policy.decisions.streams_in_force import stored_commitments, stream_in_force
from policy.documents import DatasetDescription, Policy
from policy.documents.cap_parts import CapParts
from policy.documents.partition_commitments import Stored, overlap, read_commitments, repeated
from policy.documents.stream import StreamBudget

_NAMED_MAX: Final = 20
"""How many earlier partitions a refusal names for one reason."""


def partition(case: Case, body: OpenPartition) -> None:
    """Decide an opening: by the provider, with a budget within the policy of its dataset's domain."""
    facts, name = case.facts, f"{body.provider}/{body.dataset}"
    case.equal("actor_not_provider", "actor", case.actor, body.provider)
    dataset = case.exists("dataset_unknown", facts.datasets.get((body.provider, body.dataset)), name, "registered")
    if dataset is None:
        return
    document = read_dataset(facts.documents[dataset.document])
    case.equal("unit_not_described", "unit", body.unit, document.unit, document.source)
    in_force = policy_in_force(facts, dataset.domain, case.now)
    version = case.exists("policy_missing", in_force, f"domain {dataset.domain}", "under a policy in force")
    if version is None:
        return
    policy = read_policy(facts.documents[version.document])
    stream = stream_in_force(facts, body.provider, body.dataset)
    parts = parts_in_force(stream, case.now)
    _check_budget(case, body, policy)
    _check_delta(case, body, policy, parts)
    _check_terms(case, body, policy)
    # What the TSO recommends is of what one person may lose, as the policy's budget is: for such slices, the stream's.
    requested: StreamBudget | OpenPartition = stream.budget if stream and parts.words else body
    _check_recommended(case, dataset, requested, body.reason)
    _check_fresh_records(case, body, policy, document)
    check_slice(case, body, policy)
    everyone = body.epsilon if caps_everyone(policy, policy.level_of(body.provider, body.dataset)) else None
    lineage = min(parts.of(policy.lineage.epsilon_max), body.epsilon)
    case.caps = ((body.ref, Caps(everyone, lineage, appearances=parts.appearances, slice_words=parts.words)),)


def _check_budget(case: Case, body: OpenPartition, policy: Policy) -> None:
    case.check("epsilon_not_positive", body.epsilon > 0, f"epsilon {format_number(body.epsilon)}", "greater than 0")
    for code, subject, value, most in (
        ("epsilon_above_budget", "the requested epsilon", body.epsilon, policy.budget.epsilon_max),
        ("delta_above_budget", "the requested delta", body.delta, policy.budget.delta_max),
    ):
        case.at_most(code, subject, value, most, policy.source)


def _check_delta(case: Case, body: OpenPartition, policy: Policy, parts: CapParts) -> None:
    """Check the δ at which every ε of the partition is, against the policy's caps on a run and on a lineage."""
    subject = f"delta of {parts.beside(body.ref)}" if parts.words else "delta"
    for code, most in (
        ("run_delta_above_policy", parts.run_delta_max(policy.run, body.epsilon)),
        ("lineage_delta_above_policy", parts.lineage_delta_max(policy, body.epsilon)),
    ):
        if most is not None:
            case.at_most(code, subject, body.delta, most, policy.source)


def _check_terms(case: Case, body: OpenPartition, policy: Policy) -> None:
    case.equal("relation_not_permitted", "relation", body.relation, policy.relation, policy.source)
    case.equal("unit_not_permitted", "unit", body.unit, policy.unit, policy.source)
    case.one_of("rule_not_permitted", body.rule, policy.rules, policy.source)
    if policy.load is not None:
        expected = f"the one of digest {policy.load.digest[:16]}"
        case.check("load_not_declared", body.load == policy.load, "the declared load", expected, policy.source)
    records, least = Fraction(body.records), Fraction(policy.records_min)
    case.at_least("records_too_few", "the number of records", records, least, policy.source)


def _check_recommended(
    case: Case, dataset: Dataset, requested: StreamBudget | OpenPartition, reason: str | None
) -> None:
    """Check that a budget above the recommended one has a reason, which the partition's own entry records."""
    if dataset.recommendation is None:
        return
    whose = "the stream's" if isinstance(requested, StreamBudget) else "the requested"
    recommendation = read_recommendation(case.facts.documents[dataset.recommendation])
    for name, value, most in (
        ("epsilon", requested.epsilon, recommendation.budget.epsilon_max),
        ("delta", requested.delta, recommendation.budget.delta_max),
    ):
        within = value <= most
        compared = (
            f"{format_number(value)} {'is at most' if within else 'exceeds'} the recommended {format_number(most)}"
        )
        why = "" if within else f", {'with a reason' if reason else 'without a reason'}"
        text = f"{whose} {name} {compared}{why}"
        case.add("reason_missing", within or bool(reason), text, recommendation.source)


def _check_fresh_records(case: Case, body: OpenPartition, policy: Policy, dataset: DatasetDescription) -> None:
    """Check the commitments that a policy requires, and that none of them repeats an earlier one.

    Retired partitions count, and so do the provider's other datasets: old records under a new name are not fresh.
    """
    if policy.commitments:
        subject = f"commitments to the records of {body.ref}"
        case.check("commitments_missing", bool(body.commitments), subject, "given", policy.source)
        expected = "stated: which partition a privacy unit belongs to"
        case.exists(
            "membership_missing", dataset.membership, f"the membership of {dataset.id}", expected, dataset.source
        )
    own = tuple(document for document in _read(case, body) if not read_commitments(document).persons)
    if not own:
        return
    total = Fraction(sum(read_commitments(document).count for document in own) * body.unit_records)
    case.at_least("commitments_too_few", "the number of committed records", total, Fraction(body.records), "")
    _check_overlap(case, body, own)


def _read(case: Case, body: OpenPartition) -> tuple[Stored, ...]:
    documents = tuple(stored_commitments(digest, case.facts) for digest in body.commitments)
    for document in documents:
        try:
            read_commitments(document)
        except KeyError:
            case.failed("commitments_malformed", f"commitments {document.digest} are not stored")
            return ()
        except Malformed as error:
            case.failed("commitments_malformed", str(error))
            return ()
    if documents:
        case.passed("commitments_malformed", f"{len(documents)} document(s) of commitments can be read")
    return documents


def _check_overlap(case: Case, body: OpenPartition, own: tuple[Stored, ...]) -> None:
    keys = {read_commitments(document).key for document in own}
    twice = repeated(own)
    case.add("records_overlap", not twice, f"{twice} records are committed to twice in {body.ref}")
    changed, shared = list[str](), list[str]()
    held = [*_with_commitments(case.facts, body.provider)]
    for ref, theirs in held:
        if len(keys) != 1 or {read_commitments(document).key for document in theirs} != keys:
            changed.append(f"the key of the commitments is not that of {ref}")
        if count := sum(overlap(own, document) for document in theirs):
            shared.append(f"{count} records of {body.ref} are those of {ref}")
    if not held:
        return
    earlier = f"the earlier partitions of {body.provider} ({len(held)})"
    _say(case, "commitments_key_changed", changed, f"the key of the commitments is that of {earlier}")
    _say(case, "records_overlap", shared, f"0 records of {body.ref} are those of {earlier}")


def _with_commitments(facts: Facts, provider: str) -> Iterator[tuple[str, list[Stored]]]:
    """The provider's partitions that commit to records, with their commitments."""
    for other in facts.partitions.values():
        if other.provider == provider and other.commitments:
            every = [stored_commitments(digest, facts) for digest in other.commitments]
            if theirs := [found for found in every if not read_commitments(found).persons]:
                yield other.ref, theirs


def _say(case: Case, code: str, failed: list[str], passed: str) -> None:
    """Add a check for each failure up to a limit, or a single passed one: a refusal is one entry of bounded size."""
    if not failed:
        case.passed(code, passed)
    for text in failed[:_NAMED_MAX]:
        case.failed(code, text)
    if failed[_NAMED_MAX:]:
        case.failed(code, f"and so of {len(failed) - _NAMED_MAX} more partitions")


def retirement(case: Case, body: Retire) -> None:
    """Decide a retirement: by the provider."""
    partition = case.exists("partition_unknown", case.facts.partitions.get(body.partition), body.partition)
    if partition is not None:
        case.equal("actor_not_provider", "actor", case.actor, partition.provider)


VERDICTS: Final = (on(PARTITION, partition), on(RETIREMENT, retirement))
"""By kind of command."""
