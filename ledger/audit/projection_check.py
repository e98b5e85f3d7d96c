"""The stored projections, row by row, against the state that replay makes; and every account as a sum of runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sqlalchemy import LargeBinary, String, Table, cast, select, text

from ledger.domain.facts import GLOBAL, Span, holder_of
from ledger.domain.memory_state import MemoryState
from ledger.log.verification_findings import VerificationFailed
from ledger.mechanisms.loss import Loss
from ledger.organisation_lineage.exposure import known_spans
from ledger.store.engine import Executor, is_postgres
from ledger.store.tables import ENTRY, metadata


def check_sums(state: MemoryState, size: int) -> None:
    """Every account is the sum over the distinct runs its holder can know, from the charges alone.

    Raises:
        VerificationFailed: naming the first that is not.
    """
    for holder, spans in _holders(state, size):
        sums = {ref: (posted, pending) for ref, posted, pending in state.exposures(spans)}
        accounts = {account.partition: (account.posted, account.pending) for account in state.accounts_of(holder)}
        for ref in sorted(sums.keys() | accounts.keys()):
            if sums.get(ref) != accounts.get(ref) and not _both_empty(sums.get(ref), accounts.get(ref)):
                raise VerificationFailed(None, f"accounts: {holder} of {ref} is not the sum over its runs")


def _holders(state: MemoryState, size: int) -> Iterator[tuple[str, list[Span]]]:
    yield GLOBAL, [Span(node, 0, size) for node in state.nodes]
    for node in state.nodes:
        yield holder_of(node), known_spans(state.nodes, node, size)


_TABLES: Final = text("SELECT name FROM sqlite_master WHERE type = 'table'")
"""A book of an earlier schema lacks some."""


def _both_empty(*sums: tuple[Loss, Loss] | None) -> bool:
    return all(pair is None or (pair[0].empty and pair[1].empty) for pair in sums)


def find_invalid_text(connection: Executor) -> None:
    """Read every text of every table as bytes. Raises: VerificationFailed, naming the first that is not UTF-8.

    SQLite stores any bytes as text, and its driver can neither read nor locate a row that is not UTF-8.
    PostgreSQL rejects such bytes.
    """
    if not is_postgres(connection):
        there = set(connection.execute(_TABLES).scalars())
        for table in metadata.sorted_tables:
            if table.name in there:
                _search(connection, table)


def _search(connection: Executor, table: Table) -> None:
    texts = [column for column in table.columns if isinstance(column.type, String)]
    if not texts:
        return
    keys = list(table.primary_key.columns)
    chosen = select(*(cast(column, LargeBinary) for column in (*texts, *keys))).order_by(*keys)
    with connection.execute(chosen, execution_options={"yield_per": 1_000}) as rows:
        for row in rows:
            for column, value in zip(texts, row, strict=False):
                if value is not None and not _decodes(bytes(value)):
                    key = ", ".join(bytes(value).decode(errors="backslashreplace") for value in row[len(texts) :])
                    index = int(key) if table is ENTRY else None
                    raise VerificationFailed(
                        index, f"{table.name}: the row of {key} cannot be read: {column.name} is not UTF-8"
                    )


def _decodes(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
