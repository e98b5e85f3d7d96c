"""Apply an entry to the state: the one place where state changes, for the writer and for replay alike."""

from __future__ import annotations

from typing import Any

from ledger.accounts.account_sums import AccountSums
from ledger.commands.command_kind import Change, Recorded, RunEffect
from ledger.commands.entry import Entry
from ledger.commands.registry import KINDS
from ledger.domain.memory_state import MemoryState

Effect = RunEffect | Entry | None
"""The effect of an entry; None if it changes only the log."""


def apply(state: MemoryState, entry: Entry, index: int) -> None:
    """Apply the entry at ``index`` to the state."""
    sums = AccountSums(state)
    apply_effect(state, effect_of(entry), index, sums)
    sums.put()


def effect_of(entry: Entry) -> Effect:
    """The effect of an entry, read from the entry alone.

    Most effects are small, so another process may read the entries and send their effects.

    Raises:
        Malformed: if the entry has values that no entry of its kind has.
    """
    if entry.code.refused:
        return None
    kind = KINDS[entry.kind]
    if kind.effect is not None:
        return kind.effect(entry.recorded())
    return entry if kind.changes_state else None


def run_effect(kind: str, recorded: Recorded[Any]) -> RunEffect | None:
    """The same of an entry that is being made, of a kind that is a run's. Raises: Malformed."""
    found = KINDS[kind].effect
    return None if found is None or recorded.code.refused else found(recorded)


def apply_effect(state: MemoryState, effect: Effect, index: int, sums: AccountSums) -> None:
    """Apply the effect of the entry at ``index``; accounts change once the caller writes ``sums``.

    Raises:
        KeyError, AssertionError: if the effect contradicts the state.
    """
    if not isinstance(effect, Entry):
        if effect is not None:
            effect.apply(state, index, sums)
        return
    # Effects other than a run's may read accounts.
    sums.put()
    KINDS[effect.kind].change(Change(state, index, effect.recorded()))
