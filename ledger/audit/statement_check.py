"""Statements of state, checked by replay: each root must be that of the state that the entries make at its size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledger.accounts.summed_state import SummedState
from ledger.audit.log_chunk import Stored
from ledger.audit.run_entry import SignedRun
from ledger.book.state.state_statements import StatedTree
from ledger.commands.apply import Effect
from ledger.commands.entry import Entry
from ledger.commands.governance.state_statement import STATEMENT, Stated, StateStatement
from ledger.state_tree.journal import StateJournal
from ledger.state_tree.sparse_tree import SparseTree
from ledger.state_tree.stated_sizes import stated_sizes
from ledger.verifier import state_entry_secret
from ledger.wire.malformed import Malformed


class StatementCheck:
    """The tree at the last statement, and the changes since; the parts of the state belong to the journal."""

    def __init__(self, statements: list[tuple[int, bytes]]) -> None:
        """Start at an empty log that will have these ``statements``; without one no change is recorded.

        Args:
            statements: the positions and bytes of what is stored as a statement.
        """
        self._noted = bool(statements)
        self._journal = StateJournal()
        self._journal.expect(stated_sizes(statements))
        self._tree = SparseTree()
        self.newest: StatedTree | None = None
        """The tree of the last statement so far, with its place; None before the first."""

    @property
    def parts(self) -> dict[str, Any]:
        """Empty parts of a state, which note their changes here."""
        return {**self._journal.parts()} if self._noted else {}

    def state(self, documents: Mapping[str, bytes]) -> SummedState:
        """The state of an empty log, of such parts."""
        state = SummedState(self._journal.changes, documents=documents, **self.parts)
        state.note_sums = self._journal.put_down
        return state

    @property
    def sums_up(self) -> bool:
        """Whether accounts may be added up later than after the next entry: no statement describes the state there."""
        return not self._noted or self._journal.sums_up

    def secret(self, stored: Stored) -> bytes:
        """What salts the leaves that an entry touches; empty where no statement is checked."""
        return state_entry_secret(stored[-1]) if self._noted else b""

    def check(self, applied: Effect | SignedRun, stored: Stored, time: int, secret: bytes = b"") -> None:
        """Record an applied entry, and check it if it is a statement.

        Args:
            applied: the entry, or its effect.
            stored: as it is stored.
            time: the least time (ms) after it.
            secret: its own, see :meth:`secret`, where that is known.

        Raises:
            Malformed: if it states a root that is not that of the entries, or describes a size that no statement may.
        """
        index, name, kind, _, data = stored
        journal = self._journal
        if self._noted:
            journal.record(name, kind, time, secret or state_entry_secret(data))
        if kind != STATEMENT.name:
            return
        stated = _read_statement(applied)
        if not journal.stated < stated.size < journal.size:
            raise Malformed("body.request.size", "must lie after the size of the statement before, and before this one")
        self._tree = journal.advance(stated.size).applied(self._tree)
        if self._tree.root.hex() != stated.root:
            raise Malformed("body.request.root", f"is not that of the state that the first {stated.size} entries make")
        self.newest = StatedTree(index, stated.size, self._tree)


def _read_statement(applied: Effect | SignedRun) -> Stated:
    if isinstance(applied, Entry) and isinstance(body := applied.command_body, StateStatement):
        return Stated(body.size, body.root)
    if isinstance(applied, Stated):
        return applied
    raise Malformed("body.outcome", "must be permitted")
