"""Rows of the projections: a record's declaration gives its columns, and reads and writes its row.

A field is stored in the column of its name, the index of the entry that made a value in ``entered``. A field whose type
no database has (a fraction, an enumeration, a tuple) is stored by the converter of that type. Fields that a record got
after books were made share the column of an older one, so that those books have the same columns, and the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, Final, Generic, TypeVar, get_args, get_type_hints

from sqlalchemy import BigInteger, Column, Integer, Row, Table, Text

from ledger.domain.charge_record import StepLeases
from ledger.domain.organisation_graph import Arrow, NodeKind
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Segment, read_segments
from ledger.wire.exact_numbers import format_number, parse_number

K = TypeVar("K")
V = TypeVar("V")
Rows = Sequence[Row[Any]]
"""Whole rows of one table, in the order of its columns."""
Fields = dict[str, Any]
"""The values of one row by column, to be written."""
_INTEGER: Final = BigInteger().with_variant(Integer, "sqlite")
"""64 bits on both engines; a strict table of SQLite knows INTEGER alone."""
_TEXT: Final = Text().with_variant(Text(collation="C"), "postgresql")
"""Ordered by code points on both engines, as Python orders."""


def number(name: str | None = None, *, key: bool = False, null: bool = False) -> Column[int]:
    """A column of integers. A class of rows (SQLModel) gives it the name of its field."""
    return Column(name, _INTEGER, primary_key=key, autoincrement=False, nullable=null)


def text(name: str | None = None, *, key: bool = False, null: bool = False, unique: bool = False) -> Column[str]:
    """A column of texts, as :func:`number` is one of integers."""
    return Column(name, _TEXT, primary_key=key, nullable=null, unique=unique)


class TableMapping(Generic[K, V]):
    """How one table holds values: the columns of a value's key, and its rows read and written.

    A value has one row, or several that share the key's columns and come in the order of the primary key.
    """

    def __init__(
        self,
        table: Table,
        key: tuple[str, ...],
        load: Callable[[Rows], V],
        dump: Callable[[K, V], list[tuple[Any, ...]]],
    ) -> None:
        """See the class; ``dump`` gives rows in the order of the columns."""
        self.table, self.key, self.load, self.dump = table, key, load, dump
        self.columns = [table.c[name] for name in key]
        self.key_of: Callable[[Row[Any]], Any] = itemgetter(*map(table.c.keys().index, key))


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


@lru_cache(maxsize=4_096)
def _dump_list(value: tuple[Any, ...]) -> str:
    return json.dumps(value)


@lru_cache(maxsize=4_096)
def _dump_prices(prices: tuple[tuple[str, tuple[Segment, ...]], ...]) -> str:
    return json.dumps({ref: [one.to_json() for one in segments] for ref, segments in prices})


def _load_arrows(text: str) -> tuple[Arrow, ...]:
    return tuple(Arrow(node, before) for node, before in json.loads(text))


def _dump_arrows(arrows: tuple[Arrow, ...]) -> str:
    return json.dumps([[one.node, one.before] for one in arrows])


def _load_number(text: str) -> Fraction:
    return parse_number(text, "number")


def _enumerated(kind: type[StrEnum]) -> _Converter:
    # Not ``value``, which is a property: two calls of functions a row.
    return _Converter({one.value: one for one in kind}.__getitem__, attrgetter("_value_"))


_LIST: Final = _Converter(_load_list, _dump_list)
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
_FIRST: Final = "first"
"""Under which the field that had a column first is held in it, beside those that share it."""
_LATE: Final[dict[str, Callable[[Any], Any]]] = {
    "groups": lambda found: None if found is None else tuple(map(tuple, found)),
    "leases": lambda found: None if found is None else StepLeases(*found),
    "model": lambda found: found,
    "post": lambda found: found,
}
"""How such a field is read."""


def _split(text: str, late: Sequence[str]) -> tuple[str, list[Any]]:
    """The text of a shared column as if its first field had it alone, and the other fields."""
    if not text.startswith("{"):
        return text, [None] * len(late)
    found = json.loads(text)
    return json.dumps(found[_FIRST]), [_LATE[name](found.get(name)) for name in late]


_NUMBERS: Final = (bool, int, int | None)
_PLAIN: Final = (int, str, int | None, str | None)
"""Types that a column holds as they are."""


class RecordMapping(Generic[V]):
    """One record type: the columns of its fields, and its row read and written."""

    def __init__(self, record: Callable[..., V], index: str = "entered", together: tuple[str, ...] = ()) -> None:
        """Map ``record``.

        Args:
            index: the column of the field of that name.
            together: a field, and the last of the record, which are None at first: they share that field's column.

        Raises:
            KeyError: for an unknown type.
        """
        self._record = record
        hints = get_type_hints(record)
        self._late = together[1:]
        for name in self._late:
            del hints[name]
        self._shared = [*hints].index(together[0]) if together else -1
        self._types = {index if name == "index" else name: hint for name, hint in hints.items()}
        converters = [None if hint in _PLAIN else _CONVERTERS[hint] for hint in hints.values()]
        self._loads = [(place, one.load) for place, one in enumerate(converters) if one is not None]
        self._dumps = [(place, one.dump) for place, one in enumerate(converters) if one is not None]
        self._width = len(hints)
        self._values: Callable[[V], tuple[Any, ...]] = attrgetter(*hints, *self._late)

    def columns(self, *key: str) -> list[Column[Any]]:
        """The columns, in the order of the fields; ``key`` names those of the primary key."""
        return [
            (number if hint in _NUMBERS else text)(name, key=name in key, null=type(None) in get_args(hint))
            for name, hint in self._types.items()
        ]

    def load(self, row: Row[Any]) -> V:
        """The value of a row. Raises: ValueError, LookupError, TypeError, for a row that holds none."""
        values = [*row]
        late: list[Any] = []
        if self._late:
            values[self._shared], late = _split(values[self._shared], self._late)
        for place, load in self._loads:
            values[place] = load(values[place])
        return self._record(*values, *late)

    def dump(self, value: V) -> tuple[Any, ...]:
        """The row of a value, in the order of the columns."""
        whole = self._values(value)
        values = [*whole[: self._width]]
        for place, dump in self._dumps:
            values[place] = dump(values[place])
        late = {name: found for name, found in zip(self._late, whole[self._width :], strict=True) if found is not None}
        if late:
            values[self._shared] = json.dumps({**late, _FIRST: json.loads(values[self._shared])})
        return tuple(values)
