"""Apply an entry to the state: the one place where state changes, for the writer and for replay alike."""

from __future__ import annotations

from ledger.accounts.account_sums import AccountSums
from ledger.commands.command_kind import Change, RunEffect
from ledger.commands.entry import Entry
from ledger.commands.registry import KINDS
from ledger.domain.memory_state import MemoryState
from ledger.wire.records import Record

Effect = RunEffect | Entry | None
"""What applying an entry takes of it; None if it changes nothing but the log."""


def apply(state: MemoryState, entry: Entry, index: int) -> None:
    """Make the entry at ``index`` true."""
    sums = AccountSums(state)
    apply_effect(state, effect_of(entry), index, sums)
    sums.put()


def effect_of(entry: Entry, body: Record | None = None) -> Effect:
    """What applying an entry takes of it, read off the entry alone.

    Of nearly all entries that is little, so that another process may read them and hand this over.

    Args:
        body: the typed body of its command, where that was read before.

    Raises:
        Malformed: if the entry says what no entry of its kind says.
    """
    if entry.code.refused:
        return None
    kind = KINDS[entry.kind]
    if kind.effect is not None:
        return kind.effect(entry.recorded(body))
    return entry if kind.changes_state else None


def apply_effect(state: MemoryState, effect: Effect, index: int, sums: AccountSums) -> None:
    """Apply what the entry at ``index`` says; accounts change once the caller puts ``sums`` down.

    Raises:
        KeyError, AssertionError: where that cannot be.
    """
    if not isinstance(effect, Entry):
        if effect is not None:
            effect.apply(state, index, sums)
        return
    # What is no run may look at accounts.
    sums.put()
    KINDS[effect.kind].change(Change(state, index, effect.recorded()))
