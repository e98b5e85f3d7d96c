"""A book with ten thousand partitions, each of which was charged: what the pages of a crowded dataset are tested on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, Final

from ledger.commands.entry import Entry
from ledger.wire import canonical_json as c
from tests.bench.grown import TINY, endless, grow
from tests.factories.people import HOSPITAL
from tests.factories.stored import StoredWorld, copy, open_world

PARTITIONS: Final = 10_000
RUNS: Final = 10
"""Charges over a range of partitions each; none may name more than 1,024."""


def many(number: int) -> str:
    """The name of the partition with a number."""
    return f"many-{number:05}"


def crowded_book(folder: Path) -> Path:
    """One dataset with as many partitions beside its first, charged in ranges by ``run-0`` and its successors."""
    work = folder / "work"
    work.mkdir()
    with open_world(work) as world:
        contract = endless(world)
        world.found(world.partition(many(0)))
        size = world.size
        world.book.close()
        grow(world, _openings, size + PARTITIONS - 1)
        world.book = world.open()
        # Statements of state have taken the places of some.
        with world.read() as facts:
            missing = [
                many(one) for one in range(PARTITIONS) if f"{HOSPITAL}/digits/{many(one)}" not in facts.partitions
            ]
        world.found(*map(world.partition, missing))
        _charge_all(world, contract)
    return copy(world.path, folder / "book.sqlite")


def _openings(world: StoredWorld, first: Entry) -> Iterator[Entry]:
    """What the book would have recorded for one partition after the other, each as the first one under its own key."""
    request: Any = first.body["request"]
    for number in count(1):
        name = many(number)
        changed = {**request, "data_key": f"digits-{name}", "partition": name}
        opening = replace(first, id=f"partition-{name}", body={**first.body, "request": changed})
        yield replace(opening, signature=world.signers[HOSPITAL].sign(opening.command.to_bytes()))


def _charge_all(world: StoredWorld, contract: str) -> None:
    """Charge every partition once."""
    width, deadline = PARTITIONS // RUNS, world.clock.now + 30 * 86_400_000
    for number in range(RUNS):
        ends = {"first": many(number * width), "last": many((number + 1) * width - 1)}
        ranged: c.Object = {"dataset": f"{HOSPITAL}/digits", **ends}
        listed = () if number else (f"{HOSPITAL}/digits/2026-q4",)
        sent = world.charge(
            f"run-{number}", run=TINY, contract=contract, deadline=deadline, partitions=listed, ranges=[ranged]
        )
        (found,) = world.submit(sent)
        assert found.code.word == "pending", found
