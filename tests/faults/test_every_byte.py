"""Any byte of what a book stores is changed, one at a time: verification fails and names the place."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Engine

from ledger.replay import Broken, verify_book
from tests.book.world import BANK_B, ENGINES, LOG, SMALL, World, fresh_book, no_step
from tests.faults.bytes_of import Byte, bytes_of, put, unguarded
from tests.postgres import new_book

STRIDE: Final = int(os.environ.get("EPSILON_SOAK_STRIDE", "1"))
"""Of all bytes, the soak changes one in so many."""


@pytest.fixture(params=ENGINES)
def healthy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Engine]]:
    """A small closed book in which charges are pending, posted, voided and known to two lineages; without guards."""
    if request.param == "sqlite":
        with fresh_book(tmp_path) as url:
            _live(World(tmp_path, url))
            with unguarded(url) as engine:
                yield url, engine
    else:
        with new_book() as database:
            _live(World(tmp_path, database.url))
            with unguarded(database.owner) as engine:
                yield database.owner, engine


def _live(world: World) -> None:
    world.submit(*world.founding())
    world.submit(world.charge("one", run=SMALL), world.charge("two", BANK_B, SMALL), world.charge("three", run=SMALL))
    world.submit(world.settle("one", 1), world.void("three"), world.merger())
    world.book.close()


def _named(byte: Byte, found: Broken, other: object) -> bool:
    """Whether a finding is of this byte's row."""
    told, key = str(found), dict(byte.key)
    if byte.table == "entry":
        return found.index == key["position"] or "is missing" in told
    if byte.table == "tree_node":
        return "tree node" in told
    names = [str(one) for one in (*key.values(), other)]
    return byte.table in told or any(name in told for name in names)


def _change(url: str, engine: Engine, byte: Byte, dice: random.Random) -> str:
    """Change one byte, verify, put it back; what came of it."""
    value = byte.changed(dice)
    if not put(engine, byte, value):
        return "refused by the database"
    try:
        with pytest.raises(Broken) as fault:
            verify_book(url, LOG, no_step)
    except BaseException:
        print(f"{byte}: {value!r} instead of {byte.value!r}")  # noqa: T201 - what reproduces it
        raise
    finally:
        assert put(engine, Byte(byte.table, byte.key, byte.column, byte.place, value), byte.value)
    assert _named(byte, fault.value, value), (str(byte), str(fault.value))
    return "found"


def test_some_bytes_of_every_table(healthy: tuple[str, Engine]) -> None:
    """One of each second column (on PostgreSQL of fewer), of every table, the same ones every time."""
    url, engine = healthy
    dice, seen = random.Random(5), Counter[str]()  # noqa: S311 - places to damage
    with engine.begin() as connection:
        columns: dict[tuple[str, str], list[Byte]] = {}
        for byte in bytes_of(connection):
            columns.setdefault((byte.table, byte.column), []).append(byte)
    for bytes_ in list(columns.values())[:: 2 if engine.dialect.name == "sqlite" else 6]:
        seen[_change(url, engine, dice.choice(bytes_), dice)] += 1
    assert seen["found"] > seen.total() * 2 / 3, seen
    assert verify_book(url, LOG, no_step).charges == 3


@pytest.mark.soak
def test_every_byte(healthy: tuple[str, Engine], tell: Callable[[str], None]) -> None:
    """Each of them, or one in so many as EPSILON_SOAK_STRIDE says."""
    url, engine = healthy
    dice = random.Random(os.environ.get("EPSILON_SOAK_SEED", "6"))  # noqa: S311 - bits to change
    seen = Counter[str]()
    with engine.begin() as connection:
        every = list(bytes_of(connection))
    for byte in every[dice.randrange(STRIDE) :: STRIDE]:
        seen[_change(url, engine, byte, dice)] += 1
        if seen.total() % 200 == 0:
            tell(f"{engine.dialect.name}: {len(every)} bytes, of which changed: {dict(seen)}")
    tell(f"{engine.dialect.name}: {len(every)} bytes, of which changed: {dict(seen)}")
