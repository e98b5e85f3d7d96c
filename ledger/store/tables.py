"""The tables of a book. Rows are dumb: values are validated in the core and re-checked when read back.

``entry``, ``tree_node``, ``document``, ``checkpoint``, ``cosignature`` and ``seal`` are append-only, which triggers
enforce; the others are projections of the entries and are rebuilt from them at will.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import BigInteger, CheckConstraint, Column, Index, Integer, LargeBinary, MetaData, Table, Text
from sqlmodel import Field, SQLModel

from ledger.domain.gate import DOCUMENT_BYTES_MAX

SCHEMA_REVISION: Final = "0002"
"""The newest migration; a book at another revision is not opened."""
APPEND_ONLY: Final = ("entry", "tree_node", "document", "checkpoint", "cosignature", "seal")
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


_INTEGER: Final = BigInteger().with_variant(Integer, "sqlite")
"""64 bits on both engines; a strict table of SQLite knows INTEGER alone."""


_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
"""Ordered by code points on both engines, as Python orders."""


def _number(*, key: bool = False, null: bool = False, index: bool = False) -> Any:  # noqa: ANN401 - SQLModel's type
    return Field(sa_column=Column(_INTEGER, primary_key=key, autoincrement=False, nullable=null, index=index))


def _text(*, key: bool = False, null: bool = False, unique: bool = False) -> Any:  # noqa: ANN401 - SQLModel's type
    return Field(sa_column=Column(_TEXT, primary_key=key, nullable=null, unique=unique))


def _bytes() -> Any:  # noqa: ANN401 - SQLModel's type
    return Field(sa_column=Column(LargeBinary, nullable=False))


class Row(SQLModel):
    """What every table shares: the metadata with its names of constraints."""

    metadata = metadata


def table_of(row: type[SQLModel]) -> Table:
    """The table behind a class of rows. Raises: KeyError."""
    return metadata.tables[str(row.__tablename__)]


class EntryRow(Row, table=True):
    """One entry: its exact bytes, and what is needed to find it."""

    __tablename__ = "entry"
    __table_args__ = (
        CheckConstraint("position >= 0", name="position"),
        CheckConstraint("length(data) BETWEEN 2 AND 65535", name="size"),
        STRICT,
    )
    position: int = _number(key=True)
    id: str = _text(unique=True)
    kind: str = _text()
    time: int = _number()
    data: bytes = _bytes()


class TreeNodeRow(Row, table=True):
    """The hash of one complete subtree."""

    __tablename__ = "tree_node"
    __table_args__ = (CheckConstraint("length(hash) = 32", name="hash"), KEYED)
    level: int = _number(key=True)
    position: int = _number(key=True)
    hash: bytes = _bytes()


class DocumentRow(Row, table=True):
    """Bytes beside the log, under their SHA-256."""

    __tablename__ = "document"
    __table_args__ = (CheckConstraint(f"length(data) <= {DOCUMENT_BYTES_MAX}", name="size"), KEYED)
    digest: str = _text(key=True)
    data: bytes = _bytes()


class CheckpointRow(Row, table=True):
    """A signed checkpoint, one per commit."""

    __tablename__ = "checkpoint"
    __table_args__ = (CheckConstraint("tree_size > 0", name="tree_size"), STRICT)
    tree_size: int = _number(key=True)
    note: str = _text()


class CosignatureRow(Row, table=True):
    """A witness's signature line over the checkpoint of one size; its ``vkey`` says who it is, and checks it."""

    __tablename__ = "cosignature"
    __table_args__ = (CheckConstraint("tree_size > 0", name="tree_size"), KEYED)
    tree_size: int = _number(key=True)
    vkey: str = _text(key=True)
    line: str = _text()


class SealRow(Row, table=True):
    """See :class:`ledger.store.seal.Seal`: at most one row, and from then on the book takes no entry."""

    __tablename__ = "seal"
    __table_args__ = (
        CheckConstraint("position = 0", name="position"),
        CheckConstraint("tree_size >= 0", name="tree_size"),
        STRICT,
    )
    position: int = _number(key=True)
    successor: str = _text()
    tree_size: int = _number()


class OrganisationRow(Row, table=True):
    """See :class:`ledger.domain.facts.Organisation`."""

    __tablename__ = "organisation"
    __table_args__ = (STRICT,)
    did: str = _text(key=True)
    name: str = _text()
    roles: str = _text()
    node: int = _number()
    moves: str = _text()
    entered: int = _number()


class SigningKeyRow(Row, table=True):
    """See :class:`ledger.domain.facts.SigningKey`."""

    __tablename__ = "signing_key"
    __table_args__ = (STRICT,)
    key_id: str = _text(key=True)
    owner: str = _text()
    x: str = _text()
    charge: str | None = _text(null=True)
    entered: int = _number()


class PolicyVersionRow(Row, table=True):
    """See :class:`ledger.domain.facts.PolicyVersion`."""

    __tablename__ = "policy_version"
    __table_args__ = (CheckConstraint("version > 0", name="version"), STRICT)
    domain: str = _text(key=True)
    version: int = _number(key=True)
    document: str = _text()
    issuer: str = _text()
    effective: int = _number()
    entered: int = _number()


class DatasetRow(Row, table=True):
    """See :class:`ledger.domain.facts.Dataset`."""

    __tablename__ = "dataset"
    __table_args__ = (STRICT,)
    provider: str = _text(key=True)
    dataset: str = _text(key=True)
    domain: str = _text()
    document: str = _text()
    entered: int = _number()
    recommendation: str | None = _text(null=True)


class PartitionRow(Row, table=True):
    """See :class:`ledger.domain.facts.Partition`."""

    __tablename__ = "partition"
    __table_args__ = (
        CheckConstraint("records > 0", name="records"),
        CheckConstraint("unit_records_max > 0", name="unit_records_max"),
        CheckConstraint("retired IN (0, 1)", name="retired"),
        STRICT,
    )
    ref: str = _text(key=True)
    provider: str = _text()
    dataset: str = _text()
    epsilon: str = _text()
    delta: str = _text()
    relation: str = _text()
    unit: str = _text()
    unit_records_max: int = _number()
    records: int = _number()
    data_key: str = _text()
    terms: str = _text()
    opened: int = _number()
    retired: int = _number()
    entered: int = _number()
    commitments: str = _text()


class ContractRow(Row, table=True):
    """See :class:`ledger.domain.facts.Contract`."""

    __tablename__ = "contract"
    __table_args__ = (CheckConstraint("runs >= 0 AND revoked IN (0, 1)", name="runs"), STRICT)
    document: str = _text(key=True)
    id: str = _text()
    version: int = _number()
    consumer: str = _text()
    consumer_node: int = _number()
    providers: str = _text()
    starts: int = _number()
    ends: int = _number()
    runs: int = _number()
    entered: int = _number()
    revoked: int = _number()


class ContractHeadRow(Row, table=True):
    """The newest version of each contract id."""

    __tablename__ = "contract_head"
    __table_args__ = (STRICT,)
    id: str = _text(key=True)
    document: str = _text()


class ChargeRow(Row, table=True):
    """See :class:`ledger.domain.facts.Charge`."""

    __tablename__ = "charge"
    __table_args__ = (
        CheckConstraint("state IN ('pending', 'posted', 'voided')", name="state"),
        CheckConstraint("steps_posted IS NULL OR steps_posted BETWEEN 0 AND steps", name="steps_posted"),
        CheckConstraint("(state = 'posted') = (steps_posted IS NOT NULL)", name="settled"),
        Index("ix_charge_due", "state", "deadline"),
        Index("ix_charge_authored", "author", "entered"),
        STRICT,
    )
    id: str = _text(key=True)
    contract: str = _text()
    actor: str = _text()
    author: int = _number()
    partitions: str = _text()
    plan: str = _text()
    steps: int = _number()
    steps_posted: int | None = _number(null=True)
    state: str = _text()
    key_id: str = _text()
    sealing: str = _text()
    key_release: str | None = _text(null=True)
    deadline: int = _number()
    prices: str = _text()
    recipients: str = _text()
    base: str = _text()
    entered: int = _number()
    notices: str = _text()
    pipeline: str | None = _text(null=True)


class AccountRow(Row, table=True):
    """One coordinate of one account: what is posted and pending, finite sums and infinite charges apart."""

    __tablename__ = "account"
    __table_args__ = (
        CheckConstraint("posted >= 0 AND pending >= 0 AND posted_infinite >= 0 AND pending_infinite >= 0", name="sign"),
        Index("ix_account_holder", "holder"),
        STRICT,
    )
    partition: str = _text(key=True)
    holder: str = _text(key=True)
    coordinate: int = _number(key=True)
    posted: int = _number()
    posted_infinite: int = _number()
    pending: int = _number()
    pending_infinite: int = _number()


class ForgivenRow(Row, table=True):
    """What was settled on an account when the last decree on it was entered."""

    __tablename__ = "forgiven"
    __table_args__ = (STRICT,)
    partition: str = _text(key=True)
    holder: str = _text(key=True)
    loss: str = _text()


class NodeRow(Row, table=True):
    """See :class:`ledger.domain.lineage_graph.Node`."""

    __tablename__ = "node"
    __table_args__ = (
        CheckConstraint("(kind = 'coalition') = (epsilon IS NOT NULL)", name="epsilon"),
        Index("ix_node_kind", "kind", "position"),
        STRICT,
    )
    position: int = _number(key=True)
    time: int = _number()
    kind: str = _text()
    organisation: str = _text()
    parents: str = _text()
    children: str = _text()
    members: str = _text()
    epsilon: str | None = _text(null=True)
