"""Facts as they would be: other documents, other accounts, laid over what stands. Nothing that stands is changed.

What would be asked of them is decided by the gate and the rules as ever, so a supposed decision is the real one on
supposed facts.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping
from typing import Any, Final, cast

from ledger.domain.facts import Account, Contract, Facts, PolicyVersion
from ledger.domain.lineage_graph import END
from ledger.wire import canonical_json as c
from policy.decisions.documents_in_force import read_policy
from policy.documents import Policy

ALWAYS: Final = 0
"""The time (ms) since which a policy that is put in the place of all others has been in force."""


class _Supposed:
    def __init__(
        self,
        facts: Facts,
        documents: Mapping[str, bytes],
        policies: Mapping[str, tuple[PolicyVersion, ...]],
        accounts: Mapping[tuple[str, str], Account],
        contracts: Mapping[str, Contract],
    ) -> None:
        self._facts = facts
        self._added = accounts
        self.documents = _over(documents, facts.documents)
        self.policies = _over(policies, facts.policies)
        self.accounts = _over(accounts, facts.accounts)
        self.contracts = _over(contracts, facts.contracts)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever else stands
        return getattr(self._facts, name)

    def accounts_of(self, holder: str) -> list[Account]:
        """Every account of one holder, by partition."""
        found = {one.partition: one for one in self._facts.accounts_of(holder)}
        found.update({ref: one for (ref, whose), one in self._added.items() if whose == holder})
        return [found[ref] for ref in sorted(found)]


def _over(new: Mapping[Any, Any], old: Mapping[Any, Any]) -> Mapping[Any, Any]:
    return ChainMap(cast("dict[Any, Any]", new), cast("dict[Any, Any]", old)) if new else old


def suppose(
    facts: Facts,
    documents: Mapping[str, bytes] | None = None,
    policies: Mapping[str, tuple[PolicyVersion, ...]] | None = None,
    accounts: Mapping[tuple[str, str], Account] | None = None,
    contracts: Mapping[str, Contract] | None = None,
) -> Facts:
    """Facts with these in the place of what stands under the same keys; all else as it stands."""
    return cast("Facts", _Supposed(facts, documents or {}, policies or {}, accounts or {}, contracts or {}))


def published(facts: Facts, data: bytes) -> tuple[Policy, Facts]:
    """A policy, and the facts as they would be were it entered now, after all that was. Raises: Malformed."""
    policy = read_policy(data)
    versions = (*facts.policies.get(policy.domain, ()), _version(policy, data, policy.effective, END))
    return policy, suppose(facts, documents={c.digest(data): data}, policies={policy.domain: versions})


def governed(facts: Facts, data: bytes) -> tuple[Policy, Facts]:
    """A policy, and the facts as they would be had it been its domain's only one all along. Raises: Malformed."""
    policy = read_policy(data)
    versions = (_version(policy, data, ALWAYS, -1),)
    return policy, suppose(facts, documents={c.digest(data): data}, policies={policy.domain: versions})


def _version(policy: Policy, data: bytes, effective: int, index: int) -> PolicyVersion:
    return PolicyVersion(policy.domain, policy.version, c.digest(data), policy.issuer, effective, index)
