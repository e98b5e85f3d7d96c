"""The impact of a policy before it is published: a pure function of facts, the document's bytes and a time.

The current facts are compared with the facts after the version is entered, both at the time at which it takes
effect, so that changes by other versions until then do not count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Annotated, Generic, TypeVar

from msgspec import Meta, structs

from ledger.commands.registration.document import EnterDocument
from ledger.domain.command import Command
from ledger.domain.facts import GLOBAL, Facts, Partition, holder_of
from ledger.domain.gate import Check, Request
from ledger.domain.organisation_graph import SUCCESSION, NodeKind, knowers
from ledger.domain.outcomes import ChargeState
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from ledger.wire.field_types import Name
from ledger.wire.records import Record
from policy.checks.field_readers import format_time
from policy.decisions.charges import covers
from policy.decisions.documents_in_force import dataset_of, policy_in_force, read_contract, read_policy
from policy.decisions.gate import gate
from policy.documents import LEVEL_SEALED, ContractDocument, DatasetName, Policy, RunBounds
from policy.documents.cap_parts import CapParts
from policy.documents.run_bounds import strictest
from policy.planning.account_caps import AccountStatus, PartitionBounds, Quota, account_status, partition_bounds
from policy.planning.hypothetical_facts import HypotheticalFacts, with_policy_published
from policy.planning.reported_values import Moment
from policy.planning.usable_caps import CapReport, Declared, policy_caps

T = TypeVar("T")
BoundsChange = tuple[PartitionBounds | None, PartitionBounds | None]
"""The bounds of a partition before and after; None without a policy in force."""
Word = Annotated[str | int | bool | list[str] | None, Meta(description="as people read it")]


class Change(Record, Generic[T], frozen=True):
    """A value before and after; null if there is none."""

    after: T
    before: T
    name: str


class ContractBounds(RunBounds, frozen=True):
    """The strictest limits on runs under a contract."""

    lineage_epsilon_max: Fraction | None
    pipeline: bool
    run_epsilon_max: Fraction | None
    share_max: Quota | None


class AccountChange(Record, frozen=True):
    """An account whose cap changes: whether the policy would freeze or unfreeze it."""

    after: AccountStatus
    before: AccountStatus
    freezes: bool
    thaws: bool


class PendingChange(Record, frozen=True):
    """A pending charge on a partition that changes. It stays pending, and can be posted or voided.

    Attributes:
        attestation: whether its key release, which is still to come, would need other evidence.
        frozen: whether an account that it counts in would be frozen.
        sealed: whether its model, which could be released, no longer can be.
    """

    attestation: bool
    charge: Name
    frozen: bool
    sealed: bool


class Impact(Record, frozen=True):
    """The changes by a policy; unchanged values are not listed.

    Attributes:
        caps: those of the policy under which the declared plan, or without one any run, would not fit.
        at: the time at which both sides are compared: now, or when it takes effect if that is later.
        contracts: the limits on runs under newest versions that have not ended, by id.
        datasets: those of the domain with an open partition that changes.
        fields: of the policy in force in its domain.
        partitions: open ones, by reference.
        refused: the failed checks if its issuer entered it; empty if it would be permitted.
        undeclared: named coalitions whose members cannot charge until an SRO declares them; with those members.
    """

    accounts: tuple[AccountChange, ...]
    at: Moment
    caps: tuple[CapReport, ...]
    contracts: tuple[Change[ContractBounds], ...]
    datasets: tuple[DatasetName, ...]
    fields: tuple[Change[Word], ...]
    partitions: tuple[Change[PartitionBounds | None], ...]
    pending: tuple[PendingChange, ...]
    policy: str
    refused: tuple[Check, ...]
    undeclared: tuple[Annotated[str, Meta(description="a named coalition not declared, and its members")], ...]


def impact(facts: Facts, data: bytes, now: int, pending: Iterable[str], declared: Declared = lambda _: None) -> Impact:
    """The impact of a policy with these bytes.

    Args:
        pending: the ids of the charges to check; settled ones are skipped.
        declared: the plan that each partition was opened for.

    Raises:
        Malformed: if it is not a policy, or contradicts itself.
    """
    policy, after = with_policy_published(facts, data)
    at = max(now, policy.effective)
    refs = sorted(facts.partitions)
    facts.fetch_partitions(refs)
    opened = [partition for ref in refs if not (partition := facts.partitions[ref]).retired]
    mine = [partition for partition in opened if dataset_of(facts, partition).domain == policy.domain]
    bounds = {
        partition.ref: (partition_bounds(facts, partition, at), partition_bounds(after, partition, at))
        for partition in mine
    }
    changed = [partition for partition in mine if bounds[partition.ref][0] != bounds[partition.ref][1]]
    accounts = tuple(_accounts(facts, changed, bounds))
    datasets = sorted({(partition.provider, partition.dataset) for partition in changed})
    before = policy_in_force(facts, policy.domain, at)
    old = read_policy(facts.documents[before.document]) if before else None
    return Impact(
        accounts=accounts,
        at=at,
        caps=tuple(cap for cap in policy_caps(facts, policy, at, declared) if not cap.fits),
        contracts=tuple(_contracts(facts, mine, bounds, at)),
        datasets=tuple(DatasetName(name, provider) for provider, name in datasets),
        fields=tuple(_fields(old, policy)),
        partitions=tuple(Change(new, current, ref) for ref, (current, new) in bounds.items() if current != new),
        pending=tuple(_pending(facts, pending, (old, policy), bounds, accounts)),
        policy=policy.source,
        refused=_failed_checks(facts, data, policy, now),
        undeclared=tuple(_undeclared_members(facts, policy)),
    )


def _failed_checks(facts: Facts, data: bytes, policy: Policy, now: int) -> tuple[Check, ...]:
    body = EnterDocument(c.digest(data), ())
    command = Command("policy", "planned", policy.issuer, "", {})
    request = Request(command, body, now, signers=(policy.issuer,))
    verdict = gate(request, HypotheticalFacts(facts, documents={body.document: data}))
    return tuple(check for check in verdict.checks if not check.passed)


def _fields(old: Policy | None, new: Policy) -> Iterator[Change[Word]]:
    before = _terms(old) if old else {}
    for name, after in _terms(new).items():
        if before.get(name) != after:
            yield Change(_readable(after), _readable(before.get(name)), name)


def _terms(policy: Policy) -> dict[str, object]:
    """All fields of a policy, by the names under which changes are listed; its date as in the document."""
    first = ("id", "version", "issuer", "domain", "level")
    then = ("unit", "relation", "rules", "mechanisms", "records_min", "partition_age_days_max", "attestation")
    last = ("notice_hours", "alerts", "coalitions", "commitments", "pipeline", "shared_accounts")
    return {
        **{name: getattr(policy, name) for name in first},
        "effective": format_time(policy.effective),
        "epsilon_max": policy.budget.epsilon_max,
        "delta_max": policy.budget.delta_max,
        "lineage_epsilon_max": policy.lineage.epsilon_max,
        "run_epsilon_max": policy.run.epsilon_max,
        **{name: getattr(policy, name) for name in then},
        "model_release": policy.model_release,
        "lineage_delta_max": policy.lineage.delta_max,
        "run": strictest((policy.run,)),
        "levels": tuple(f"{level.provider}/{level.dataset}: {level.level}" for level in policy.levels),
        "share_max": policy.share_max,
        "load": policy.load,
        "sealed_everyone": policy.sealed_everyone,
        "watermark": policy.watermark,
        "tuning_public": policy.tuning == "public",
        **{name: getattr(policy, name) for name in (*last, "step_leases", "refund", "register")},
    }


def _readable(value: object) -> Word:
    """A field as text for people; a list if it has several parts."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple):
        return [_text(item) for item in value]
    return _parts(value) if isinstance(value, Record) else _text(value)


def _parts(record: Record) -> list[str]:
    """A record's fields, each as text."""
    return [f"{name} {_text(value)}" for name, value in record.to_json().items() if value is not None]


def _text(value: object) -> str:
    match value:
        case str() | int():
            return str(value)
        case Fraction():
            return format_number(value)
        case Record():
            return ", ".join(_parts(value))
        case _:
            return json.dumps(value, ensure_ascii=False, sort_keys=True)


def _accounts(facts: Facts, changed: list[Partition], bounds: dict[str, BoundsChange]) -> Iterator[AccountChange]:
    """The global accounts, and those of lineages with members, whose cap or quota changes, by partition and holder."""
    refs = {partition.ref for partition in changed}
    for ref, holder in sorted(key for key in facts.accounts if key[0] in refs):
        if holder != GLOBAL and not _has_members(facts, holder):
            continue
        account = facts.accounts[ref, holder]
        before, after = (account_status(facts, account, bound) for bound in bounds[ref])
        if (before.epsilon_max, before.share_max) != (after.epsilon_max, after.share_max):
            yield AccountChange(after, before, after.over and not before.over, before.over and not after.over)


def _has_members(facts: Facts, holder: str) -> bool:
    node = facts.nodes.get(int(holder.partition(":")[2]))
    return node is not None and node.kind in SUCCESSION and bool(node.members)


def _contracts(
    facts: Facts,
    mine: list[Partition],
    bounds: dict[str, BoundsChange],
    at: int,
) -> Iterator[Change[ContractBounds]]:
    for name in sorted(facts.contract_heads):
        contract = facts.contracts[facts.contract_heads[name]]
        document = read_contract(facts.documents[contract.document])
        names = {(dataset.provider, dataset.dataset) for dataset in document.datasets}
        touched = [partition for partition in mine if (partition.provider, partition.dataset) in names]
        if contract.ends <= at or not touched:
            continue
        before, after = (
            _under(document, [(one, bound) for one in touched if (bound := bounds[one.ref][side])]) for side in range(2)
        )
        if before != after:
            yield Change(after, before, name)


def _under(document: ContractDocument, bounded: list[tuple[Partition, PartitionBounds]]) -> ContractBounds:
    """The strictest bounds on the runs of a contract over partitions, each with its part of what is of one person."""
    own, share = document.lineage.epsilon_max if document.lineage else None, document.share_max
    bounds = [bound for _, bound in bounded]
    parts = [CapParts(bound.appearances_max) for bound in bounds]
    lineage = [bound.lineage_epsilon_max for bound in bounds]
    lineage += [part.of(own) for part in parts] if own is not None else ()
    runs = [bound.run_epsilon_max for bound in bounds]
    runs += [part.of(document.run.epsilon_max) for part in parts]
    stated = [part.contract_bounds(document, one.epsilon) for part, (one, _) in zip(parts, bounded, strict=True)]
    shares = [share_max for share_max in (share, *(bound.share_max for bound in bounds)) if share_max is not None]
    return ContractBounds(
        **structs.asdict(strictest((document.run, *stated, *(bound.run for bound in bounds)))),
        lineage_epsilon_max=min(lineage, default=None),
        pipeline=any(bound.pipeline for bound in bounds),
        run_epsilon_max=min(runs, default=None),
        share_max=min(shares, default=None),
    )


def _undeclared_members(facts: Facts, policy: Policy) -> Iterator[str]:
    """The coalitions that a policy names and that are not declared: their members cannot charge."""
    declared = [node for node in facts.nodes.values() if node.kind is NodeKind.COALITION]
    for coalition in policy.coalitions:
        if not any(covers(coalition, name) for name in declared):
            yield f"{coalition.name}: {', '.join(did for did in coalition.members if did in facts.organisations)}"


def _pending(
    facts: Facts,
    names: Iterable[str],
    policies: tuple[Policy | None, Policy],
    bounds: dict[str, BoundsChange],
    accounts: tuple[AccountChange, ...],
) -> Iterator[PendingChange]:
    old, new = policies
    frozen = {(account.after.partition, account.after.holder) for account in accounts if account.freezes}
    for name in names:
        charge = facts.charges.get(name)
        if charge is None or charge.state is not ChargeState.PENDING:
            continue
        refs = [ref for ref in charge.partitions if ref in bounds]
        holders = (GLOBAL, *map(holder_of, knowers(facts.nodes, charge.author, charge.index)))
        change = PendingChange(
            attestation=charge.key_release is None and (old is None or old.attestation != new.attestation),
            charge=name,
            frozen=any((ref, who) in frozen for ref in refs for who in holders),
            sealed=any(_leaves(old, bounds[ref][0]) and not _leaves(new, bounds[ref][1]) for ref in refs),
        )
        if refs and (change.attestation or change.sealed or change.frozen):
            yield change


def _leaves(policy: Policy | None, bounds: PartitionBounds | None) -> bool:
    return policy is not None and bounds is not None and policy.model_release and bounds.level < LEVEL_SEALED
