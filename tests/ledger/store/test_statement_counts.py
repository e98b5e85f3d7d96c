"""How many statements a batch costs the database: as many for a hundred commands as for ten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.factories.documents import plan
from tests.factories.people import HOSPITAL
from tests.factories.stored import StoredWorld

TINY = plan(1, "1000")


@contextmanager
def counted() -> Iterator[list[str]]:
    """Every statement sent while the block runs."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:  # noqa: ANN401
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


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
        asked = world.charge("run", run=TINY, partitions=(), ranges=[ranged]), world.partition("next")
        with counted() as statements:
            assert [world.book.quote(one).code.word for one in asked] == ["pending", "permitted"]
        counts.append(len(statements))
    # The first one computes prices.
    assert counts[1] == counts[2], counts
