"""Preview of a merger: every account of the merged lineage, before and after, under its cap. Nothing is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from ledger.domain.facts import Facts, holder_of
from ledger.domain.lineage_graph import NodeKind
from ledger.lineage.graph_edits import preview_merge
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal
from policy.planning.account_caps import AccountStatus, account_status, empty_account, partition_bounds


@dataclass(frozen=True, slots=True)
class MergedAccount:
    """One account that a merger changes.

    Attributes:
        before: of each organisation that merges, in the order given; of a coalition its own account alone.
        after: of the union, or of the coalition that follows it.
        coalition: the node of a declared coalition, None for the union.
    """

    partition: str
    before: tuple[AccountStatus, ...]
    after: AccountStatus
    coalition: int | None

    @property
    def excess(self) -> Fraction | None:
        """The share of capacity beyond 1 where it would be frozen; None if not, or if the share is infinite."""
        share = self.after.share
        return share - 1 if self.after.over and share is not None and share > 1 else None

    def to_json(self) -> c.Object:
        """As JSON."""
        return {
            "after": self.after.to_json(),
            "before": [one.to_json() for one in self.before],
            "coalition": self.coalition,
            "excess": None if self.excess is None else f"{ceil_decimal(100 * self.excess, 1)} %",
            "partition": self.partition,
        }


def merged_accounts(facts: Facts, organisations: Sequence[str], now: int) -> tuple[MergedAccount, ...]:
    """The accounts after a merger of these organisations and of all that share their lineages.

    Partitions in order; of each the union's account, then those of coalitions. A partition without a policy in force
    has no cap, and its account is only watched.

    Raises:
        KeyError: if an organisation is not registered.
    """
    nodes = tuple(dict.fromkeys(facts.organisations[did].node for did in organisations))
    found = []
    for account in preview_merge(facts, nodes):
        index = int(account.holder.partition(":")[2])
        known = facts.nodes.get(index)
        coalition = index if known is not None and known.kind is NodeKind.COALITION else None
        partition = facts.partitions[account.partition]
        bounds = partition_bounds(facts, partition, now)
        holders = [account.holder] if coalition is not None else [holder_of(node) for node in nodes]
        before = (facts.accounts.get((partition.ref, one)) or empty_account(partition, one) for one in holders)
        after = account_status(facts, account, bounds)
        found.append(
            MergedAccount(partition.ref, tuple(account_status(facts, one, bounds) for one in before), after, coalition)
        )
    return tuple(sorted(found, key=lambda one: (one.partition, one.coalition or -1)))
