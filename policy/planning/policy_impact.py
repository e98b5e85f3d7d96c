"""The impact of a policy before it is published: a pure function of facts, the document's bytes and a time.

The current facts are compared with the facts after the version is entered, both at the moment at which it takes
effect, so that changes by other versions until then do not count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from fractions import Fraction

from ledger.domain.commands import Command, EnterDocument
from ledger.domain.facts import GLOBAL, Charge, Facts, Partition, holder_of
from ledger.domain.gate import Check, Request
from ledger.domain.lineage_graph import SUCCESSION, NodeKind, knowers
from ledger.domain.outcomes import ChargeState
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number
from policy.checks.field_readers import format_time
from policy.decisions.charges import covers
from policy.decisions.documents_in_force import dataset_of, policy_in_force, read_contract, read_policy
from policy.decisions.gate import gate
from policy.documents import LEVEL_SEALED, ContractDocument, Policy
from policy.documents.run_bounds import strictest
from policy.planning.account_caps import AccountStatus, PartitionBounds, account_status, partition_bounds
from policy.planning.hypothetical_facts import HypotheticalFacts, with_policy_published

BoundsChange = tuple[PartitionBounds | None, PartitionBounds | None]
"""The bounds of a partition before and after; None without a policy in force."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing before and after, each as JSON shows it; None where there is none."""

    name: str
    before: c.Json
    after: c.Json

    def to_json(self) -> c.Object:
        """As JSON."""
        return {"after": self.after, "before": self.before, "name": self.name}


@dataclass(frozen=True, slots=True)
class AccountChange:
    """An account whose cap changes, under both."""

    before: AccountStatus
    after: AccountStatus

    @property
    def freezes(self) -> bool:
        """Whether the policy would freeze it; ``thaws`` likewise."""
        return self.after.over and not self.before.over

    @property
    def thaws(self) -> bool:
        """Whether it is frozen now and would not be."""
        return self.before.over and not self.after.over


@dataclass(frozen=True, slots=True)
class PendingChange:
    """A pending charge on a partition that changes. It stays pending, and can be posted or voided.

    Attributes:
        attestation: whether the release of its key, still to come, would need other evidence.
        sealed: whether its model, which could be released, no longer can be.
        frozen: whether an account that it counts in would be frozen.
    """

    charge: str
    attestation: bool
    sealed: bool
    frozen: bool


@dataclass(frozen=True, slots=True)
class Impact:
    """The impact of a policy; what stays the same is not listed.

    Attributes:
        at: the moment (ms) both sides are compared at: now, or when it takes effect if that is later.
        refused: the failed checks if its issuer entered it; empty if it would be permitted.
        fields: of the policy in force in its domain.
        datasets: (provider, id) of each in the domain of which an open partition changes.
        partitions: open ones, by reference.
        contracts: newest versions that have not ended, by id: what binds runs under them.
        undeclared: named coalitions whose members cannot charge until an SRO declares them; with those members.
    """

    policy: str
    at: int
    refused: tuple[Check, ...]
    fields: tuple[Change, ...]
    datasets: tuple[tuple[str, str], ...]
    partitions: tuple[Change, ...]
    contracts: tuple[Change, ...]
    accounts: tuple[AccountChange, ...]
    pending: tuple[PendingChange, ...]
    undeclared: tuple[str, ...]

    @property
    def frozen(self) -> tuple[AccountChange, ...]:
        """The accounts it would freeze."""
        return tuple(one for one in self.accounts if one.freezes)

    def to_json(self) -> c.Object:
        """As JSON."""
        accounts: list[c.Json] = [
            {"after": one.after.to_json(), "before": one.before.to_json(), "freezes": one.freezes, "thaws": one.thaws}
            for one in self.accounts
        ]
        pending: list[c.Json] = [
            {"attestation": one.attestation, "charge": one.charge, "frozen": one.frozen, "sealed": one.sealed}
            for one in self.pending
        ]
        return {
            "accounts": accounts,
            "at": format_time(self.at),
            "contracts": [one.to_json() for one in self.contracts],
            "datasets": [{"dataset": dataset, "provider": provider} for provider, dataset in self.datasets],
            "fields": [one.to_json() for one in self.fields],
            "partitions": [one.to_json() for one in self.partitions],
            "pending": pending,
            "policy": self.policy,
            "refused": [check.to_json() for check in self.refused],
            "undeclared": [*self.undeclared],
        }


def impact(facts: Facts, data: bytes, now: int, pending: Iterable[str]) -> Impact:
    """What a policy of these bytes would change.

    Args:
        pending: the ids of the charges to look at; settled ones among them are passed over.

    Raises:
        Malformed: if it is no policy, or contradicts itself.
    """
    policy, after = with_policy_published(facts, data)
    at = max(now, policy.effective)
    mine = [one for one in _open(facts) if dataset_of(facts, one).domain == policy.domain]
    bounds = {one.ref: (partition_bounds(facts, one, at), partition_bounds(after, one, at)) for one in mine}
    changed = [one for one in mine if bounds[one.ref][0] != bounds[one.ref][1]]
    accounts = tuple(change for one in changed for change in _accounts(facts, one, bounds[one.ref]))
    before = policy_in_force(facts, policy.domain, at)
    old = read_policy(facts.documents[before.document]) if before else None
    return Impact(
        policy=policy.source,
        at=at,
        refused=_refused(facts, data, policy, now),
        fields=tuple(_fields(old, policy)),
        datasets=tuple(sorted({(one.provider, one.dataset) for one in changed})),
        partitions=tuple(Change(one.ref, *map(_shown, bounds[one.ref])) for one in changed),
        contracts=tuple(_contracts(facts, mine, bounds, at)),
        accounts=accounts,
        pending=tuple(_pending(facts, pending, (old, policy), bounds, accounts)),
        undeclared=tuple(_undeclared(facts, policy)),
    )


def _open(facts: Facts) -> Iterator[Partition]:
    return (one for ref in sorted(facts.partitions) if not (one := facts.partitions[ref]).retired)


def _shown(bounds: PartitionBounds | None) -> c.Json:
    return bounds.to_json() if bounds else None


def _refused(facts: Facts, data: bytes, policy: Policy, now: int) -> tuple[Check, ...]:
    body = EnterDocument(c.digest(data), ())
    command = Command("policy", "planned", policy.issuer, "", {})
    request = Request(command, body, now, signers=(policy.issuer,))
    verdict = gate(request, HypotheticalFacts(facts, documents={body.document: data}))
    return tuple(check for check in verdict.checks if not check.passed)


def _fields(old: Policy | None, new: Policy) -> Iterator[Change]:
    for one in fields(Policy):
        before, after = getattr(old, one.name, None), getattr(new, one.name)
        if before != after:
            yield Change(one.name, None if old is None else _readable(before), _readable(after))


def _readable(value: object) -> c.Json:
    """A field as text for people."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Fraction):
        return format_number(value)
    if isinstance(value, tuple) and all(isinstance(one, str) for one in value):
        return list(value)
    return str(value)


def _accounts(facts: Facts, partition: Partition, bounds: BoundsChange) -> Iterator[AccountChange]:
    """The global account, and those of lineages with members, where the cap or the quota changes."""
    holders = [
        who for ref, who in facts.accounts if ref == partition.ref and (who == GLOBAL or _has_members(facts, who))
    ]
    for holder in sorted(holders):
        account = facts.accounts[partition.ref, holder]
        before, after = (account_status(facts, account, one) for one in bounds)
        if (before.epsilon, before.quota) != (after.epsilon, after.quota):
            yield AccountChange(before, after)


def _has_members(facts: Facts, holder: str) -> bool:
    node = facts.nodes.get(int(holder.partition(":")[2]))
    return node is not None and node.kind in SUCCESSION and bool(node.members)


def _contracts(
    facts: Facts,
    mine: list[Partition],
    bounds: dict[str, BoundsChange],
    at: int,
) -> Iterator[Change]:
    for name in sorted(facts.contract_heads):
        contract = facts.contracts[facts.contract_heads[name]]
        document = read_contract(facts.documents[contract.document])
        touched = [bounds[one.ref] for one in mine if (one.provider, one.dataset) in document.datasets]
        if contract.ends <= at or not touched:
            continue
        sides: list[c.Json] = []
        for place in (0, 1):
            both = [of_one[place] for of_one in touched]
            sides.append(_under(document, [one for one in both if one]))
        if sides[0] != sides[1]:
            yield Change(name, sides[0], sides[1])


def _under(document: ContractDocument, bounds: list[PartitionBounds]) -> c.Object:
    """The strictest bounds on the runs of a contract."""
    own, share = document.lineage_epsilon_max, document.share_max
    lineage = [*(one.lineage for one in bounds), *([own] if own is not None else ())]
    shares = [one for one in (share, *(one.share for one in bounds)) if one is not None]
    run = min(document.run_epsilon_max, *(one.run for one in bounds)) if bounds else None
    return {
        "lineage_epsilon_max": format_number(min(lineage)) if bounds else None,
        "pipeline": any(one.pipeline for one in bounds),
        "run_epsilon_max": None if run is None else format_number(run),
        "share_max": format_number(min(shares)) if shares else None,
        **strictest((document.run, *(one.runs for one in bounds))).to_json(),
    }


def _undeclared(facts: Facts, policy: Policy) -> Iterator[str]:
    """The coalitions that a policy names and that are not declared: their members cannot charge."""
    declared = [node for node in facts.nodes.values() if node.kind is NodeKind.COALITION]
    for named in policy.coalitions:
        if not any(covers(named, one) for one in declared):
            yield f"{named.name}: {', '.join(did for did in named.members if did in facts.organisations)}"


def _pending(
    facts: Facts,
    names: Iterable[str],
    policies: tuple[Policy | None, Policy],
    bounds: dict[str, BoundsChange],
    accounts: tuple[AccountChange, ...],
) -> Iterator[PendingChange]:
    old, new = policies
    frozen = {(one.after.partition, one.after.holder) for one in accounts if one.freezes}
    for name in names:
        charge = facts.charges.get(name)
        if charge is None or charge.state is not ChargeState.PENDING:
            continue
        refs = [ref for ref in charge.partitions if ref in bounds]
        found = PendingChange(
            charge=name,
            attestation=charge.key_release is None and (old is None or old.attestation != new.attestation),
            sealed=any(_leaves(old, bounds[ref][0]) and not _leaves(new, bounds[ref][1]) for ref in refs),
            frozen=any((ref, who) in frozen for ref in refs for who in _holders(facts, charge)),
        )
        if refs and (found.attestation or found.sealed or found.frozen):
            yield found


def _leaves(policy: Policy | None, bounds: PartitionBounds | None) -> bool:
    return policy is not None and bounds is not None and policy.model_release and bounds.level < LEVEL_SEALED


def _holders(facts: Facts, charge: Charge) -> Iterator[str]:
    yield GLOBAL
    yield from map(holder_of, sorted(knowers(facts.nodes, charge.author, charge.index)))
