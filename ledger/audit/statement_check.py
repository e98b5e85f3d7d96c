"""Statements of state, checked by replay: each root must be that of the state that the entries make at its size."""

from __future__ import annotations

from ledger.commands.apply import Effect
from ledger.commands.entry import Entry
from ledger.commands.governance.state_statement import STATEMENT, Stated, StateStatement
from ledger.state_tree.journal import StateJournal
from ledger.state_tree.sparse_tree import SparseTree
from ledger.wire.malformed import Malformed


class StatementCheck:
    """The tree of what was stated so far, and the changes since; the state's parts are the journal's."""

    def __init__(self) -> None:
        """Of an empty log."""
        self.journal = StateJournal()
        self._tree = SparseTree()

    def check(self, applied: Effect, mark: tuple[str, str, int, bytes]) -> None:
        """Take note of an entry that was applied, and check it if it is a statement.

        Args:
            applied: the entry, or what applying it took.
            mark: its id, kind, time and secret.

        Raises:
            Malformed: if it states a root that is not that of the entries, or describes a size that no statement may.
        """
        self.journal.record(*mark)
        if mark[1] != STATEMENT.name:
            return
        stated = _stated(applied)
        if not self.journal.stated < stated.size < self.journal.size:
            raise Malformed("body.request.size", "must lie after the size of the statement before, and before this one")
        self._tree = self.journal.advance(stated.size).applied(self._tree)
        if self._tree.root.hex() != stated.root:
            raise Malformed("body.request.root", f"is not that of the state that the first {stated.size} entries make")


def _stated(applied: Effect) -> Stated:
    if isinstance(applied, Entry) and isinstance(body := applied.command_body, StateStatement):
        return Stated(body.size, body.root)
    if isinstance(applied, Stated):
        return applied
    raise Malformed("body.outcome", "must be permitted")
