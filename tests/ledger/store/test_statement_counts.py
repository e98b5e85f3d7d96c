"""How many statements a batch costs the database: as many for a hundred commands as for ten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tests.factories.documents import plan
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
