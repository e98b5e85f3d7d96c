"""A log that is folded in stretches makes the state that it makes entry by entry."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from ledger.book import writer_state
from ledger.book.state import state_statements
from ledger.book.writer_state import WriterState
from ledger.domain.outcomes import ChargeState
from ledger.state_tree.sparse_tree import SparseTree
from ledger.store.engine import engine_of
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, BANK_B, HOUR_MS, LOG, SRO
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.state_tree.test_leaves import folded

RUNS = 14


def lived(world: StoredWorld, chosen: Random) -> list[bytes]:
    """A book that states its state often: runs settled in every way, lapses, two decrees and a merger among them."""
    world.book.close()
    world.book = world.open(statements=True)
    others = {chosen.randrange(RUNS): kind for kind in ("first decree", "second decree", "merger")}
    for number in range(RUNS):
        name, settled = f"run-{number}", f"run-{chosen.randint(0, number)}"
        world.submit(world.charge(name, recipients=[BANK_B] if chosen.random() < 0.2 else []))
        ways = world.settle(settled, chosen.randint(0, 40)), world.void(settled), world.release(settled)
        world.submit(*chosen.sample(ways, chosen.randint(0, 2)))
        if (kind := others.get(number)) == "merger":
            world.submit(world.merger())
        elif kind is not None:
            body: c.Object = {"partition": PARTITION, "holder": "global", "reason": f"a count was wrong: {kind}"}
            world.submit(world.command(SRO, "decree", body, kind))
        if chosen.random() < 0.1:
            world.clock.now += HOUR_MS + 1
            world.submit(world.command(BANK_A, "void", {"charge": "none"}, f"wake-{number}"))
    world.submit(world.charge("last", BANK_B))
    world.book.close()
    world.book = world.open(statements=True)
    world.submit(world.charge("after the last statement", BANK_B))
    with world.book.read() as facts:
        return [*facts]


@pytest.mark.parametrize("seed", range(4))
def test_stretches_and_single_entries_make_one_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The same accounts, open charges and lineage, the same root at the newest statement and at the end of the log."""
    monkeypatch.setattr(state_statements, "EVERY", 9)
    with open_world(tmp_path) as world:
        entries = lived(world, Random(seed))  # noqa: S311 - what happens in the book
        state, tree = folded(entries)
        open_charges = {name: one for name, one in state.charges.items() if one.state is ChargeState.PENDING}
        engine = engine_of(world.url, writes=False)
        for stretch in (2, 3, 7, 1_024):
            monkeypatch.setattr(writer_state, "_FOLDED", stretch)
            found = WriterState(LOG)
            with engine.connect() as connection:
                found.catch_up(connection)
            parts = found.facts.in_memory_parts()
            assert parts["charges"] == open_charges
            assert {name: parts[name] for name in parts.keys() - {"charges", "keys"}} == {
                name: {**getattr(state, name)} for name in parts.keys() - {"charges", "keys"}
            }
            unbuilt = found.statements._unbuilt  # noqa: SLF001 - what the next tree is made of
            assert unbuilt is not None
            changes, (_, stated) = unbuilt
            stated_tree = changes.applied(SparseTree())
            assert stated_tree.root.hex() == stated.root
            journal = found.statements._journal  # noqa: SLF001 - moved on as the next statement does
            assert journal.advance(len(entries)).applied(stated_tree).root == tree.root
            found.close()
        engine.dispose()
