"""Preview of a merger: every account of the merged lineage, before and after, under its cap. Nothing is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from ledger.domain.facts import Facts, holder_of
from ledger.domain.organisation_graph import NodeKind
from ledger.organisation_lineage.graph_edits import preview_merge
from ledger.wire.field_types import Ref
from ledger.wire.records import Record
from policy.planning.account_caps import AccountStatus, account_status, empty_account, partition_bounds
from policy.planning.reported_values import Natural, Percent


class MergedAccount(Record, frozen=True):
    """One account that a merger would change.

    Attributes:
        after: of the union, or of the coalition that follows it.
        before: of each organisation that merges, in the order given; of a coalition its own account alone.
        coalition: the node of a declared coalition, None for the union.
        excess: the share of capacity beyond 1 where it would be frozen; None if not, or if the share is infinite.
    """

    after: AccountStatus
    before: tuple[AccountStatus, ...]
    coalition: Annotated[Natural, Meta(description="a node of the lineage, by the index of its entry")] | None
    excess: Percent | None
    partition: Ref


def merged_accounts(facts: Facts, organisations: Sequence[str], now: int) -> tuple[MergedAccount, ...]:
    """The accounts after a merger of these organisations and of all that share their lineages.

    Partitions in order; of each the union's account, then those of coalitions. A partition without a policy in force
    has no cap, and its account is only watched.

    Raises:
        KeyError: if an organisation is not registered.
    """
    nodes = tuple(dict.fromkeys(facts.organisations[did].node for did in organisations))
    merged, changed = [], preview_merge(facts, nodes)
    refs = [*dict.fromkeys(account.partition for account in changed)]
    facts.fetch_partitions(refs)
    holders_of = (*(account.holder for account in changed), *map(holder_of, nodes))
    facts.fetch_accounts(refs, [*dict.fromkeys(holders_of)])
    for account in changed:
        index = int(account.holder.partition(":")[2])
        former = facts.nodes.get(index)
        coalition = index if former is not None and former.kind is NodeKind.COALITION else None
        partition = facts.partitions[account.partition]
        bounds = partition_bounds(facts, partition, now)
        holders = [account.holder] if coalition is not None else [holder_of(node) for node in nodes]
        accounts = (
            facts.accounts.get((partition.ref, holder)) or empty_account(partition, holder) for holder in holders
        )
        before = tuple(account_status(facts, account, bounds) for account in accounts)
        after = account_status(facts, account, bounds)
        share = after.used.share
        excess = Percent.of(share - 1) if after.over and share is not None and share > 1 else None
        merged.append(MergedAccount(after, before, coalition, excess, partition.ref))
    return tuple(sorted(merged, key=lambda change: (change.partition, change.coalition or -1)))
