"""The join inside the clean room: as a database joins, within its premise, and refused beyond it."""

from __future__ import annotations

import io
import sqlite3
import tracemalloc
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from client.dataset_files.sealed_records import RecordLayout, SealedRecords, write_sealed
from client.dataset_files.stored_partition import PartitionData
from client.dataset_files.tokens.person_tokens import JOIN
from client.dataset_files.tokens.token_counts import TOKEN_BYTES
from ledger.wire.malformed import Malformed
from trainer_adapter.training.record_join import join_records

KEY = b"k" * 32
BASE, SECOND, THIRD = (f"did:web:{name}.example/tests/2026" for name in ("index", "laboratory", "clinic"))
People = Sequence[int]


class _Bytes:
    """A sealed file in memory."""

    def __init__(self, data: bytes) -> None:
        self._data, self.size = data, len(data)

    def read(self, at: int, count: int) -> bytes:
        return self._data[at : at + count]


def _token(person: int) -> bytes:
    return person.to_bytes(TOKEN_BYTES, "big")


def _sealed(ref: str, people: People, *, columns: int = 1, target: bool = False) -> SealedRecords:
    """A table whose inputs and target are told by person and place."""
    arrays: list[tuple[str, str, tuple[int, ...]]] = [("inputs", "<f4", (columns,)), (JOIN, "|u1", (TOKEN_BYTES,))]
    layout = RecordLayout(np.dtype([*arrays, *([("targets", "<i8", ())] if target else [])]))
    rows = np.zeros(len(people), layout.dtype)
    for place, person in enumerate(people):
        rows[place]["inputs"] = [100 * place + person] * columns
        rows[place][JOIN] = np.frombuffer(_token(person), np.uint8)
        if target:
            rows[place]["targets"] = person % 2
    file = io.BytesIO()
    write_sealed(file, KEY, ref, layout, [rows])
    return SealedRecords(_Bytes(file.getvalue()), KEY, ref)


def _opened(base: People, second: People, third: People) -> dict[str, PartitionData]:
    return {
        BASE: _sealed(BASE, base),
        SECOND: _sealed(SECOND, second, columns=2, target=True),
        THIRD: _sealed(THIRD, third),
    }


def _joined(
    opened: dict[str, PartitionData], rows_max: int = 1
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.bool_]]:
    archive, present = join_records(opened, (BASE, SECOND, THIRD), rows_max)
    with np.load(io.BytesIO(archive)) as held:
        return held["inputs"], held["targets"], present.numpy()


def _by_database(base: People, second: People, third: People) -> list[tuple[int, int, int, int]]:
    """Place of each table in every joined record, and the target, as SQLite joins them."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE record (part INTEGER, place INTEGER, person INTEGER)")
    for part, people in enumerate((base, second, third)):
        database.executemany("INSERT INTO record VALUES (?, ?, ?)", [(part, *one) for one in enumerate(people)])
    return database.execute(
        "SELECT base.place, second.place, third.place, base.person % 2 FROM record AS base "
        "JOIN record AS second ON second.person = base.person AND second.part = 1 "
        "JOIN record AS third ON third.person = base.person AND third.part = 2 "
        "WHERE base.part = 0 ORDER BY base.place"
    ).fetchall()


_ONCE = st.lists(st.integers(0, 12), unique=True, max_size=10)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=10), _ONCE, _ONCE)
def test_it_joins_as_a_database_does(base: People, second: People, third: People) -> None:
    """The same records, one place a record of the base; every other place is absent and holds zeros."""
    inputs, targets, present = _joined(_opened(base, second, third), rows_max=10)
    expected = _by_database(base, second, third)
    assert np.flatnonzero(present).tolist() == [place for place, *_ in expected]
    assert inputs.shape == (len(base), 4)
    for place, other, last, target in expected:
        person = base[place]
        assert inputs[place].tolist() == [
            100 * place + person,
            *[100 * other + person] * 2,
            100 * last + person,
        ]
        assert targets[place] == target
    assert not inputs[~present].any()
    assert not targets[~present].any()


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=8), _ONCE, _ONCE)
def test_a_record_of_any_table_changes_at_most_its_persons_places(base: People, second: People, third: People) -> None:
    """Zeroed out, which here is a person nobody else has: in the base one place, in another table ``rows_max``."""
    rows_max = max(base.count(one) for one in base)
    *_, before = _joined(_opened(base, second, third), rows_max)
    nobody = 99
    for table, people in enumerate((base, second, third)):
        for place in range(len(people)):
            tables = [base, second, third]
            tables[table] = [*people[:place], nobody, *people[place + 1 :]]
            *_, after = _joined(_opened(*tables), rows_max)
            assert int((before != after).sum()) <= (1 if table == 0 else rows_max)
            assert not (after & ~before).any()


@pytest.mark.parametrize(
    ("opened", "rows_max", "field", "rule"),
    [
        (_opened([1, 1], [1], [1]), 1, BASE, "has more than 1 record of one person"),
        (_opened([1, 1, 1], [1], [1]), 2, BASE, "has more than 2 records of one person"),
        (_opened([1], [2, 2], [1]), 2, SECOND, "has more than 1 record of one person"),
        (
            {**_opened([1], [1], [1]), SECOND: _sealed(SECOND, [1])},
            1,
            "join",
            "must have the target in one partition, and 0 have one",
        ),
        (
            {**_opened([1], [1], [1]), BASE: _sealed(BASE, [1], target=True)},
            1,
            "join",
            "must have the target in one partition, and 2 have one",
        ),
        ({**_opened([1], [1], [1]), THIRD: b"archive"}, 1, THIRD, "is no table with join tokens"),
    ],
)
def test_a_join_beyond_its_premise_ends(opened: dict[str, PartitionData], rows_max: int, field: str, rule: str) -> None:
    """More records of a person than charged for, whatever the table's provider said; no or two targets."""
    with pytest.raises(Malformed) as raised:
        _joined(opened, rows_max)
    assert raised.value.field == field
    assert rule in raised.value.rule


def test_a_join_that_would_explode_ends_in_the_memory_of_its_tables() -> None:
    """Ten thousand rows of one person in each of two tables: a hundred million pairs, and none is made."""
    people = [1] * 10_000
    opened = _opened(people, people, [1])
    tables = sum(one.nbytes for one in opened.values() if isinstance(one, SealedRecords))
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="has more than 1 record of one person"):
            _joined(opened, rows_max=1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * tables


class _Declared(SealedRecords):
    """A table of so many records, none of which is there to be read."""

    def __init__(self, records: int, columns: int) -> None:
        self.layout = RecordLayout(
            np.dtype([("inputs", "<f4", (columns,)), (JOIN, "|u1", (TOKEN_BYTES,)), ("targets", "<i8", ())])
        )
        self._records = records

    def arrays(self, wanted: Iterable[str] | None = None) -> Mapping[str, NDArray[Any]]:
        """Never."""
        raise AssertionError(f"{wanted} were read")


@pytest.mark.parametrize(
    ("base", "second"),
    [((1 << 24, 1), (1, 1)), ((10, 1), (1 << 25, 1)), ((1 << 20, 1), (10, 1_000))],
    ids=["one table", "the other table", "few wide rows beside many"],
)
def test_what_does_not_fit_is_refused_before_a_record_is_read(base: tuple[int, int], second: tuple[int, int]) -> None:
    """By the sizes of the tables and of what they would be joined to."""
    opened: dict[str, PartitionData] = {BASE: _Declared(*base), SECOND: _Declared(*second)}
    with pytest.raises(Malformed, match="join: has more than 1024 MiB of records"):
        join_records(opened, (BASE, SECOND))
