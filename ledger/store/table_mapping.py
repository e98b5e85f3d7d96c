"""One table seen as a mapping: read when asked for, written back when flushed; and rows that are only appended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from functools import cache
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Column, Table, bindparam, insert, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import SQLModel

from ledger.store.engine import Executor, is_postgres
from ledger.store.tables import table_of

K = TypeVar("K")
V = TypeVar("V")
Fields = dict[str, Any]
_LOADED_MAX: Final = 1_000
"""Keys named in one statement; databases bound how many a statement may have."""


@cache
def _layout(row: type[SQLModel], columns: tuple[str, ...]) -> tuple[Table, list[Column[Any]], list[str]]:
    """The table, the columns of its key, and the names of all; every snapshot asks for the same few."""
    table = table_of(row)
    return table, [table.c[name] for name in columns], [column.name for column in table.columns]


class Rows(MutableMapping[K, V], Generic[K, V]):
    """One table seen as a mapping. A value has one row, or several that share the first columns of the key."""

    def __init__(  # noqa: PLR0913, PLR0917 - which table, its key, and how its rows are read and written
        self,
        connection: Executor,
        row: type[SQLModel],
        columns: tuple[str, ...],
        read: Callable[[list[Fields]], V],
        write: Callable[[K, V], list[Fields]],
        place: Callable[[Sequence[Any]], V] | None = None,
    ) -> None:
        """``columns`` make the key; ``read`` and ``write`` turn rows, their fields in order, into a value and back.

        ``place`` reads one row's values as they come, for tables that have as many as there are runs.
        """
        self._connection = connection
        self._table, self._columns, self._names = _layout(row, columns)
        self._read, self._write = read, write
        self._place = place or (lambda row: read([dict(zip(self._names, row, strict=True))]))
        self._known: dict[K, V | None] = {}
        self._changed: dict[K, None] = {}

    def __getitem__(self, key: K) -> V:
        if key not in self._known:
            parts = key if isinstance(key, tuple) else (key,)
            names = (column.name for column in self._columns)
            found = self._connection.execute(_of_key(*self._columns), dict(zip(names, parts, strict=True)))
            rows = [dict(zip(self._names, one, strict=True)) for one in found]
            self._known[key] = self._read(rows) if rows else None
        value = self._known[key]
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: K, value: V) -> None:
        self._known[key] = value
        self._changed[key] = None

    def __delitem__(self, key: K) -> None:
        raise TypeError("nothing recorded is ever deleted")

    def load(self, keys: Iterable[K]) -> None:
        """Read what a batch will ask for in one statement a thousand; for tables whose key is one column."""
        (column,) = self._columns
        wanted = [key for key in dict.fromkeys(keys) if key not in self._known]
        for start in range(0, len(wanted), _LOADED_MAX):
            some = wanted[start : start + _LOADED_MAX]
            self._known.update(dict.fromkeys(some))
            found = self._connection.execute(_of_keys(column), {"keys": some})
            for key, rows in groupby(found, itemgetter(self._names.index(column.name))):
                self._known[key] = self._read([dict(zip(self._names, one, strict=True)) for one in rows])

    def __bool__(self) -> bool:
        """Whether there is any, which costs no more with many."""
        if self._changed or any(value is not None for value in self._known.values()):
            return True
        return self._connection.execute(select(self._columns[0]).limit(1)).first() is not None

    def __iter__(self) -> Iterator[K]:
        found = self._connection.execute(select(*self._columns).distinct().order_by(*self._columns)).all()
        stored: list[Any] = [tuple(one) if len(self._columns) > 1 else one[0] for one in found]
        yield from stored
        have = set(stored)
        yield from (key for key in self._changed if key not in have)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def stored(self) -> Iterator[tuple[K, V]]:
        """Every value as it is stored, read in one pass and not held."""
        order = list(dict.fromkeys((*self._columns, *self._table.primary_key.columns)))
        chosen = select(self._table).order_by(*order)
        of_key = itemgetter(*(self._names.index(one.name) for one in self._columns))
        with self._connection.execute(chosen, execution_options={"yield_per": 1_000}) as found:
            if set(self._columns) == set(self._table.primary_key.columns):
                for some in found.partitions():
                    yield from zip(map(of_key, some), map(self._place, some), strict=True)
                return
            every = chain.from_iterable(found.partitions())
            for key, rows in groupby(every, of_key):
                yield key, self._read([dict(zip(self._names, one, strict=True)) for one in rows])

    def row_that_differs(self, key: K, stored: V | None, made: V | None) -> Any:  # noqa: ANN401 - of any table
        """The whole key of the first row that one of two values under a key has and the other has not."""
        names = [column.name for column in self._table.primary_key.columns]
        has, should = ([] if one is None else self._write(key, one) for one in (stored, made))
        apart = [one for one in has if one not in should] + [one for one in should if one not in has]
        if len(names) == 1 or not apart:
            return key
        return tuple(apart[0][name] for name in names)

    def where(self, *conditions: Any) -> list[V]:  # noqa: ANN401 - SQLAlchemy's own types
        """The values of one-row tables that meet conditions, as stored and not yet changed."""
        return [self._read([one]) for one in self._select(*conditions)]

    def page(self, after: K | None, most: int, **same: str) -> list[tuple[K, V]]:
        """The next values in order of their keys, as stored; those with ``same`` values in these columns alone."""
        names = [column.name for column in self._columns]
        keys = select(*self._columns).distinct().where(*(self._table.c[name] == value for name, value in same.items()))
        if after is not None:
            parts = after if isinstance(after, tuple) else (after,)
            keys = keys.where(tuple_(*self._columns) > tuple_(*parts))
        grouped: dict[Any, list[Fields]] = {}
        for one in self._select(tuple_(*self._columns).in_(keys.order_by(*self._columns).limit(most))):
            key = tuple(one[name] for name in names)
            grouped.setdefault(key if len(names) > 1 else key[0], []).append(one)
        return [(key, self._read(rows)) for key, rows in grouped.items()]

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
        self._connection.execute(_replacing(self._table, postgres=is_postgres(self._connection)), rows)


# Statements are made once: making one costs more than SQLite takes to answer it.
@cache
def _of_key(*columns: Any) -> Any:  # noqa: ANN401 - SQLAlchemy's own types
    table = columns[0].table
    return select(table).where(*(one == bindparam(one.name) for one in columns)).order_by(*table.primary_key.columns)


@cache
def _of_keys(column: Any) -> Any:  # noqa: ANN401
    table = column.table
    named = column.in_(bindparam("keys", expanding=True))
    return select(table).where(named).order_by(*dict.fromkeys((column, *table.primary_key.columns)))


@cache
def _replacing(table: Any, *, postgres: bool) -> Any:  # noqa: ANN401
    keys = [column.name for column in table.primary_key.columns]
    into = (postgresql if postgres else sqlite).insert(table)
    rest = {column.name: into.excluded[column.name] for column in table.columns if column.name not in keys}
    return into.on_conflict_do_update(index_elements=keys, set_=rest)


def append_rows(connection: Executor, row: type[SQLModel], rows: list[Fields]) -> None:
    """Append to a table; nothing there is ever replaced."""
    if rows:
        table = table_of(row)
        connection.execute(insert(table), rows)


def append_once(connection: Executor, row: type[SQLModel], fields: Fields) -> None:
    """Append one row that any process may append, to the same effect; on SQLite one process alone does."""
    into = insert(table_of(row))
    if is_postgres(connection):
        into = postgresql.insert(table_of(row)).on_conflict_do_nothing()
    connection.execute(into, fields)


def read_only(key: object, value: object) -> list[Fields]:
    """How a mapping of an append-only table writes: not at all. Raises: TypeError."""
    raise TypeError(f"{key} of {type(value).__name__} is append-only")
