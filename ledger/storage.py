"""What stands, in a database: read through when asked for, written back when flushed.

SQLite runs in WAL mode with full synchronisation, and every writing transaction begins at once
(``BEGIN IMMEDIATE``): the driver's own deferred transactions let two writers both read the same headroom.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, Generic, TypeVar

from sqlalchemy import Connection, Engine, create_engine, event, func, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import SQLModel

from ledger import tables as t
from ledger.apply import read_prices
from ledger.graph import Node, NodeKind
from ledger.loss import Loss
from ledger.memory import sum_exposures
from ledger.node_rows import node_of, rows_of
from ledger.outcomes import ChargeState
from ledger.registry import (
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
from ledger.units import format_number, parse_number

K = TypeVar("K")
V = TypeVar("V")
Fields = dict[str, Any]


def engine_of(url: str, *, writes: bool) -> Engine:
    """An engine with the settings that durability rests on."""
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        pragmas = ("journal_mode=WAL", "synchronous=FULL", "busy_timeout=5000", "recursive_triggers=ON")
        only = () if writes else ("query_only=ON",)

        @event.listens_for(engine, "connect")
        def _connect(connection: Any, record: object) -> None:  # noqa: ANN401 - the driver's own type
            del record
            connection.isolation_level = None
            for pragma in (*pragmas, *only):
                connection.execute(f"PRAGMA {pragma}")

        @event.listens_for(engine, "begin")
        def _begin(connection: Connection) -> None:
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


class Rows(MutableMapping[K, V], Generic[K, V]):
    """One table seen as a mapping. A value has one row, or several that share the first columns of the key."""

    def __init__(
        self,
        connection: Connection,
        row: type[SQLModel],
        columns: tuple[str, ...],
        read: Callable[[list[Fields]], V],
        write: Callable[[K, V], list[Fields]],
    ) -> None:
        """``columns`` make the key; ``read`` and ``write`` turn rows into a value and back."""
        self._connection = connection
        self._table = t.table_of(row)
        self._columns = [self._table.c[name] for name in columns]
        self._read, self._write = read, write
        self._known: dict[K, V | None] = {}
        self._changed: dict[K, None] = {}

    def __getitem__(self, key: K) -> V:
        if key not in self._known:
            parts = key if isinstance(key, tuple) else (key,)
            found = self._select(*(column == part for column, part in zip(self._columns, parts, strict=True)))
            self._known[key] = self._read(found) if found else None
        value = self._known[key]
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._known[key] = value
        self._changed[key] = None

    def __delitem__(self, key: K) -> None:
        raise TypeError("nothing recorded is ever deleted")

    def __iter__(self) -> Iterator[K]:
        found = self._connection.execute(select(*self._columns).distinct().order_by(*self._columns)).all()
        stored: list[Any] = [tuple(one) if len(self._columns) > 1 else one[0] for one in found]
        yield from stored
        have = set(stored)
        yield from (key for key in self._changed if key not in have)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def where(self, *conditions: Any) -> list[V]:  # noqa: ANN401 - SQLAlchemy's own types
        """The values of one-row tables that meet conditions, as stored and not yet changed."""
        return [self._read([one]) for one in self._select(*conditions)]

    def _select(self, *conditions: Any) -> list[Fields]:  # noqa: ANN401
        order = list(self._table.primary_key.columns)
        chosen = select(self._table).where(*conditions).order_by(*order)
        return [dict(one) for one in self._connection.execute(chosen).mappings()]

    def flush(self) -> None:
        """Write every changed value back."""
        rows = [one for key in self._changed for one in self._write(key, self[key])]
        self._changed.clear()
        if not rows:
            return
        keys = [column.name for column in self._table.primary_key.columns]
        into = (sqlite if self._connection.dialect.name == "sqlite" else postgresql).insert(self._table)
        rest = {name: into.excluded[name] for name in rows[0] if name not in keys}
        self._connection.execute(into.on_conflict_do_update(index_elements=keys, set_=rest), rows)


class DatabaseState:
    """What stands, on one connection inside one transaction. See :class:`ledger.registry.State`."""

    def __init__(self, connection: Connection) -> None:
        """Read and write through ``connection``."""
        self.connection = connection
        self.documents: Rows[str, bytes] = Rows(
            connection, t.DocumentRow, ("digest",), lambda rows: bytes(rows[0]["data"]), _read_only
        )
        self.organisations: Rows[str, Organisation] = Rows(
            connection, t.OrganisationRow, ("did",), _organisation, _organisation_rows
        )
        self.keys: Rows[str, SigningKey] = Rows(connection, t.SigningKeyRow, ("key_id",), _signing_key, _key_rows)
        self.policies: Rows[str, tuple[PolicyVersion, ...]] = Rows(
            connection, t.PolicyVersionRow, ("domain",), _policies, _policy_rows
        )
        self.datasets: Rows[tuple[str, str], Dataset] = Rows(
            connection, t.DatasetRow, ("provider", "dataset"), _dataset, _dataset_rows
        )
        self.partitions: Rows[str, Partition] = Rows(connection, t.PartitionRow, ("ref",), _partition, _partition_rows)
        self.contracts: Rows[str, Contract] = Rows(connection, t.ContractRow, ("document",), _contract, _contract_rows)
        self.contract_heads: Rows[str, str] = Rows(
            connection,
            t.ContractHeadRow,
            ("id",),
            lambda rows: str(rows[0]["document"]),
            lambda key, value: [{"id": key, "document": value}],
        )
        self.charges: Rows[str, Charge] = Rows(connection, t.ChargeRow, ("id",), _charge, _charge_rows)
        self.accounts: Rows[tuple[str, str], Account] = Rows(
            connection, t.AccountRow, ("partition", "holder"), _account, _account_rows
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
            self.nodes,
        )


def _within(span: Span) -> tuple[Any, ...]:
    table = t.table_of(t.ChargeRow)
    return table.c.author == span.author, table.c.entered >= span.first, table.c.entered < span.before


def append_rows(connection: Connection, row: type[SQLModel], rows: list[Fields]) -> None:
    """Append to a table; nothing there is ever replaced."""
    if rows:
        table = t.table_of(row)
        connection.execute(insert(table), rows)


def _read_only(key: object, value: object) -> list[Fields]:
    raise TypeError(f"{key} of {type(value).__name__} is append-only")


def _organisation(rows: list[Fields]) -> Organisation:
    (row,) = rows
    moves = tuple((time, node) for time, node in json.loads(row["moves"]))
    return Organisation(row["did"], row["name"], tuple(json.loads(row["roles"])), row["node"], row["entered"], moves)


def _organisation_rows(key: str, value: Organisation) -> list[Fields]:
    row = {"did": key, "name": value.name, "node": value.node, "entered": value.index}
    return [{**row, "roles": json.dumps(value.roles), "moves": json.dumps(value.moves)}]


def _signing_key(rows: list[Fields]) -> SigningKey:
    (row,) = rows
    return SigningKey(row["key_id"], row["owner"], row["x"], row["charge"], row["entered"])


def _key_rows(key: str, value: SigningKey) -> list[Fields]:
    return [{"key_id": key, "owner": value.owner, "x": value.x, "charge": value.charge, "entered": value.index}]


def _policies(rows: list[Fields]) -> tuple[PolicyVersion, ...]:
    return tuple(PolicyVersion(**{("index" if k == "entered" else k): v for k, v in row.items()}) for row in rows)


def _policy_rows(key: str, value: tuple[PolicyVersion, ...]) -> list[Fields]:
    return [
        {
            "domain": key,
            "version": one.version,
            "document": one.document,
            "issuer": one.issuer,
            "effective": one.effective,
            "entered": one.index,
        }
        for one in value
    ]


def _dataset(rows: list[Fields]) -> Dataset:
    (row,) = rows
    return Dataset(row["provider"], row["dataset"], row["domain"], row["document"], row["entered"])


def _dataset_rows(key: tuple[str, str], value: Dataset) -> list[Fields]:
    return [
        {
            "provider": key[0],
            "dataset": key[1],
            "domain": value.domain,
            "document": value.document,
            "entered": value.index,
        }
    ]


def _partition(rows: list[Fields]) -> Partition:
    (row,) = rows
    kept = (
        "ref",
        "provider",
        "dataset",
        "relation",
        "unit",
        "unit_records_max",
        "records",
        "data_key",
        "terms",
        "opened",
    )
    return Partition(
        **{name: row[name] for name in kept},
        epsilon=parse_number(row["epsilon"], "epsilon"),
        delta=parse_number(row["delta"], "delta"),
        retired=bool(row["retired"]),
        index=row["entered"],
    )


def _partition_rows(key: str, value: Partition) -> list[Fields]:
    kept = ("provider", "dataset", "relation", "unit", "unit_records_max", "records", "data_key", "terms", "opened")
    return [
        {
            "ref": key,
            **{name: getattr(value, name) for name in kept},
            "epsilon": format_number(value.epsilon),
            "delta": format_number(value.delta),
            "retired": int(value.retired),
            "entered": value.index,
        }
    ]


_CONTRACT = ("id", "version", "consumer", "consumer_node", "starts", "ends", "runs")


def _contract(rows: list[Fields]) -> Contract:
    (row,) = rows
    return Contract(
        document=row["document"],
        **{name: row[name] for name in _CONTRACT},
        providers=tuple(json.loads(row["providers"])),
        index=row["entered"],
    )


def _contract_rows(key: str, value: Contract) -> list[Fields]:
    return [
        {
            "document": key,
            **{name: getattr(value, name) for name in _CONTRACT},
            "providers": json.dumps(value.providers),
            "entered": value.index,
        }
    ]


_CHARGE = (
    "contract",
    "actor",
    "author",
    "plan",
    "steps",
    "steps_posted",
    "key_id",
    "sealing",
    "key_release",
    "deadline",
)


def _charge(rows: list[Fields]) -> Charge:
    (row,) = rows
    prices = json.loads(row["prices"])
    partitions = tuple(json.loads(row["partitions"]))
    return Charge(
        id=row["id"],
        **{name: row[name] for name in _CHARGE},
        partitions=partitions,
        state=ChargeState(row["state"]),
        prices=tuple((ref, read_prices(prices[ref])) for ref in partitions),
        recipients=tuple(json.loads(row["recipients"])),
        base=tuple(json.loads(row["base"])),
        index=row["entered"],
    )


def _charge_rows(key: str, value: Charge) -> list[Fields]:
    return [
        {
            "id": key,
            **{name: getattr(value, name) for name in _CHARGE},
            "partitions": json.dumps(value.partitions),
            "state": value.state.value,
            "prices": json.dumps({ref: [one.to_json() for one in segments] for ref, segments in value.prices}),
            "recipients": json.dumps(value.recipients),
            "base": json.dumps(value.base),
            "entered": value.index,
        }
    ]


def _account(rows: list[Fields]) -> Account:
    posted = Loss(tuple(row["posted"] for row in rows), tuple(row["posted_infinite"] for row in rows))
    pending = Loss(tuple(row["pending"] for row in rows), tuple(row["pending_infinite"] for row in rows))
    return Account(rows[0]["partition"], rows[0]["holder"], posted, pending)


def _account_rows(key: tuple[str, str], value: Account) -> list[Fields]:
    return [
        {
            "partition": key[0],
            "holder": key[1],
            "coordinate": place,
            "posted": value.posted.finite[place],
            "posted_infinite": value.posted.infinite[place],
            "pending": value.pending.finite[place],
            "pending_infinite": value.pending.infinite[place],
        }
        for place in range(len(value.posted.finite))
    ]
