"""What witnesses signed is part of the book: verification holds every line against its key and checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger.audit.replay import VerificationFailed, verify_book
from ledger.store.cosignatures import (
    best_size,
    cosignature_line,
    cosigned_checkpoint,
    cosigned_receipt,
    newest_checkpoints,
    newest_size,
    store_cosignature,
)
from ledger.store.engine import engine_of
from ledger.store.projection_table import append_rows
from ledger.store.snapshot import Log
from ledger.store.tables import COSIGNATURE
from ledger.verifier import SIGNATURES_MAX, Note, verify_receipt
from tests.factories.documents import SMALL
from tests.factories.people import LOG, ORIGIN
from tests.factories.stored import StoredWorld, no_step, open_world
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


def test_rows_that_are_no_cosignatures_change_nothing_that_is_read(tmp_path: Path) -> None:
    """The writer's role may append any: of another size, ahead of the log, of a key that is none, in any number."""
    with open_world(tmp_path) as world:
        world.submit(world.charge("run-1", run=SMALL))
        engine = engine_of(world.url, writes=True)
        with engine.begin() as connection:
            note, vkey = cosigned_checkpoint(connection, 11), WITNESS.key.vkey
            line = WITNESS.line(note)
            store_cosignature(connection, 11, WITNESS.key, line)
            namesake = Cosigner(ORIGIN, 9)
            rows = [
                (9, "x", "not a line"),
                (10, vkey, line),
                (10, "a", "garbage\n"),
                (11, "x", "not a line"),
                (11, "y", "— y AAAA\n"),
                (11, Cosigner("long.example", 8).key.vkey, line * 1_000),
                (11, Cosigner("other.example", 8).key.vkey, line),
                (11, namesake.key.vkey, namesake.line(note)),
                *((ahead, vkey, line) for ahead in range(12, 300)),
            ]
            append_rows(
                connection, COSIGNATURE, [{"tree_size": at, "vkey": key, "line": text} for at, key, text in rows]
            )
            log = Log(connection)
            assert cosigned_checkpoint(connection, 11) == note + line
            assert cosignature_line(connection, 11, WITNESS.key) == line
            assert cosignature_line(connection, 10, WITNESS.key) is None
            assert (newest_size(connection, WITNESS.key), best_size(connection, 3, 11)) == (11, 11)
            assert verify_receipt(cosigned_receipt(log, 3), log.entry(3), LOG)[1].size == 11
            assert [(one.size, one.lines) for one in newest_checkpoints(connection, 12, 2)] == [(11, (line,)), (10, ())]
            cosigners = [Cosigner(f"w{seed}.example", seed) for seed in range(10, 110)]
            many = [{"tree_size": 11, "vkey": one.key.vkey, "line": one.line(note)} for one in cosigners]
            append_rows(connection, COSIGNATURE, many)
            assert len(Note.parse(cosigned_checkpoint(connection, 11)).lines) == SIGNATURES_MAX - 1
        engine.dispose()


def _other(note: str) -> str:
    """The same note over one entry more."""
    origin, size, rest = note.split("\n", 2)
    return f"{origin}\n{int(size) + 1}\n{rest}"
