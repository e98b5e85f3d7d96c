"""Entries that are read together are proven as each by itself is, and one changed byte among them is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Connection, create_engine, event, insert

from ledger.book.state.proven_entries import BLOCK_LEVEL, MANY, ProvenEntries
from ledger.log.merkle import CompactRange
from ledger.store.tables import ENTRY, TREE_NODE, metadata
from ledger.wire.malformed import Malformed

SIZE: Final = 3 * 256 + 77
BLOCK: Final = 1 << BLOCK_LEVEL


@cache
def log() -> tuple[list[bytes], list[tuple[int, int, bytes]], dict[tuple[int, int], bytes]]:
    """Entries of any bytes, the nodes of their tree, and its right edge."""
    random, tree = Random(7), CompactRange()  # noqa: S311 - any bytes do
    entries = [random.randbytes(random.randint(2, 60)) for _ in range(SIZE)]
    nodes = [node for one in entries for node in tree.append(one)]
    return entries, nodes, tree.nodes


@contextmanager
def stored(
    changed: dict[int, bytes] | None = None, without: int | None = None
) -> Iterator[tuple[Connection, list[str]]]:
    """The log in a database, some entries other than they were; and every statement that is sent."""
    entries, nodes, _ = log()
    engine, sent = create_engine("sqlite://"), list[str]()
    metadata.create_all(engine)
    with engine.begin() as connection:
        rows = [
            {"position": at, "id": str(at), "kind": "any", "time": 0, "data": (changed or {}).get(at, one)}
            for at, one in enumerate(entries)
            if at != without
        ]
        connection.execute(insert(ENTRY), rows)
        connection.execute(insert(TREE_NODE), [{"level": a, "position": b, "hash": one} for a, b, one in nodes])

        def note(*told: Any) -> None:  # noqa: ANN401 - of SQLAlchemy
            sent.append(told[2])

        event.listen(engine, "before_cursor_execute", note)
        yield connection, sent
    engine.dispose()


def proven(connection: Connection) -> ProvenEntries:
    """Entries under the true root."""
    return ProvenEntries.under(connection, SIZE, log()[2])


@given(chosen=st.sets(st.integers(0, SIZE - 1), max_size=40), blocks=st.sets(st.integers(0, SIZE // BLOCK)))
def test_entries_are_read_in_any_mixture(chosen: set[int], blocks: set[int]) -> None:
    """Some by themselves, some in whole blocks, those of the unfinished last block too: each has its own bytes."""
    wanted = chosen | {at for one in blocks for at in range(one * BLOCK, min((one + 1) * BLOCK, SIZE))}
    with stored() as (connection, _):
        entries = proven(connection)
        entries.read(wanted)
        assert {at: entries.bytes_at(at) for at in wanted} == {at: log()[0][at] for at in wanted}


def test_a_block_takes_two_statements() -> None:
    """However many of it are named, from some number on: its entries, and the nodes of one path."""
    with stored() as (connection, sent):
        proven(connection).read(range(256, 256 + MANY))
        assert len(sent) == 2
        sent.clear()
        proven(connection).read(range(3 * BLOCK))
        assert len(sent) == 2 * 3


@pytest.mark.parametrize("at", [256, 257, 300, 383, 384, 511])
@pytest.mark.parametrize("named", [MANY, BLOCK])
def test_a_changed_entry_of_a_block_is_named(at: int, named: int) -> None:
    """Where one byte is another, the block is refused and the entry is named, though it was not wanted itself."""
    changed = bytes([log()[0][at][0] ^ 1]) + log()[0][at][1:]
    with stored({at: changed}) as (connection, _), pytest.raises(Malformed, match=f"entry {at}: its bytes"):
        proven(connection).read(range(512 - named, 512))


def test_a_missing_entry_of_a_block_is_named() -> None:
    """By its own position."""
    with stored(without=300) as (connection, _), pytest.raises(Malformed, match="entry 300: is missing"):
        proven(connection).read(range(256, 512))


@pytest.mark.parametrize("level", range(10))
def test_no_node_that_is_stored_gives_another_entry(level: int) -> None:
    """Two blocks that changed places, and every node of a level made fit: the root is the writer's own."""
    entries = log()[0]
    swapped = {at: entries[at ^ BLOCK] for at in range(2 * BLOCK)}
    with stored(swapped) as (connection, _):
        found = {place: value for rank, place, value in log()[1] if rank == level}
        for place, value in found.items():
            other = found.get(place ^ (BLOCK >> level), value) if level <= BLOCK_LEVEL else value
            if place << level < 2 * BLOCK:
                where = TREE_NODE.c.level == level, TREE_NODE.c.position == place
                connection.execute(TREE_NODE.update().where(*where).values(hash=other))
        with pytest.raises(Malformed, match="its bytes, or the nodes"):
            proven(connection).read(range(BLOCK))
