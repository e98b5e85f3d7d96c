"""The tables of a book. Rows are dumb: values are validated in the core and re-checked when read back.

``entry``, ``tree_node``, ``document``, ``checkpoint``, ``cosignature`` and ``seal`` are append-only, which triggers
enforce; ``epoch`` names the process that writes the file (:mod:`ledger.store.sqlite_file.writer_epoch`); the others are
projections of the entries and are rebuilt from them at will: the record of each declares its columns
(:mod:`ledger.store.row_mapping`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from sqlalchemy import CheckConstraint, Column, Index, LargeBinary, MetaData, Table
from sqlmodel import Field, SQLModel

from ledger.domain.charge_record import Charge
from ledger.domain.facts import (
    Account,
    Audit,
    Contract,
    Dataset,
    Organisation,
    Partition,
    PolicyVersion,
    SigningKey,
    StreamVersion,
)
from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from ledger.domain.key_terms import ExtendedQuorum, KeyTerms, RecoveryQuorum
from ledger.domain.organisation_graph import Node
from ledger.mechanisms.loss import Loss
from ledger.store.row_mapping import RecordMapping, Rows, TableMapping, number, text

V = TypeVar("V")
SCHEMA_REVISION: Final = "0008"
"""The newest migration; a book at another revision is not opened."""
APPEND_ONLY: Final = ("entry", "tree_node", "document", "checkpoint", "cosignature", "seal")

PROJECTED_SINCE: Final = {
    "key_terms": "0004",
    "recovery_quorums": "0004",
    "streams": "0006",
    "extended_quorums": "0007",
    "audits": "0008",
}
"""By part of the state, the revision whose books have its table first; parts not named here always had theirs."""

STRICT: Final = {"sqlite_strict": True}
KEYED: Final = {"sqlite_strict": True, "sqlite_with_rowid": False}
"""For append-only tables whose key is no integer: a hidden rowid would be a second key to replace a row by."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _table(name: str, *parts: Column[Any] | CheckConstraint | Index) -> Table:
    return Table(name, metadata, *parts, sqlite_strict=True)


def _check(condition: str, name: str) -> CheckConstraint:
    return CheckConstraint(condition, name=name)


def _bytes() -> Column[bytes]:
    return Column(LargeBinary, nullable=False)


class Row(SQLModel):
    """A row of an append-only table: its class declares the columns."""

    metadata = metadata


class EntryRow(Row, table=True):
    """One entry: its exact bytes, and what is needed to find it."""

    __tablename__ = "entry"
    __table_args__ = (
        _check("position >= 0", "position"),
        _check("length(data) BETWEEN 2 AND 65535", "size"),
        STRICT,
    )
    position: int = Field(sa_column=number(key=True))
    id: str = Field(sa_column=text(unique=True))
    kind: str = Field(sa_column=text())
    time: int = Field(sa_column=number())
    data: bytes = Field(sa_column=_bytes())


class TreeNodeRow(Row, table=True):
    """The hash of one complete subtree."""

    __tablename__ = "tree_node"
    __table_args__ = (_check("length(hash) = 32", "hash"), KEYED)
    level: int = Field(sa_column=number(key=True))
    position: int = Field(sa_column=number(key=True))
    hash: bytes = Field(sa_column=_bytes())


class DocumentRow(Row, table=True):
    """Bytes beside the log, under their SHA-256."""

    __tablename__ = "document"
    __table_args__ = (_check(f"length(data) <= {POLICY_DOCUMENT_BYTES_MAX}", "size"), KEYED)
    digest: str = Field(sa_column=text(key=True))
    data: bytes = Field(sa_column=_bytes())


class CheckpointRow(Row, table=True):
    """A signed checkpoint, one per commit."""

    __tablename__ = "checkpoint"
    __table_args__ = (_check("tree_size > 0", "tree_size"), STRICT)
    tree_size: int = Field(sa_column=number(key=True))
    note: str = Field(sa_column=text())


class CosignatureRow(Row, table=True):
    """A witness's signature line over the checkpoint of one size; its ``vkey`` says who it is, and checks it."""

    __tablename__ = "cosignature"
    __table_args__ = (_check("tree_size > 0", "tree_size"), KEYED)
    tree_size: int = Field(sa_column=number(key=True))
    vkey: str = Field(sa_column=text(key=True))
    line: str = Field(sa_column=text())


class SealRow(Row, table=True):
    """See :class:`ledger.store.successor_book.Successor`: at most one row, and then the book takes no more entries."""

    __tablename__ = "seal"
    __table_args__ = (_check("position = 0", "position"), _check("tree_size >= 0", "tree_size"), STRICT)
    position: int = Field(sa_column=number(key=True))
    successor: str = Field(sa_column=text())
    tree_size: int = Field(sa_column=number())


class EpochRow(Row, table=True):
    """One row, which each opening of an SQLite book changes: :mod:`ledger.store.sqlite_file.writer_epoch`."""

    __tablename__ = "epoch"
    __table_args__ = (_check("position = 0", "position"), STRICT)
    position: int = Field(sa_column=number(key=True))
    opening: int = Field(sa_column=number())


EPOCH: Final = metadata.tables["epoch"]
ENTRY, TREE_NODE, DOCUMENT, CHECKPOINT, COSIGNATURE, SEAL = (metadata.tables[name] for name in APPEND_ONLY)


def _projection(
    name: str,
    record: Callable[..., V],
    *key: str,
    rules: tuple[CheckConstraint | Index, ...] = (),
    index: str = "entered",
    together: tuple[str, ...] = (),
) -> TableMapping[Any, V]:
    """A table with one row for each value: the columns of its record, of which ``key`` are the primary key."""
    mapping = RecordMapping(record, index, together)
    table = _table(name, *mapping.columns(*key), *rules)
    return TableMapping(table, key, lambda rows: mapping.load(rows[0]), lambda _, value: [mapping.dump(value)])


ORGANISATIONS: Final[TableMapping[str, Organisation]] = _projection("organisation", Organisation, "did")
KEYS: Final[TableMapping[str, SigningKey]] = _projection("signing_key", SigningKey, "key_id")
KEY_TERMS: Final[TableMapping[str, KeyTerms]] = _projection("key_terms", KeyTerms, "key_id")
RECOVERY_QUORUMS: Final[TableMapping[str, RecoveryQuorum]] = _projection(
    "recovery_quorum", RecoveryQuorum, "organisation"
)
EXTENDED_QUORUMS: Final[TableMapping[str, ExtendedQuorum]] = _projection(
    "extended_quorum", ExtendedQuorum, "organisation"
)
DATASETS: Final[TableMapping[tuple[str, str], Dataset]] = _projection("dataset", Dataset, "provider", "dataset")
AUDITS: Final[TableMapping[str, Audit]] = _projection(
    "audit", Audit, "charge", rules=(_check("above IN (0, 1)", "above"),)
)
PARTITIONS: Final[TableMapping[str, Partition]] = _projection(
    "partition",
    Partition,
    "ref",
    rules=(
        _check("records > 0", "records"),
        _check("unit_records_max > 0", "unit_records_max"),
        _check("retired IN (0, 1)", "retired"),
    ),
)
CONTRACTS: Final[TableMapping[str, Contract]] = _projection(
    "contract", Contract, "document", rules=(_check("runs >= 0 AND revoked IN (0, 1)", "runs"),)
)
CHARGES: Final[TableMapping[str, Charge]] = _projection(
    "charge",
    Charge,
    "id",
    rules=(
        _check("state IN ('pending', 'posted', 'voided')", "state"),
        _check("steps_posted IS NULL OR steps_posted BETWEEN 0 AND steps", "steps_posted"),
        _check("(state = 'posted') = (steps_posted IS NOT NULL)", "settled"),
        Index("ix_charge_due", "state", "deadline"),
        Index("ix_charge_authored", "author", "entered"),
    ),
    together=("notices", "leases", "post", "model", "groups"),
)
NODES: Final[TableMapping[int, Node]] = _projection(
    "node",
    Node,
    "position",
    rules=(
        _check("(kind = 'coalition') = (epsilon IS NOT NULL)", "epsilon"),
        Index("ix_node_kind", "kind", "position"),
    ),
    index="position",
)

_POLICY: Final = RecordMapping(PolicyVersion)
POLICIES: Final[TableMapping[str, tuple[PolicyVersion, ...]]] = TableMapping(
    _table("policy_version", *_POLICY.columns("domain", "version"), _check("version > 0", "version")),
    ("domain",),
    lambda rows: tuple(map(_POLICY.load, rows)),
    lambda _, versions: list(map(_POLICY.dump, versions)),
)
_STREAM: Final = RecordMapping(StreamVersion)
STREAMS: Final[TableMapping[tuple[str, str], tuple[StreamVersion, ...]]] = TableMapping(
    _table("stream_version", *_STREAM.columns("provider", "dataset", "version"), _check("version > 0", "version")),
    ("provider", "dataset"),
    lambda rows: tuple(map(_STREAM.load, rows)),
    lambda _, versions: list(map(_STREAM.dump, versions)),
)
CONTRACT_HEADS: Final[TableMapping[str, str]] = TableMapping(
    _table("contract_head", text("id", key=True), text("document")),
    ("id",),
    lambda rows: str(rows[0].document),
    lambda key, document: [(key, document)],
)
"""The newest version of each contract id."""


SUM_BITS: Final = 63
"""Bits of a finite sum that its column holds; those above stand above the count of infinite charges."""
_COUNT_BITS: Final = 32
"""Bits of a count of infinite charges, of which there are fewer than entries."""


def _load_account(rows: Rows) -> Account:
    """An account, a row for each coordinate. Raises: ValueError, if a coordinate has no row, or two."""
    coordinates = [row.coordinate for row in rows]
    if coordinates != [*range(len(rows))]:
        raise ValueError(f"coordinates {coordinates} are not 0 to {len(rows) - 1}")
    posted = _load_sums((row.posted, row.posted_infinite) for row in rows)
    pending = _load_sums((row.pending, row.pending_infinite) for row in rows)
    return Account(rows[0].partition, rows[0].holder, posted, pending)


def _load_sums(columns: Iterable[tuple[int, int]]) -> Loss:
    sums = [(low | high >> _COUNT_BITS << SUM_BITS, high & (1 << _COUNT_BITS) - 1) for low, high in columns]
    return Loss(tuple(finite for finite, _ in sums), tuple(infinite for _, infinite in sums))


def _dump_account(key: tuple[str, str], value: Account) -> list[tuple[Any, ...]]:
    sums = zip(_dump_sums(value.posted), _dump_sums(value.pending), strict=True)
    return [(*key, place, *posted, *pending) for place, (posted, pending) in enumerate(sums)]


def _dump_sums(loss: Loss) -> Iterable[tuple[int, int]]:
    if max(loss.finite, default=0) >> SUM_BITS == 0:
        return zip(loss.finite, loss.infinite, strict=True)
    # A coordinate that decides nothing may have any sum: a database's integer has 63 bits.
    return [
        (finite & (1 << SUM_BITS) - 1, infinite | finite >> SUM_BITS << _COUNT_BITS)
        for finite, infinite in zip(loss.finite, loss.infinite, strict=True)
    ]


ACCOUNTS: Final[TableMapping[tuple[str, str], Account]] = TableMapping(
    _table(
        "account",
        text("partition", key=True),
        text("holder", key=True),
        number("coordinate", key=True),
        *map(number, ("posted", "posted_infinite", "pending", "pending_infinite")),
        _check("posted >= 0 AND pending >= 0 AND posted_infinite >= 0 AND pending_infinite >= 0", "sign"),
        Index("ix_account_holder", "holder"),
    ),
    ("partition", "holder"),
    _load_account,
    _dump_account,
)
"""One coordinate of one account: what is posted and pending, finite sums and infinite charges apart."""
FORGIVEN: Final[TableMapping[tuple[str, str], Loss]] = TableMapping(
    _table("forgiven", text("partition", key=True), text("holder", key=True), text("loss")),
    ("partition", "holder"),
    lambda rows: Loss.parse(json.loads(rows[0].loss)),
    lambda key, loss: [(*key, json.dumps(loss.to_json()))],
)
"""What was settled on an account when the last decree on it was entered."""


def _read_only(key: object, value: object) -> list[tuple[Any, ...]]:
    raise TypeError(f"{key} of {type(value).__name__} is append-only")


DOCUMENTS: Final[TableMapping[str, bytes]] = TableMapping(
    DOCUMENT, ("digest",), lambda rows: bytes(rows[0].data), _read_only
)
