"""Any bit of a book's file is changed, one at a time: ``epsilon verify`` ends with 7, or nothing of the book changed.

:mod:`tests.faults.test_every_byte` changes stored values; this changes the file: its indexes, the pages of
the tables' trees, the schema's text, free space.
"""

from __future__ import annotations

import os
import random
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from ledger.cli.main import app
from ledger.store.cosignatures import store_cosignature
from ledger.store.engine import engine_of
from ledger.store.snapshot import Log
from tests.factories.documents import SMALL
from tests.factories.people import BANK_B, LOG
from tests.factories.statements import state_now
from tests.factories.stored import open_world
from tests.faults.test_every_byte import WITNESS

FLIPS: Final = int(os.environ.get("EPSILON_SOAK_FLIPS", "3202"))
SAMPLE: Final = 40
Contents = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book of one file, with a statement of its state and a cosignature, and its log's key beside it."""
    with open_world(tmp_path_factory.mktemp("file")) as world:
        world.submit(*(world.charge(f"run-{number}", run=SMALL) for number in range(12)))
        world.submit(world.charge("other", BANK_B, SMALL), world.settle("run-1", 1), world.void("run-3"))
        world.submit(world.merger())
        state_now(world.book)
        path = world.path
    (path.parent / "log.vkey").write_text(f"{LOG.vkey}\n", encoding="ascii")
    engine = engine_of(f"sqlite:///{path}", writes=True)
    with engine.begin() as connection:
        log = Log(connection)
        store_cosignature(connection, log.size, WITNESS.key, WITNESS.line(log.checkpoint))
    engine.dispose()
    return path


def contents(path: Path) -> Contents:
    """Every row of every table, read without an index, and the schema's text; raises what SQLite does.

    The epoch is left out: a number drawn at each opening, which says nothing of the log.
    """
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        schema = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
        tables = [name.decode() for kind, name, *_ in schema if kind == b"table" and name != b"epoch"]
        rows = {name: connection.execute(f'SELECT * FROM "{name}" NOT INDEXED').fetchall() for name in tables}  # noqa: S608 - names of the schema
        return {"schema": schema, **rows}


def is_sound(path: Path) -> bool:
    """Whether SQLite finds every index complete."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]


def change(book: Path, folder: Path, bit: int, original: Contents) -> str:
    """Change one bit in a copy and verify it; what came of it."""
    data = bytearray(book.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path = folder / "book.sqlite"
    for name in ("book.sqlite-wal", "book.sqlite-shm"):
        (folder / name).unlink(missing_ok=True)
    path.write_bytes(data)
    found = CliRunner().invoke(app, ["verify", str(path), "--log", str(book.parent / "log.vkey")])
    assert found.exception is None or isinstance(found.exception, SystemExit), (bit, found.exception)
    assert len(found.output.strip().splitlines()) == 1, (bit, found.output)
    if found.exit_code == 0:
        assert contents(path) == original, bit
        assert is_sound(path), bit
        return "nothing changed"
    assert found.exit_code == 7, (bit, found.output)
    return "found"


def test_some_bits_of_the_file(book: Path, tmp_path: Path) -> None:
    """One in each fortieth of the file, the same ones every time."""
    original, size = contents(book), 8 * book.stat().st_size
    dice, seen = random.Random(11), Counter[str]()  # noqa: S311 - places to damage
    for part in range(SAMPLE):
        seen[change(book, tmp_path, size * part // SAMPLE + dice.randrange(size // SAMPLE), original)] += 1
    assert seen["found"] > SAMPLE / 5, seen


@pytest.mark.parametrize(
    "words",
    [
        "CREATE TABLE entry",
        "CREATE UNIQUE",
        "no_update BEFORE",
        "version_num VARCHAR",
        "SQLite format 3",
        "ix_charge_due",
    ],
)
def test_a_bit_of_the_schema(book: Path, tmp_path: Path, words: str) -> None:
    """Of the text of a table, an index or a trigger, and of the first words of the file."""
    data = book.read_bytes()
    place = data.find(words.encode())
    if place >= 0:
        seen = {change(book, tmp_path, 8 * (place + at) + 1, contents(book)) for at in range(2, len(words), 5)}
        assert seen == {"found"}


@pytest.mark.soak
def test_so_many_bits_of_the_file(book: Path, tmp_path: Path, tell: Callable[[str], None]) -> None:
    """As many as the attack of which 59 changed values and 74 broken indexes had passed."""
    original, size = contents(book), 8 * book.stat().st_size
    dice, seen = random.Random(os.environ.get("EPSILON_SOAK_SEED", "12")), Counter[str]()  # noqa: S311 - bits
    for _ in range(FLIPS):
        seen[change(book, tmp_path, dice.randrange(size), original)] += 1
        if seen.total() % 200 == 0:
            tell(f"bits of the file: {dict(seen)}")
    tell(f"bits of the file: {dict(seen)}")
    assert seen["found"] > FLIPS / 5, seen
