"""A book as long as a measurement asks for, every entry genuine: signed, priced, proven, and verified like any other.

Submitting a million charges takes an hour. Here the first charge is asked of the book itself, the others are made from
its entry: another id, another clean room, signed anew. They are applied by the book's own code, and all rows are
written in bulk. ``verify_book`` accepts the result, signatures and policy included.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, select

from ledger.book.state.state_statements import EVERY
from ledger.commands.apply import apply
from ledger.commands.entry import Entry
from ledger.commands.governance.state_statement import STATEMENT
from ledger.crypto import detached_jws
from ledger.domain.command import LEDGER_ACTOR, Command
from ledger.domain.memory_state import MemoryState
from ledger.log.checkpoint import sign
from ledger.state_tree.journal import StateJournal
from ledger.state_tree.sparse_tree import SparseTree
from ledger.store import tables
from ledger.store.database_state import DatabaseState, write_state
from ledger.store.engine import engine_of
from ledger.store.merkle_tables import Tree
from ledger.store.projection_table import append_rows
from ledger.store.tables import CHECKPOINT, ENTRY
from ledger.verifier import Checkpoint, state_entry_secret
from ledger.wire import canonical_json as c
from tests.factories import stored as world
from tests.factories.documents import contract, plan
from tests.factories.people import BANK_A, HOSPITAL, LOG_KEY, ORIGIN, CleanRoom
from tests.factories.stored import StoredWorld, copy, open_world

TINY: Final = plan(1, "1000")
"""A run of which millions fit."""
ENDLESS: Final = {**contract(BANK_A), "runs_max": 1_000_000, "version": 2}
FOLDER: Final = Path(os.environ.get("EPSILON_BENCH_BOOKS", Path(tempfile.gettempdir()) / "epsilon-bench-books"))
"""Where books once made are kept. One made by another version of these files is not taken."""
_MAKERS: Final = (Path(__file__), Path(tables.__file__), Path(world.__file__))
CHUNK: Final = 1_000


def grown(entries: int, kept: Path = FOLDER) -> Path:
    """A book of about so many entries, half of them charges and half what each was settled for."""
    made = c.digest(b"".join(one.read_bytes() for one in _MAKERS))[:12]
    path = kept / f"{made}-{entries}.sqlite"
    if not path.exists():
        kept.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=kept) as folder:
            with open_world(Path(folder)) as opened:
                _first(opened)
            grow(opened, _pairs, entries)
            copy(opened.path, Path(folder) / "whole")
            (Path(folder) / "whole").rename(path)
    return path


def endless(opened: StoredWorld) -> str:
    """Enter a contract for a million runs; its digest."""
    sent = opened.document("contract", ENDLESS, "endless", BANK_A, BANK_A, HOSPITAL)
    (found,) = opened.submit(sent)
    assert found.code.word == "permitted", found
    return c.digest(c.dump(ENDLESS))


def _first(opened: StoredWorld) -> None:
    sent = opened.charge("run", run=TINY, contract=endless(opened), deadline=opened.clock.now + 30 * 86_400_000)
    (found,) = opened.submit(sent)
    assert found.code.word == "pending", found


def grow(opened: StoredWorld, making: Callable[[StoredWorld, Entry], Iterator[Entry]], entries: int) -> None:
    """Lengthen a closed book to so many entries, those that ``making`` makes from its newest one."""
    engine = engine_of(opened.url, writes=True)
    with engine.begin() as connection:
        table = ENTRY
        old = connection.execute(select(table.c.data).order_by(table.c.position)).scalars().all()
        stated = _Stated(dict(DatabaseState(connection).documents))
        for data in old:
            stated.apply(Entry.parse(data), data)
        _append(connection, stated, making(opened, Entry.parse(old[-1])), entries)
        write_state(connection, stated.state)
    engine.dispose()


def _pairs(opened: StoredWorld, first: Entry) -> Iterator[Entry]:
    """What the book would have recorded for one run after the other, each settled for its one step."""
    bank, body = opened.signers[BANK_A], first.body
    number = 0
    while True:
        name = f"run-{number}"
        room = CleanRoom(name)
        request: Any = {**first.request, "clean_room": room.to_json()}
        charge = replace(first, id=name, body={**body, "request": request})
        yield replace(charge, signature=bank.sign(charge.command.to_bytes()))
        requested: c.Object = {"charge": name, "steps": 1}
        post = Entry(
            "post",
            f"post-{name}",
            first.time,
            BANK_A,
            room.signer.key_id,
            {"outcome": "posted", "request": requested},
            "",
        )
        yield replace(post, signature=room.signer.sign(post.command.to_bytes()))
        number += 1


class _Stated:
    """The state of the entries so far, and the book's own statements of it, as often as the writer makes them."""

    def __init__(self, documents: dict[str, bytes]) -> None:
        self._journal, self._tree = StateJournal(), SparseTree()
        parts: dict[str, Any] = {**self._journal.parts()}
        self.state = MemoryState(documents=documents, **parts)

    def apply(self, entry: Entry, data: bytes) -> None:
        """Apply the next entry."""
        apply(self.state, entry, self._journal.size)
        self._journal.record(entry.id, entry.kind, entry.time_after, state_entry_secret(data))

    def due(self, time: int) -> Entry | None:
        """The next entry, if it is a statement."""
        size = self._journal.size
        if size - self._journal.stated < EVERY:
            return None
        self._tree = self._journal.advance(size).applied(self._tree)
        request: c.Object = {"root": self._tree.root.hex(), "size": size}
        command = Command(
            STATEMENT.name, f"statement-{size}", LEDGER_ACTOR, detached_jws.public_key(LOG_KEY).thumbprint, request
        )
        body: c.Object = {"outcome": "permitted", "request": request}
        signature = detached_jws.sign(LOG_KEY, command.to_bytes())
        return Entry(command.kind, command.id, time, command.actor, command.key_id, body, signature)


def _append(connection: Connection, stated: _Stated, made: Iterator[Entry], entries: int) -> None:
    tree, time = Tree(connection), 0
    while tree.size < entries:
        rows: list[dict[str, object]] = []
        for index in range(tree.size, min(entries, tree.size + CHUNK)):
            entry = stated.due(time) or next(made)
            time = entry.time
            data = entry.to_bytes()
            stated.apply(entry, data)
            tree.append(data)
            rows.append({"position": index, "id": entry.id, "kind": entry.kind, "time": entry.time, "data": data})
        append_rows(connection, ENTRY, rows)
        tree.flush()
        note = sign(Checkpoint(ORIGIN, tree.size, tree.root()), LOG_KEY)
        append_rows(connection, CHECKPOINT, [{"tree_size": tree.size, "note": note}])
