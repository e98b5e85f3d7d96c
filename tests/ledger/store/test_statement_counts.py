"""How many statements a batch costs the database: as many for a hundred commands as for ten."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import pytest
from sqlalchemy import Engine, event

from tests.factories.documents import plan
from tests.factories.people import HOSPITAL
from tests.factories.stored import StoredWorld

TINY = plan(1, "1000")


class Sent(str):
    """A statement, and by which connection it was sent."""

    __slots__ = ("connection",)

    connection: Any


@contextmanager
def counted(*others: str) -> Iterator[list[Sent]]:
    """Every statement sent while the block runs, but those of the threads that compare rows or are named here."""
    sent: list[Sent] = []

    def note(connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own
        if threading.current_thread().name not in {"book-rows", *others}:
            sent.append(Sent(statement))
            sent[-1].connection = connection

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def _of_the_batch(statements: list[Sent]) -> list[Sent]:
    """Those of the connection that takes the lock of the log: a writer that rests looks at the log by another."""
    locking = [one.connection for one in statements if "pg_advisory_xact_lock" in one]
    return [one for one in statements if not locking or one.connection in locking]


def by_table(statements: Sequence[str]) -> dict[str, int]:
    """How many of them begin alike, and are of one table."""
    found = (
        re.match(r"(INSERT INTO \w+|SELECT .*? FROM \w+|SELECT \w+\(|BEGIN|COMMIT)", one, re.DOTALL)
        for one in statements
    )
    return Counter(" ".join(one[0].split()) if one else "other" for one in found)


BEFORE: Final = {
    "sqlite": {"BEGIN": 1, "SELECT max(position) FROM entry": 1},
    "postgresql": {
        "COMMIT": 1,
        "SELECT pg_advisory_xact_lock(": 1,
        "SELECT (SELECT set_config('transaction_timeout', %s, true)), (SELECT version_num FROM alembic_version": 1,
    },
}
"""What a batch asks: whether the log is as it was left; of several processes, what others appended, and to commit."""
WRITTEN: Final = {
    "charge": ("signing_key", "contract", "charge", "account", "entry", "tree_node", "checkpoint"),
    "post": ("charge", "account", "entry", "tree_node", "checkpoint"),
}


@pytest.mark.parametrize("size", [1, 64])
@pytest.mark.parametrize("kind", ["charge", "post"])
def test_the_statements_of_a_batch(world: StoredWorld, engine: str, kind: str, size: int) -> None:
    """Exactly these: nothing that the writer knows is read, and each table is written by one statement."""
    names = [f"{size}-{number}" for number in range(size)]
    charges, posts = [world.charge(name, run=TINY) for name in names], [world.settle(name, 1) for name in names]
    world.submit(world.charge("first", run=TINY))
    if kind == "post":
        world.submit(*charges)
    with counted() as statements:
        outcomes = world.submit(*(charges if kind == "charge" else posts))
    assert {one.code.word for one in outcomes} == {"pending" if kind == "charge" else "posted"}
    expected = {**BEFORE[engine], **{f"INSERT INTO {table}": 1 for table in WRITTEN[kind]}}
    found = by_table(_of_the_batch(statements))
    if engine == "sqlite":
        # Rows whose number is no power of two are put down in pieces that are, so that few statements are compiled.
        pieces = found.pop("INSERT INTO tree_node")
        assert expected.pop("INSERT INTO tree_node") <= pieces <= (2 * size).bit_length()
    assert found == expected


@pytest.mark.parametrize("kind", ["charge", "post", "repeat"])
def test_a_batch_costs_as_many_statements_as_a_small_one(world: StoredWorld, kind: str) -> None:
    """What commands will ask for is read a table at a time, and written so; the tree adds one per doubling."""
    world.submit(world.charge("first", run=TINY))
    counts = []
    for size in (8, 64):
        charges = [world.charge(f"{size}-{number}", run=TINY) for number in range(size)]
        sent = [world.settle(f"{size}-{number}", 1) for number in range(size)] if kind == "post" else charges
        if kind != "charge":
            world.submit(*charges)
        with counted() as statements:
            codes = {one.code.word for one in world.submit(*sent)}
        assert codes == {"posted" if kind == "post" else "pending"}
        counts.append(len(statements))
    few, many = counts
    # Of what is repeated, its entry and proof. Before the writer has them, keys are read for twice as many each time.
    alone = 4 if kind == "repeat" else 0
    # The writer may come by while they are put down, and make two batches of them: far from one more for each.
    assert many - few <= (64 - 8) * alone + 40, counts


def test_what_retired_costs_a_quote_no_statement(world: StoredWorld) -> None:
    """A run over a range, and a partition to be opened, are quoted with as many statements after twenty more."""
    ranged: Any = {"dataset": f"{HOSPITAL}/digits", "first": "2026-q4", "last": "2026-q4"}
    counts = []
    for more in (0, 2, 20):
        names = [f"old-{more}-{number}" for number in range(more)]
        if names:
            world.found(*map(world.partition, names))
            retired = [
                world.command(HOSPITAL, "retirement", {"partition": f"{HOSPITAL}/digits/{name}"}, f"retire-{name}")
                for name in names
            ]
            world.found(*retired)
        requested = world.charge("run", run=TINY, partitions=(), ranges=[ranged]), world.partition("next")
        # The writer, which no quote asks, looks now and then for what other processes appended.
        with counted("book-writer") as statements:
            assert [world.book.quote(one).code.word for one in requested] == ["pending", "permitted"]
        counts.append(len(statements))
    # The first one computes prices.
    assert counts[1] == counts[2], counts
