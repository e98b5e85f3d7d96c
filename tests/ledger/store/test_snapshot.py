"""Reading a book as it was: the facts, the entries and the proofs of every size it ever had."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from sqlalchemy import Engine, event, text

from ledger.book.book import BookStopped, RowsDiffer
from ledger.commands.entry import Entry
from ledger.log.checkpoint import sign
from ledger.store.engine import engine_of
from ledger.verifier import Checkpoint, leaf_hash, verify_consistency, verify_receipt
from tests.factories.documents import SMALL
from tests.factories.people import BANK_A, BANK_B, LOG, LOG_KEY
from tests.factories.stored import StoredWorld, open_world

FACTS = (
    "organisations",
    "keys",
    "policies",
    "datasets",
    "partitions",
    "contracts",
    "contract_heads",
    "charges",
    "forgiven",
)


def _facts(book: Any) -> dict[str, Any]:  # noqa: ANN401 - a snapshot, or a past one
    found = {name: dict(getattr(book, name)) for name in (*FACTS, "accounts", "nodes")}
    holders = {holder for _, holder in found["accounts"]}
    return {**found, "publication": book.publication, "held": {one: book.accounts_of(one) for one in holders}}


def _live(world: StoredWorld) -> dict[int, tuple[dict[str, Any], str]]:
    """Do a little of everything; what stood after each commit, and its checkpoint."""
    seen = {}
    dice = random.Random(7)  # noqa: S311 - which run is settled when
    for number in range(6):
        bank = dice.choice((BANK_A, BANK_B))
        sent = [world.charge(f"run-{number}", bank, SMALL)]
        if number % 2:
            sent += [world.settle(f"run-{number}", 0, bank), world.void(f"run-{number - 1}", bank)]
        if number == 3:
            sent.append(world.merger())
        world.submit(*sent)
        with world.book.read() as facts:
            seen[facts.size] = _facts(facts), facts.checkpoint
    return seen


def test_the_past_is_what_stood_then(world: StoredWorld) -> None:
    """Every fact and the checkpoint itself, byte for byte, at every commit that there was."""
    for size, (facts, checkpoint) in _live(world).items():
        with world.book.read_past(size) as past:
            assert (past.size, past.checkpoint) == (size, checkpoint)
            assert _facts(past) == facts


def test_entries_of_some_kinds_are_read_as_far_as_they_are_wanted(world: StoredWorld) -> None:
    """All of them in order, over several reads; and of a long log no more than one read for the first."""
    world.submit(*(world.charge(f"run-{number}", run=SMALL) for number in range(40)))
    with world.book.read() as facts:
        charges = [(index, data) for index, data in enumerate(facts) if Entry.parse(data).kind == "charge"]
        assert [*facts.entries_of(("charge", "post"), 0)] == charges
        assert [*facts.entries_of(("charge",), charges[7][0])] == charges[7:]
        requested: list[str] = []

        def note(*said: Any) -> None:  # noqa: ANN401 - as SQLAlchemy calls it
            requested.append(str(said[2]))

        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert next(iter(facts.entries_of(("charge",), 0))) == charges[0]
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        (statement,) = (one for one in requested if "entry" in one)
        assert "LIMIT" in statement


def test_every_size_has_its_proofs(world: StoredWorld) -> None:
    """Receipts under a checkpoint of that size, and that each size extends every smaller one."""
    _live(world)
    roots = {}
    for size in range(1, world.size + 1):
        with world.book.read_past(size) as past:
            roots[size] = past.root
            entry = past.entry(size - 1)
            assert verify_receipt(past.receipt(size - 1), entry, LOG)[1].root == past.root
            for old, root in roots.items():
                assert verify_consistency(old, size, past.consistency(old), root, past.root)
            with pytest.raises(KeyError):
                past.entry(size)
            with pytest.raises(KeyError):
                past.receipt(size)
    assert roots[1] == leaf_hash(world_entry(world, 0))
    with world.book.read() as now:
        assert now.root == roots[world.size]


def world_entry(world: StoredWorld, index: int) -> bytes:
    """An entry as it is now."""
    with world.book.read() as facts:
        return facts.entry(index)


@pytest.mark.parametrize("size", [-1, 11, 2**53])
def test_a_size_that_never_was_is_refused(world: StoredWorld, size: int) -> None:
    """Neither before the beginning nor after the end."""
    with pytest.raises(KeyError), world.book.read_past(size):
        pass


def test_the_empty_past_has_no_checkpoint(world: StoredWorld) -> None:
    """Nothing stood, and nothing was signed."""
    with world.book.read_past(0) as past:
        assert not any(_facts(past).values())
        with pytest.raises(KeyError):
            _ = past.checkpoint


def test_an_id_of_later_is_not_known_yet(world: StoredWorld) -> None:
    """Where the entry of a command stands, if it stood then."""
    world.submit(world.charge("late", run=SMALL))
    with world.book.read_past(10) as past:
        assert past.entry_index("late") is None
        assert past.entry_index("merger") is None
    with world.book.read_past(11) as past:
        assert past.entry_index("late") == 10
        assert sign(Checkpoint(LOG.origin, 11, past.root), LOG_KEY) == past.checkpoint


FORGED: Final = (
    "UPDATE tree_node SET hash = :leaf WHERE level = 0 AND position = 10",
    "UPDATE entry SET data = :data WHERE position = 10",
)


@pytest.mark.parametrize("statements", [FORGED, FORGED[:1], FORGED[1:]])
def test_no_past_is_signed_but_that_of_the_log(tmp_path: Path, statements: Sequence[str]) -> None:
    """Whoever writes the database gets no root of theirs signed: neither by entry and node, nor by one of the two."""
    with open_world(tmp_path) as world:
        world.is_checked = False
        world.submit(*(world.charge(f"run-{n}") for n in range(3)))
        with world.book.read_past(11) as past:
            assert Checkpoint.open(past.checkpoint, LOG).size == 11
            data = past.entry(10).replace(b'"steps":100', b'"steps":1')
            assert data != past.entry(10)
        given = {"leaf": leaf_hash(data), "data": data}
        engine = engine_of(world.url, writes=True)
        with engine.begin() as connection:
            for table in ("entry", "tree_node"):
                connection.execute(text(f"DROP TRIGGER {table}_no_update"))
            for one in statements:
                connection.execute(text(one), {name: given[name] for name in given if f":{name}" in one})
        engine.dispose()
        with world.book.read_past(11) as past:
            with pytest.raises(RowsDiffer, match="are not those that the log's key has signed"):
                _ = past.checkpoint
            with pytest.raises(RowsDiffer):
                past.receipt(10)


def test_a_stopped_book_signs_no_past(world: StoredWorld) -> None:
    """What it has read may be read on; its key may have been taken from it."""
    with world.book.read_past(5) as past, world.book.read_past(6) as other:
        assert past.checkpoint
        world.book.stop(ValueError("enough"))
        with pytest.raises(BookStopped, match="enough"):
            _ = other.checkpoint
