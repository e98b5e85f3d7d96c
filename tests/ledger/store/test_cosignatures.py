"""What witnesses signed is part of the book: verification holds every line against its key and checkpoint."""

from __future__ import annotations

import pytest

from ledger.audit.replay import VerificationFailed, verify_book
from ledger.store.cosignatures import store_cosignature
from ledger.store.engine import engine_of
from ledger.store.projection_table import append_rows
from ledger.store.tables import COSIGNATURE
from tests.factories.people import LOG
from tests.factories.stored import StoredWorld, no_step
from tests.ledger.log.memory_log import Cosigner

WITNESS = Cosigner("witness.example", 7)


@pytest.mark.parametrize("fault", ["", "other size", "other key", "no checkpoint", "two lines"])
def test_a_line_is_checked_by_its_key_over_its_checkpoint(world: StoredWorld, fault: str) -> None:
    """A good one is passed over; whatever else stands there is named."""
    with world.book.read() as facts:
        size, note = facts.size, facts.checkpoint
    world.book.close()
    line = WITNESS.line(note)
    row = {
        "other size": {
            "tree_size": size,
            "vkey": WITNESS.key.vkey,
            "line": Cosigner("witness.example", 7).line(_other(note)),
        },
        "other key": {"tree_size": size, "vkey": Cosigner("witness.example", 8).key.vkey, "line": line},
        "no checkpoint": {"tree_size": size + 1, "vkey": WITNESS.key.vkey, "line": line},
        "two lines": {"tree_size": size, "vkey": WITNESS.key.vkey, "line": f"{line}{line}"},
    }.get(fault)
    engine = engine_of(world.url, writes=True)
    with engine.begin() as connection:
        if row is None:
            store_cosignature(connection, size, WITNESS.key, line)
        else:
            append_rows(connection, COSIGNATURE, [row])
    engine.dispose()
    if row is None:
        assert verify_book(world.url, LOG, no_step).entries == size
    else:
        with pytest.raises(VerificationFailed, match="cosignature"):
            verify_book(world.url, LOG, no_step)


def _other(note: str) -> str:
    """The same note over one entry more."""
    origin, size, rest = note.split("\n", 2)
    return f"{origin}\n{int(size) + 1}\n{rest}"
