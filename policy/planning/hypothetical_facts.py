"""Hypothetical state for what-if decisions: other documents, accounts or contracts in front of the current state.

The gate and the rules decide on it as they do on the current state, which nothing here changes.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar, cast

from ledger.domain.facts import Account, Contract, Facts, OpeningOrder, Partition, PolicyVersion, Span
from ledger.domain.organisation_graph import END
from ledger.mechanisms.loss import Loss
from ledger.wire import canonical_json as c
from policy.decisions.documents_in_force import read_policy
from policy.documents import Policy

K = TypeVar("K")
V = TypeVar("V")
ALWAYS: Final = 0
"""The time (ms) since which a policy that takes the place of all others has been in force."""


class HypotheticalFacts:
    """The current state with some documents, policies, accounts, contracts and partitions replaced or added, by key."""

    def __init__(  # noqa: PLR0913, PLR0917 - what is replaced
        self,
        facts: Facts,
        documents: Mapping[str, bytes] | None = None,
        policies: Mapping[str, tuple[PolicyVersion, ...]] | None = None,
        accounts: Mapping[tuple[str, str], Account] | None = None,
        contracts: Mapping[str, Contract] | None = None,
        forgiven: Mapping[tuple[str, str], Loss | None] | None = None,
        partitions: Mapping[str, Partition] | None = None,
    ) -> None:
        """Replace these; everything else is read from ``facts``. A None in ``forgiven`` removes what was forgiven."""
        self._facts, self._accounts = facts, accounts or {}
        self.documents = _in_front(documents, facts.documents)
        self.policies = _in_front(policies, facts.policies)
        self.accounts = _in_front(accounts, facts.accounts)
        self.contracts = _in_front(contracts, facts.contracts)
        self.organisations, self.keys, self.datasets = facts.organisations, facts.keys, facts.datasets
        self.partitions = _in_front(partitions, facts.partitions)
        self.contract_heads, self.charges = facts.contract_heads, facts.charges
        # A None in a ChainMap reads like an absent value for ``get``.
        self.forgiven = cast("Mapping[tuple[str, str], Loss]", _in_front(forgiven, facts.forgiven))
        self.nodes, self.streams, self.audits = facts.nodes, facts.streams, facts.audits
        self.key_terms, self.recovery_quorums = facts.key_terms, facts.recovery_quorums
        self.extended_quorums = facts.extended_quorums
        self.keys_of, self.pending_charges = facts.keys_of, facts.pending_charges

    @property
    def publication(self) -> int | None:
        """See :class:`ledger.domain.facts.Facts`."""
        return self._facts.publication

    def opening_order(self, dataset: str) -> OpeningOrder:
        """See :class:`ledger.domain.facts.Facts`."""
        return self._facts.opening_order(dataset)

    def fetch_partitions(self, refs: Sequence[str]) -> None:
        """See :class:`ledger.domain.facts.Facts`."""
        self._facts.fetch_partitions(refs)

    def fetch_accounts(self, partitions: Sequence[str], holders: Sequence[str]) -> None:
        """See :class:`ledger.domain.facts.Facts`."""
        self._facts.fetch_accounts(partitions, holders)

    def accounts_of(self, holder: str) -> list[Account]:
        """Every account of one holder, by partition."""
        accounts = {account.partition: account for account in self._facts.accounts_of(holder)}
        accounts.update({ref: account for (ref, whose), account in self._accounts.items() if whose == holder})
        return [accounts[ref] for ref in sorted(accounts)]

    def runs(self, spans: Iterable[Span]) -> int:
        """See :class:`ledger.domain.facts.Facts`."""
        return self._facts.runs(spans)

    def exposures(self, spans: Iterable[Span]) -> Iterator[tuple[str, Loss, Loss]]:
        """See :class:`ledger.domain.facts.Facts`."""
        return self._facts.exposures(spans)


def _in_front(new: Mapping[K, V] | None, old: Mapping[K, V]) -> Mapping[K, V]:
    # A ChainMap expects mutable mappings; nothing writes to this one.
    return ChainMap(cast("dict[K, V]", new), cast("dict[K, V]", old)) if new else old


def with_policy_published(facts: Facts, data: bytes) -> tuple[Policy, Facts]:
    """A policy, and the state if it were entered now, after everything in the log. Raises: Malformed."""
    policy = read_policy(data)
    versions = (*facts.policies.get(policy.domain, ()), _version(policy, data, policy.effective, END))
    return policy, HypotheticalFacts(facts, {c.digest(data): data}, {policy.domain: versions})


def with_policy_throughout(facts: Facts, data: bytes) -> tuple[Policy, Facts]:
    """A policy, and the state if it had been its domain's only one from the start. Raises: Malformed."""
    policy = read_policy(data)
    versions = (_version(policy, data, ALWAYS, -1),)
    return policy, HypotheticalFacts(facts, {c.digest(data): data}, {policy.domain: versions})


def _version(policy: Policy, data: bytes, effective: int, index: int) -> PolicyVersion:
    return PolicyVersion(policy.domain, policy.version, c.digest(data), policy.issuer, effective, index)
