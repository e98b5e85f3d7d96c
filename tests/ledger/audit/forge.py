"""A tamperer with the file in hand, and a lying operator: what verification must find."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import migrations
from ledger.audit.replay import VerificationFailed, verify_book
from ledger.commands.apply import apply
from ledger.commands.entry import Entry
from ledger.domain.memory_state import MemoryState
from ledger.log.checkpoint import sign
from ledger.store.append_only_triggers import sqlite_triggers
from ledger.store.database_state import write_state
from ledger.store.engine import engine_of
from ledger.store.merkle_tables import Tree
from ledger.store.projection_table import append_rows
from ledger.store.tables import CHECKPOINT, DOCUMENT, ENTRY
from ledger.verifier import Checkpoint
from tests.factories.people import LOG, ORIGIN
from tests.factories.stored import copy, no_step


def entries_of(path: Path) -> list[Entry]:
    """Every entry of a book."""
    with closing(sqlite3.connect(path)) as connection:
        return [Entry.parse(data) for (data,) in connection.execute("SELECT data FROM entry ORDER BY position")]


def tampered(source: Path, target: Path, script: str, *values: object) -> Path:
    """A copy in which a statement, or several without values, was run with the triggers dropped."""
    copy(source, target)
    with closing(sqlite3.connect(target)) as connection:
        connection.executescript("".join(f"DROP TRIGGER {name};" for name in sqlite_triggers()))
        if values:
            assert connection.execute(script, values).rowcount == 1
            connection.commit()
        else:
            connection.executescript(script)
    return target


def forged(source: Path, target: Path, entries: Sequence[Entry | bytes], key: Ed25519PrivateKey) -> Path:
    """A book made anew of other entries: triggers, accounts, tree and checkpoint all fit them."""
    migrations.upgrade(f"sqlite:///{target}")
    with closing(sqlite3.connect(source)) as old:
        documents = [{"digest": name, "data": data} for name, data in old.execute("SELECT digest, data FROM document")]
    engine = engine_of(f"sqlite:///{target}", writes=True)
    with engine.begin() as connection:
        append_rows(connection, DOCUMENT, documents)
        state, tree, stored = MemoryState(), Tree(connection), []
        for index, one in enumerate(entries):
            data = one if isinstance(one, bytes) else one.to_bytes()
            entry = Entry.parse(data)
            apply(state, entry, index)
            tree.append(data)
            stored.append({"position": index, "id": entry.id, "kind": entry.kind, "time": entry.time, "data": data})
        write_state(connection, state)
        append_rows(connection, ENTRY, stored)
        tree.flush()
        note = sign(Checkpoint(ORIGIN, tree.size, tree.root()), key)
        append_rows(connection, CHECKPOINT, [{"tree_size": tree.size, "note": note}])
    engine.dispose()
    return target


def broken(path: Path) -> VerificationFailed:
    """The finding of a verification that must fail."""
    with pytest.raises(VerificationFailed) as fault:
        verify_book(f"sqlite:///{path}", LOG, no_step)
    assert "\n" not in str(fault.value)
    return fault.value
