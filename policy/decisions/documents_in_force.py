"""The versions of documents in force, at a time and for a partition that opened earlier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ledger.domain.facts import Contract, Dataset, Facts, Partition, PolicyVersion
from ledger.domain.gate import Caps
from ledger.wire.field_types import TIME_MAX
from policy.checks.field_readers import DAY_MS
from policy.decisions.streams_in_force import is_slice, slice_terms
from policy.documents import LEVEL_SEALED, ContractDocument, DatasetDescription, Policy, Recommendation
from policy.documents.cap_parts import WHOLE, CapParts
from policy.documents.policy import ROUNDED_DECISIONS
from policy.documents.stream import StreamDocument

# The gate runs inside the book's writer, where each document is needed for every command.
_KEPT: Final = 256
read_policy = lru_cache(maxsize=_KEPT)(Policy.parse)
read_dataset = lru_cache(maxsize=_KEPT)(DatasetDescription.parse)
read_recommendation = lru_cache(maxsize=_KEPT)(Recommendation.parse)
read_contract = lru_cache(maxsize=_KEPT)(ContractDocument.parse)

SLICE_CAPS_SINCE_MS: Final = 1_797_292_800_000
"""2026-12-15: from then on a slice of a stream whose persons may be in several slices has a part of each cap that is of
one person, as of the stream's budget, and the stream's budget is compared with the recommended one. Entries of before
are decided with the whole cap on each slice, and with the slice's budget."""


@dataclass(frozen=True, slots=True)
class Binding:
    """The terms that bind a partition now.

    Attributes:
        policy: the version in force now; all of its numbers bind but those below.
        level: the highest Level in force at any time since the partition opened, and the document that states it.
        caps_everyone: whether the global account is capped, or only reported: a cap once in force stays in force.
        lineage_epsilon_max: the least cap on a lineage in force at any time since, and the document that states it.
        age_days_max: the least of the ages stated now, by the version that sets the Level, and by the stream.
        parts: which part of a cap on one person the partition has; ``lineage_epsilon_max`` is its part.
    """

    policy: Policy
    level: int
    level_source: str
    caps_everyone: bool
    lineage_epsilon_max: Fraction
    lineage_source: str
    age_days_max: int | None
    age_source: str
    parts: CapParts = WHOLE


def parts_in_force(stream: StreamDocument | None, now: int) -> CapParts:
    """The parts of the caps on one person at a time (ms), for a slice of this stream or, if None, another partition."""
    divided = stream is not None and now >= SLICE_CAPS_SINCE_MS and stream.appearances_max > 1
    return CapParts(stream.appearances_max, stream.source) if stream is not None and divided else WHOLE


def contract_in_force(facts: Facts, contract: Contract, now: int) -> ContractDocument | None:
    """The document of a contract that runs may be charged under now (ms); None if it is superseded, revoked or over."""
    newest = facts.contract_heads.get(contract.id) == contract.document
    if contract.revoked or not newest or not contract.starts <= now < contract.ends:
        return None
    return read_contract(facts.documents[contract.document])


def caps_of(epsilon: Fraction, binds: Binding, contract: ContractDocument | None) -> Caps:
    """The caps on a charge to a partition with a budget of ``epsilon``; of the policy alone without a contract."""
    policy, parts = binds.policy, binds.parts
    lineage = binds.lineage_epsilon_max, parts.source(binds.lineage_source)
    own = parts.of(contract.lineage.epsilon_max) if contract and contract.lineage else None
    quota, stated_by = (contract.share_max, contract.source) if contract else (None, "")
    least, source = _least(lineage, (own, parts.source(stated_by)))
    share, share_source = _least((policy.share_max, policy.source), (quota, stated_by))
    if least is None or least > epsilon:
        least, source = epsilon, ""
    everyone = epsilon if binds.caps_everyone else None
    rounded, counts = policy.shared_accounts != "exact", policy.shared_accounts == ROUNDED_DECISIONS
    several = parts.appearances, parts.words
    return Caps(everyone, least, share, policy.alerts, source, share_source, rounded, counts, *several)


def _least(*stated: tuple[Fraction | None, str]) -> tuple[Fraction | None, str]:
    """The least of what documents state, and the document that does."""
    limits = [(number, source) for number, source in stated if number is not None]
    return min(limits, key=lambda limit: limit[0], default=(None, ""))


def caps_everyone(policy: Policy, level: int) -> bool:
    """Whether the global account of a partition at this Level is capped under a policy."""
    return policy.sealed_everyone if level == LEVEL_SEALED else level > 0


def policy_in_force(facts: Facts, domain: str, now: int, before: int | None = None) -> PolicyVersion | None:
    """The greatest version effective at ``now``, among those entered before an index if one is given."""
    versions = facts.policies.get(domain, ())
    candidates = (
        version for version in versions if version.effective <= now and (before is None or version.index < before)
    )
    return max(candidates, key=lambda one: one.version, default=None)


def dataset_of(facts: Facts, partition: Partition) -> Dataset:
    """The dataset of a partition. Raises: KeyError, if it is not registered."""
    return facts.datasets[partition.provider, partition.dataset]


def binding(facts: Facts, partition: Partition, now: int) -> Binding | None:
    """The terms that bind a partition now, None without a policy in force.

    A raised Level binds open partitions; a lowered Level binds those opened later, so an open one keeps the
    highest Level it ever had. The same holds for caps: a wider one, or none, binds later partitions only, and a
    frozen account stays frozen until new records or a decree.
    """
    return bindings(facts, [partition], now)[0]


def bindings(facts: Facts, partitions: Sequence[Partition], now: int) -> list[Binding | None]:
    """The terms that bind each of several partitions; those of one dataset and one policy share one value."""
    by_terms: dict[tuple[str, str, int, int], Binding | None] = {}
    bound = []
    for partition in partitions:
        # Only versions entered before the partition: a version entered later and dated back never lowers it.
        opening = policy_in_force(facts, dataset_of(facts, partition).domain, partition.opened, before=partition.index)
        version = opening.version if opening else 0
        streams = sum(
            stated.index < partition.index for stated in facts.streams.get((partition.provider, partition.dataset), ())
        )
        opened_under = partition.provider, partition.dataset, version, streams
        if opened_under not in by_terms:
            by_terms[opened_under] = _bound_since(facts, partition, version, now)
        bound.append(by_terms[opened_under])
    return bound


def _bound_since(facts: Facts, partition: Partition, version: int, now: int) -> Binding | None:
    """The terms of a partition that opened under a version of the policy, and of all with the same terms."""
    of_dataset = partition.provider, partition.dataset
    domain = facts.datasets[of_dataset].domain
    current = policy_in_force(facts, domain, now)
    if current is None:
        return None
    policy = read_policy(facts.documents[current.document])
    since = [read_policy(facts.documents[newer.document]) for newer in _since(facts, domain, version, now)]
    highest = max(since, key=lambda stated_policy: (stated_policy.level_of(*of_dataset), stated_policy.version))
    capped = any(caps_everyone(later, later.level_of(*of_dataset)) for later in since)
    tightest = min(since, key=lambda stated_policy: (stated_policy.lineage.epsilon_max, -stated_policy.version))
    stated = [(document.partition_age_days_max, document.source) for document in (policy, highest)]
    ages = [(age, source) for age, source in stated if age is not None]
    terms = slice_terms(facts, partition)
    if terms is not None:
        ages.append((terms.life_days, terms.life_source))
    parts = parts_in_force(terms.stream if terms else None, now)
    age, source = min(ages, key=lambda stated_policy: stated_policy[0]) if ages else (None, "")
    level = highest.level_of(*of_dataset)
    lineage = parts.of(tightest.lineage.epsilon_max), tightest.source
    return Binding(policy, level, highest.source, capped, *lineage, age, source, parts)


def binding_until(facts: Facts, partition: Partition, binds: Binding, now: int) -> int:
    """The first time (ms) after now at which other terms may bind a partition, or it is too old for a charge."""
    later = [
        version.effective for version in facts.policies[dataset_of(facts, partition).domain] if version.effective > now
    ]
    if now < SLICE_CAPS_SINCE_MS and is_slice(facts, partition):
        later.append(SLICE_CAPS_SINCE_MS)
    aged = [] if binds.age_days_max is None else [last_moment(partition, binds.age_days_max) + 1]
    return min((*later, *aged), default=TIME_MAX)


def last_moment(partition: Partition, age_days_max: int) -> int:
    """The last time (ms) for a charge to a partition of at most this age."""
    return partition.opened + age_days_max * DAY_MS


def _since(facts: Facts, domain: str, first: int, now: int) -> list[PolicyVersion]:
    """Versions in force at any time from that of ``first`` until now."""
    effective = [version for version in facts.policies[domain] if first <= version.version and version.effective <= now]
    return [
        version
        for place, version in enumerate(effective)
        if version.version == first or all(later.effective > version.effective for later in effective[place + 1 :])
    ]
