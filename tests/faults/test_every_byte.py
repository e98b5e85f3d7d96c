"""Any byte of what a book stores is changed, one at a time: verification fails and names the place."""

from __future__ import annotations

import os
import random
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Engine

from ledger.audit.replay import VerificationFailed, verify_book
from ledger.store.cosignatures import store_cosignature
from ledger.store.engine import engine_of
from ledger.store.snapshot import Log
from tests.factories.documents import SMALL
from tests.factories.people import BANK_B, LOG
from tests.factories.statements import state_now
from tests.factories.stored import ENGINES, StoredWorld, fresh_book, no_step
from tests.faults.bytes_of import Byte, bytes_of, put, unguarded
from tests.ledger.log.memory_log import Cosigner
from tests.postgres import new_book

STRIDE: Final = int(os.environ.get("EPSILON_SOAK_STRIDE", "1"))
"""Of all bytes, the soak changes one in so many."""
WITNESS: Final = Cosigner("witness.example", 7)
PROJECTED: Final = {
    "account": "accounts",
    "charge": "charges",
    "contract": "contracts",
    "contract_head": "contract_heads",
    "dataset": "datasets",
    "forgiven": "forgiven",
    "node": "nodes",
    "organisation": "organisations",
    "partition": "partitions",
    "policy_version": "policies",
    "signing_key": "keys",
}
"""What verification calls the rows of a table that the entries make."""
SPREAD: Final = ("account", "policy_version")
"""Whose rows hold one value together under the first columns of their key."""


@pytest.fixture(params=ENGINES)
def healthy(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Engine]]:
    """A small closed book: charges pending, posted, voided, known to two lineages; stated, cosigned, without guards."""
    if request.param == "sqlite":
        with fresh_book(tmp_path) as url:
            _live(StoredWorld(tmp_path, url))
            with unguarded(url) as engine:
                yield url, engine
    else:
        with new_book() as database:
            _live(StoredWorld(tmp_path, database.url))
            with unguarded(database.owner) as engine:
                yield database.owner, engine


def _live(world: StoredWorld) -> None:
    world.submit(*world.founding())
    world.submit(world.charge("one", run=SMALL), world.charge("two", BANK_B, SMALL), world.charge("three", run=SMALL))
    world.submit(world.settle("one", 1), world.void("three"), world.merger())
    state_now(world.book)
    world.book.close()
    engine = engine_of(world.url, writes=True)
    with engine.begin() as connection:
        log = Log(connection)
        store_cosignature(connection, log.size, WITNESS.key, WITNESS.line(log.checkpoint))
    engine.dispose()


def _named(byte: Byte, found: VerificationFailed, other: object) -> bool:
    """Whether a finding is of this byte's row: its place in the log, or its key, as it was or as it is now."""
    key = dict(byte.key)
    if byte.table == "entry":
        return bool(found.index == key["position"])
    # A row under another key is one that is missing and one too many: verification comes to one of them first.
    keys = [key, {**key, byte.column: other}] if byte.column in key else [key]
    moved = byte.column in key
    return any(str(found).startswith(start) for one in keys for start in _places(byte.table, one, moved=moved))


def _places(table: str, key: dict[str, Any], *, moved: bool) -> Iterator[str]:
    """How a finding begins that is of the row of this key, or that it was ``moved`` to or from."""
    values = tuple(_readable(one) for one in key.values())
    match table:
        case "tree_node":
            yield f"entry {key['position'] << key['level']}: tree node {key['level']}/{key['position']} "
            yield f"tree node {key['level']}/{key['position']} "
        case "checkpoint" | "cosignature":
            yield from (f"{table} at {' of '.join(map(str, values))}{after}" for after in (" ", ":"))
        case "document":
            yield f"document {values[0]}: "
        case _:
            # Several texts are shown as Python writes them.
            several = (*key.values(),)
            yield f"{PROJECTED[table]}: the row of {values[0] if len(values) == 1 else values} "
            yield f"{PROJECTED[table]}: the row of {several} "
            if moved and table in SPREAD:
                # Several rows hold one value together: without one of them, or with a stranger, it cannot be read.
                yield f"{PROJECTED[table]}: the row of {values[0] if len(values) == 2 else values[:-1]} "
                yield f"{PROJECTED[table]}: the row of {several[:-1]} "
    # A text that is none is found by reading every row as bytes.
    yield f"{table}: the row of {', '.join(map(str, values))} "


def _readable(value: object) -> object:
    """A text that is none, or holds control characters, as people are shown it."""
    if not isinstance(value, str):
        return value
    text = value.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(repr(one)[1:-1] if unicodedata.category(one) == "Cc" else one for one in text)


def _change(url: str, engine: Engine, byte: Byte, dice: random.Random) -> str:
    """Change one byte, verify, put it back; what came of it."""
    value = byte.changed(dice)
    if not put(engine, byte, value):
        return "refused by the database"
    try:
        with pytest.raises(VerificationFailed) as fault:
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


def test_a_changed_entry_is_named_and_not_the_statement_that_it_breaks(healthy: tuple[str, Engine]) -> None:
    """What a policy's entry says beside its command shows first in the root of the state."""
    url, engine = healthy
    with engine.begin() as connection:
        every = [one for one in bytes_of(connection) if (one.table, one.column) == ("entry", "data")]
    domain = b'"domain":"health"'
    (byte,) = [one for one in every if domain in one.value and one.place == one.value.find(domain) + 10][:1]
    assert _change(url, engine, byte, random.Random(1)) == "found"  # noqa: S311 - a bit to change


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
    assert seen["found"] > seen.total() * 2 / 3, seen
