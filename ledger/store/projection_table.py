"""A table of the projections as a mapping that reads through; rows that replace others, or are only appended."""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from functools import cache
from itertools import chain, groupby
from typing import Any, Final, Generic, TypeVar

from sqlalchemy import Connection, Row, Table, bindparam, func, insert, or_, select, tuple_
from sqlalchemy.dialects import postgresql

from ledger.store.engine import Executor, is_postgres, run_plainly
from ledger.store.row_mapping import Fields, TableMapping

K = TypeVar("K")
V = TypeVar("V")


_KEYS_MAX: Final = 256
"""Keys of one query."""
_BETWEEN_FROM: Final = 4_096
"""So many keys are read by what lies between them: more than one charge on all its partitions has."""
_CONDITIONS_MAX: Final = 200
"""Conditions of one query; SQLite takes no expression deeper than 1,000."""


class ProjectionTable(Mapping[K, V], Generic[K, V]):
    """One table seen as a mapping: a read-through cache of its values."""

    def __init__(self, connection: Executor, mapping: TableMapping[K, V]) -> None:
        """Read through ``connection``, as ``mapping`` says."""
        self._connection = connection
        self._mapping = mapping
        self._table, self._columns, self._of_key = mapping.table, mapping.columns, mapping.key_of
        self._known: dict[K, V | None] = {}

    def __getitem__(self, key: K) -> V:
        if key not in self._known:
            parts = key if isinstance(key, tuple) else (key,)
            of_key = dict(zip(self._mapping.key, parts, strict=True))
            rows = self._connection.execute(_of_key(*self._columns), of_key).all()
            self._known[key] = self._mapping.load(rows) if rows else None
        value = self._known[key]
        if value is None:
            raise KeyError(key)
        return value

    def __bool__(self) -> bool:
        """Whether there is any, which costs no more with many."""
        return self._connection.execute(select(self._columns[0]).limit(1)).first() is not None

    def __iter__(self) -> Iterator[K]:
        found = self._connection.execute(select(*self._columns).distinct().order_by(*self._columns)).all()
        keys: Any = (tuple(one) if len(self._columns) > 1 else one[0] for one in found)
        yield from keys

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def values(self) -> ValuesView[V]:
        """Every value, read in one statement and not in one each."""
        self.fetch()
        return super().values()

    def items(self) -> ItemsView[K, V]:
        """Every key with its value, likewise."""
        self.fetch()
        return super().items()

    def stored(self, *conditions: Any) -> Iterator[tuple[K, V]]:  # noqa: ANN401 - SQLAlchemy's own types
        """Every value that meets the conditions, as it is stored, read in one pass and not held."""
        order = dict.fromkeys((*self._columns, *self._table.primary_key.columns))
        chosen = select(self._table).where(*conditions).order_by(*order)
        load = self._mapping.load
        with self._connection.execute(chosen, execution_options={"yield_per": 1_000}) as found:
            every = chain.from_iterable(found.partitions())
            if set(self._columns) == set(self._table.primary_key.columns):
                # A row a value: two rows of one key are two values.
                yield from ((self._of_key(row), load((row,))) for row in every)
            else:
                yield from ((key, load([*rows])) for key, rows in groupby(every, self._of_key))

    def row_that_differs(self, key: K, stored: V | None, made: V | None) -> Any:  # noqa: ANN401 - of any table
        """The whole key of the first row that one of two values under a key has and the other has not."""
        columns = [*self._table.columns]
        places = [columns.index(column) for column in self._table.primary_key.columns]
        has, should = ([] if one is None else self._mapping.dump(key, one) for one in (stored, made))
        apart = [one for one in has if one not in should] + [one for one in should if one not in has]
        if len(places) == 1 or not apart:
            return key
        return tuple(apart[0][place] for place in places)

    def where(self, *conditions: Any) -> list[V]:  # noqa: ANN401 - SQLAlchemy's own types
        """The values of one-row tables that meet conditions."""
        return [self._mapping.load([row]) for row in self._select(*conditions)]

    def alike_any(self, conditions: Iterable[Any], same: Sequence[Any]) -> Iterator[tuple[V, int]]:
        """One value of each group of rows that agree in ``same``, with how many there are; of one-row tables.

        The rows meet one of these conditions, and none meets two. The database counts, and few rows are read.
        """
        (key,) = self._columns
        for some in _chunks(conditions):
            first = select(func.min(key).label("first"), func.count().label("alike"))
            groups = first.where(or_(*some)).group_by(*same).subquery()
            chosen = select(self._table, groups.c.alike).join(groups, key == groups.c.first)
            rows: Iterable[Any] = self._connection.execute(chosen)
            yield from ((self._mapping.load([row[:-1]]), row[-1]) for row in rows)

    def count_any(self, conditions: Iterable[Any]) -> int:
        """How many rows meet one of these conditions, no two of which any row meets."""
        count = select(func.count()).select_from(self._table)
        return sum(self._connection.execute(count.where(or_(*some))).scalar_one() for some in _chunks(conditions))

    def fetch(self, *conditions: Any) -> dict[K, V]:  # noqa: ANN401 - SQLAlchemy's own types
        """The values that meet conditions, by key; they are kept for later look-ups."""
        rows = self._select(*conditions)
        found: dict[K, V] = {key: self._mapping.load([*group]) for key, group in groupby(rows, self._of_key)}
        self._known.update(found)
        return found

    def fetch_keys(self, keys: Sequence[K]) -> None:
        """Read the values of these keys for later look-ups, many in one query."""
        missing = [key for key in keys if key not in self._known]
        for start in range(0, len(missing), _KEYS_MAX):
            some = missing[start : start + _KEYS_MAX]
            parts = [key if isinstance(key, tuple) else (key,) for key in some]
            found = self.fetch(tuple_(*self._columns).in_(parts))
            self._known.update((key, None) for key in some if key not in found)

    def fetch_many(self, keys: Sequence[K], *conditions: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own types
        """The same; of thousands of keys in one query, for whatever lies between them and meets the conditions."""
        missing = [key for key in keys if key not in self._known]
        if len(missing) > _BETWEEN_FROM:
            first: list[Any] = [key[0] if isinstance(key, tuple) else key for key in missing]
            found = self.fetch(self._columns[0].between(min(first), max(first)), *conditions)
            self._known.update((key, None) for key in missing if key not in found)
        self.fetch_keys(keys)

    def page(self, after: K | None, most: int, **same: str) -> list[tuple[K, V]]:
        """The next values in order of their keys; those with ``same`` values in these columns alone. They are kept."""
        keys = select(*self._columns).distinct().where(*(self._table.c[name] == value for name, value in same.items()))
        if after is not None:
            parts = after if isinstance(after, tuple) else (after,)
            keys = keys.where(tuple_(*self._columns) > tuple_(*parts))
        rows = self._select(tuple_(*self._columns).in_(keys.order_by(*self._columns).limit(most)))
        found = [(key, self._mapping.load([*group])) for key, group in groupby(rows, self._of_key)]
        self._known.update(found)
        return found

    def _select(self, *conditions: Any) -> Sequence[Row[Any]]:  # noqa: ANN401 - SQLAlchemy's own types
        chosen = select(self._table).where(*conditions).order_by(*self._table.primary_key.columns)
        return self._connection.execute(chosen).all()


def _chunks(conditions: Iterable[Any]) -> Iterator[list[Any]]:
    every = [*conditions]
    return (every[start : start + _CONDITIONS_MAX] for start in range(0, len(every), _CONDITIONS_MAX))


# Statements are made once: making one costs more than SQLite takes to answer it.
@cache
def _of_key(*columns: Any) -> Any:  # noqa: ANN401 - SQLAlchemy's own types
    table = columns[0].table
    return select(table).where(*(one == bindparam(one.name) for one in columns)).order_by(*table.primary_key.columns)


_POSTGRES_TYPES: Final = {int: "bigint", str: "text", bytes: "bytea"}
_ROWS_MAX: Final = 512
"""Rows of one statement on SQLite, which takes 32,766 parameters; a power of two."""
_FEW: Final = 8
"""Up to so many rows there is a statement of each number; beyond, of each power of two."""


@cache
def _putting(table: Table, rows: int, *, replaces: bool, postgres: bool) -> str:
    """The statement that puts so many rows into a table, in place of those with their keys or beside them."""
    names = [column.name for column in table.columns]
    if postgres:
        types = (_POSTGRES_TYPES[column.type.python_type] for column in table.columns)
        source = "SELECT * FROM unnest(" + ", ".join(f"%b::{one}[]" for one in types) + ")"  # noqa: S608 - our own types
    else:
        source = "VALUES " + ", ".join([f"({', '.join('?' * len(names))})"] * rows)
    statement = f"INSERT INTO {table.name} ({', '.join(names)}) {source}"
    if not replaces:
        return statement
    keys = [column.name for column in table.primary_key.columns]
    changes = (f"{name} = excluded.{name}" for name in names if name not in keys)
    return f"{statement} ON CONFLICT ({', '.join(keys)}) DO UPDATE SET {', '.join(changes)}"


def put_rows(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]], *, replaces: bool = False) -> None:
    """Put rows, whole and in the order of the columns, into a table by the driver's own statements of many rows.

    Args:
        replaces: a row takes the place of the one with its key; else that is an error.
    """
    if not rows:
        return
    if is_postgres(connection):
        columns = tuple(list(column) for column in zip(*rows, strict=True))
        run_plainly(connection, _putting(table, 0, replaces=replaces, postgres=True), columns)
        return
    start = 0
    while start < len(rows):
        # Sizes are few, so that the driver's cache holds every statement.
        left = len(rows) - start
        size = left if left <= _FEW else min(_ROWS_MAX, 1 << left.bit_length() - 1)
        values = tuple(chain.from_iterable(rows[start : start + size]))
        run_plainly(connection, _putting(table, size, replaces=replaces, postgres=False), values)
        start += size


def rows_of(mapping: TableMapping[K, V], values: Iterable[tuple[K, V]]) -> list[tuple[Any, ...]]:
    """The rows of values, each of which takes the place of those that have its key."""
    return [row for key, value in values for row in mapping.dump(key, value)]


def append_rows(connection: Executor, table: Table, rows: list[Fields]) -> None:
    """Append to a table; nothing there is ever replaced."""
    if rows:
        connection.execute(insert(table), rows)


def append_once(connection: Executor, table: Table, fields: Fields) -> None:
    """Append one row that any process may append, to the same effect; on SQLite one process alone does."""
    into = postgresql.insert(table).on_conflict_do_nothing() if is_postgres(connection) else insert(table)
    connection.execute(into, fields)
