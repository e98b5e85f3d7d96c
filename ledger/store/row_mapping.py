"""Rows of the projections into values of the domain and back, derived from the declaration of each record.

A field is stored in the column of its name, the index of the entry that made a value in ``entered``. A field whose type
no database has (a fraction, an enumeration, a tuple) is stored by the converter of that type.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Final, Generic, TypeVar, get_type_hints

from sqlalchemy import Row
from sqlmodel import SQLModel

from ledger.domain.facts import Account, Charge, Contract, Dataset, Organisation, Partition, PolicyVersion, SigningKey
from ledger.domain.lineage_graph import Arrow, Node, NodeKind
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Loss, Segment, read_segments
from ledger.store import tables as t
from ledger.wire.exact_numbers import format_number, parse_number

K = TypeVar("K")
V = TypeVar("V")
Rows = Sequence[Row[Any]]
"""Whole rows of one table, in the order of its columns."""
Fields = dict[str, Any]
"""The values of one row by column, to be written."""


@dataclass(frozen=True, slots=True)
class TableMapping(Generic[K, V]):
    """How one table holds values: the columns of a value's key, and its rows read and written.

    A value has one row, or several that share the key's columns and come in the order of the primary key.
    """

    table: type[SQLModel]
    key: tuple[str, ...]
    load: Callable[[Rows], V]
    dump: Callable[[K, V], list[Fields]]


@dataclass(frozen=True, slots=True)
class _Converter:
    """Between a field's value and what its column holds."""

    load: Callable[[Any], Any]
    dump: Callable[[Any], Any]


# Most rows of a book hold the same few lists: the same partitions, at the same prices, with no recipients.
@lru_cache(maxsize=4_096)
def _load_list(text: str) -> tuple[Any, ...]:
    return tuple(tuple(one) if isinstance(one, list) else one for one in json.loads(text))


@lru_cache(maxsize=4_096)
def _load_prices(text: str) -> tuple[tuple[str, tuple[Segment, ...]], ...]:
    return tuple((ref, read_segments(segments)) for ref, segments in json.loads(text).items())


def _dump_prices(prices: tuple[tuple[str, tuple[Segment, ...]], ...]) -> str:
    return json.dumps({ref: [one.to_json() for one in segments] for ref, segments in prices})


def _load_arrows(text: str) -> tuple[Arrow, ...]:
    return tuple(Arrow(node, before) for node, before in json.loads(text))


def _dump_arrows(arrows: tuple[Arrow, ...]) -> str:
    return json.dumps([[one.node, one.before] for one in arrows])


def _load_number(text: str) -> Fraction:
    return parse_number(text, "number")


def _enumerated(kind: type[StrEnum]) -> _Converter:
    return _Converter({one.value: one for one in kind}.__getitem__, attrgetter("value"))


_LIST: Final = _Converter(_load_list, json.dumps)
_NUMBER: Final = _Converter(_load_number, format_number)
_CONVERTERS: Final[dict[object, _Converter]] = {
    bool: _Converter(bool, int),
    Fraction: _NUMBER,
    Fraction | None: _Converter(
        lambda text: None if text is None else _load_number(text),
        lambda number: None if number is None else format_number(number),
    ),
    ChargeState: _enumerated(ChargeState),
    NodeKind: _enumerated(NodeKind),
    tuple[str, ...]: _LIST,
    tuple[tuple[int, int], ...]: _LIST,
    tuple[tuple[str, int], ...]: _LIST,
    tuple[tuple[str, tuple[Segment, ...]], ...]: _Converter(_load_prices, _dump_prices),
    tuple[Arrow, ...]: _Converter(_load_arrows, _dump_arrows),
}
_PLAIN: Final = (int, str, int | None, str | None)
"""Types that a column holds as they are."""


class _RecordMapping(Generic[V]):
    """One record type and the columns of its fields."""

    def __init__(self, table: type[SQLModel], record: Callable[..., V], index: str = "entered") -> None:
        """Map ``record``'s fields to the columns of ``table``; ``index`` is the column of the field of that name."""
        hints = get_type_hints(record)
        names = _field_names(record)
        self._record = record
        self._columns = [(name, index if name == "index" else name, _converter(hints[name])) for name in names]
        order = [column.name for column in t.table_of(table).columns]
        self._values = itemgetter(*(order.index(column) for _, column, _ in self._columns))
        self._loads = [(place, one.load) for place, (_, _, one) in enumerate(self._columns) if one is not None]

    def load(self, row: Row[Any]) -> V:
        """The value of a row. Raises: ValueError, LookupError, TypeError, for a row that holds none."""
        values = [*self._values(row)]
        for place, load in self._loads:
            values[place] = load(values[place])
        return self._record(*values)

    def dump(self, value: V) -> Fields:
        """The row of a value."""
        stored = ((column, getattr(value, name), one) for name, column, one in self._columns)
        return {column: field if one is None else one.dump(field) for column, field, one in stored}


def _field_names(record: Any) -> Sequence[str]:  # noqa: ANN401 - a type of any kind of record
    if is_dataclass(record):
        return [one.name for one in fields(record)]
    names: Sequence[str] = record._fields if hasattr(record, "_fields") else record.__struct_fields__
    return names


def _converter(hint: object) -> _Converter | None:
    """The converter of a field's type; None if a column holds it as it is. Raises: KeyError, for a type without one."""
    return None if hint in _PLAIN else _CONVERTERS[hint]


def _one(table: type[SQLModel], record: Callable[..., V], *key: str, index: str = "entered") -> TableMapping[Any, V]:
    """A table with one row for each value."""
    mapping = _RecordMapping(table, record, index)
    return TableMapping(table, key, lambda rows: mapping.load(rows[0]), lambda _, value: [mapping.dump(value)])


def _load_policies(rows: Rows) -> tuple[PolicyVersion, ...]:
    return tuple(map(_POLICY.load, rows))


_POLICY: Final = _RecordMapping(t.PolicyVersionRow, PolicyVersion)


def _load_account(rows: Rows) -> Account:
    """An account, a row for each coordinate. Raises: ValueError, if a coordinate has no row, or two."""
    coordinates = [row.coordinate for row in rows]
    if coordinates != [*range(len(rows))]:
        raise ValueError(f"coordinates {coordinates} are not 0 to {len(rows) - 1}")
    posted = Loss(tuple(row.posted for row in rows), tuple(row.posted_infinite for row in rows))
    pending = Loss(tuple(row.pending for row in rows), tuple(row.pending_infinite for row in rows))
    return Account(rows[0].partition, rows[0].holder, posted, pending)


def _dump_account(key: tuple[str, str], value: Account) -> list[Fields]:
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


def _read_only(key: object, value: object) -> list[Fields]:
    raise TypeError(f"{key} of {type(value).__name__} is append-only")


ORGANISATIONS: Final[TableMapping[str, Organisation]] = _one(t.OrganisationRow, Organisation, "did")
KEYS: Final[TableMapping[str, SigningKey]] = _one(t.SigningKeyRow, SigningKey, "key_id")
POLICIES: Final[TableMapping[str, tuple[PolicyVersion, ...]]] = TableMapping(
    t.PolicyVersionRow, ("domain",), _load_policies, lambda _, versions: list(map(_POLICY.dump, versions))
)
DATASETS: Final[TableMapping[tuple[str, str], Dataset]] = _one(t.DatasetRow, Dataset, "provider", "dataset")
PARTITIONS: Final[TableMapping[str, Partition]] = _one(t.PartitionRow, Partition, "ref")
CONTRACTS: Final[TableMapping[str, Contract]] = _one(t.ContractRow, Contract, "document")
CONTRACT_HEADS: Final[TableMapping[str, str]] = TableMapping(
    t.ContractHeadRow,
    ("id",),
    lambda rows: str(rows[0].document),
    lambda key, document: [{"id": key, "document": document}],
)
CHARGES: Final[TableMapping[str, Charge]] = _one(t.ChargeRow, Charge, "id")
ACCOUNTS: Final[TableMapping[tuple[str, str], Account]] = TableMapping(
    t.AccountRow, ("partition", "holder"), _load_account, _dump_account
)
RESETS: Final[TableMapping[tuple[str, str], Loss]] = TableMapping(
    t.ForgivenRow,
    ("partition", "holder"),
    lambda rows: Loss.parse(json.loads(rows[0].loss)),
    lambda key, loss: [{"partition": key[0], "holder": key[1], "loss": json.dumps(loss.to_json())}],
)
NODES: Final[TableMapping[int, Node]] = _one(t.NodeRow, Node, "position", index="position")
DOCUMENTS: Final[TableMapping[str, bytes]] = TableMapping(
    t.DocumentRow,
    ("digest",),
    lambda rows: bytes(rows[0].data),
    _read_only,
)
