"""What stands, in a database: read through when asked for, written back when flushed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from sqlalchemy import func, select

from ledger.domain.facts import (
    Account,
    Charge,
    Contract,
    Dataset,
    Organisation,
    Partition,
    PolicyVersion,
    SigningKey,
    Span,
)
from ledger.domain.lineage_graph import Node, NodeKind
from ledger.domain.memory_state import sum_exposures
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Loss
from ledger.store import row_mapping as p
from ledger.store import tables as t
from ledger.store.engine import Executor
from ledger.store.node_rows import node_of, rows_of
from ledger.store.table_mapping import Rows, read_only


class DatabaseState:
    """What stands, on one connection inside one transaction. See :class:`ledger.domain.facts.State`."""

    def __init__(self, connection: Executor) -> None:
        """Read and write through ``connection``."""
        self.connection = connection
        self.documents: Rows[str, bytes] = Rows(
            connection, t.DocumentRow, ("digest",), lambda rows: bytes(rows[0]["data"]), read_only
        )
        self.organisations: Rows[str, Organisation] = Rows(
            connection, t.OrganisationRow, ("did",), p.organisation_of, p.organisation_rows
        )
        self.keys: Rows[str, SigningKey] = Rows(
            connection, t.SigningKeyRow, ("key_id",), p.key_of, p.key_rows, p.key_at
        )
        self.policies: Rows[str, tuple[PolicyVersion, ...]] = Rows(
            connection, t.PolicyVersionRow, ("domain",), p.policies_of, p.policy_rows
        )
        self.datasets: Rows[tuple[str, str], Dataset] = Rows(
            connection, t.DatasetRow, ("provider", "dataset"), p.dataset_of, p.dataset_rows
        )
        self.partitions: Rows[str, Partition] = Rows(
            connection, t.PartitionRow, ("ref",), p.partition_of, p.partition_rows
        )
        self.contracts: Rows[str, Contract] = Rows(
            connection, t.ContractRow, ("document",), p.contract_of, p.contract_rows
        )
        self.contract_heads: Rows[str, str] = Rows(
            connection,
            t.ContractHeadRow,
            ("id",),
            lambda rows: str(rows[0]["document"]),
            lambda key, value: [{"id": key, "document": value}],
        )
        self.charges: Rows[str, Charge] = Rows(
            connection, t.ChargeRow, ("id",), p.charge_of, p.charge_rows, p.charge_at
        )
        self.accounts: Rows[tuple[str, str], Account] = Rows(
            connection, t.AccountRow, ("partition", "holder"), p.account_of, p.account_rows
        )
        self.forgiven: Rows[tuple[str, str], Loss] = Rows(
            connection,
            t.ForgivenRow,
            ("partition", "holder"),
            p.forgiven_of,
            p.forgiven_rows,
        )
        self.nodes: Rows[int, Node] = Rows(connection, t.NodeRow, ("position",), node_of, rows_of)

    @property
    def publication(self) -> int | None:
        """The newest node of what was made public."""
        self.nodes.flush()
        table = t.table_of(t.NodeRow)
        chosen = select(func.max(table.c.position)).where(table.c.kind == NodeKind.PUBLIC.value)
        return self.connection.execute(chosen).scalar()

    def accounts_of(self, holder: str) -> list[Account]:
        """Every account of one holder, by partition, as this batch has changed them."""
        self.accounts.flush()
        table = t.table_of(t.AccountRow)
        chosen = select(table.c.partition).where(table.c.holder == holder).distinct().order_by(table.c.partition)
        return [self.accounts[str(ref), holder] for (ref,) in self.connection.execute(chosen).all()]

    def runs(self, spans: Iterable[Span]) -> int:
        """How many charges there are in these spans, those of this batch included."""
        self.charges.flush()
        count = select(func.count()).select_from(t.table_of(t.ChargeRow))
        return sum(self.connection.execute(count.where(*_within(one))).scalar_one() for one in spans)

    def exposures(self, spans: Iterable[Span]) -> Iterator[tuple[str, Loss, Loss]]:
        """Per partition: posted and pending loss of the charges in these spans, those of this batch included."""
        self.charges.flush()
        return sum_exposures(charge for one in spans for charge in self.charges.where(*_within(one)))

    def latest(self, author: int, most: int) -> list[Charge]:
        """The newest charges authored at a node, as stored, newest first."""
        table = t.table_of(t.ChargeRow)
        newest = select(table.c.id).where(table.c.author == author).order_by(table.c.entered.desc()).limit(most)
        return sorted(self.charges.where(table.c.id.in_(newest)), key=lambda one: -one.index)

    def due(self, now: int, most: int) -> list[str]:
        """The ids of pending charges whose deadline has passed, oldest first."""
        table = t.table_of(t.ChargeRow)
        chosen = (
            select(table.c.id)
            .where(table.c.state == ChargeState.PENDING.value, table.c.deadline < now)
            .order_by(table.c.deadline, table.c.id)
            .limit(most)
        )
        return [str(one[0]) for one in self.connection.execute(chosen)]

    def next_deadline(self) -> int | None:
        """The earliest deadline (ms) of a pending charge; None if none is pending."""
        table = t.table_of(t.ChargeRow)
        chosen = select(func.min(table.c.deadline)).where(table.c.state == ChargeState.PENDING.value)
        found = self.connection.execute(chosen).scalar()
        return None if found is None else int(found)

    def flush(self) -> None:
        """Write every changed value back."""
        for rows in self.projections():
            rows.flush()

    def projections(self) -> Iterable[Rows[Any, Any]]:
        """Every table that is a projection of the entries."""
        return (
            self.organisations,
            self.keys,
            self.policies,
            self.datasets,
            self.partitions,
            self.contracts,
            self.contract_heads,
            self.charges,
            self.accounts,
            self.forgiven,
            self.nodes,
        )


def _within(span: Span) -> tuple[Any, ...]:
    table = t.table_of(t.ChargeRow)
    return table.c.author == span.author, table.c.entered >= span.first, table.c.entered < span.before
