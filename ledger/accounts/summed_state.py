"""A state of which accounts are added up when they are read, and not at each entry of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ledger.accounts.account_sums import AccountSums
from ledger.domain.facts import Account
from ledger.domain.memory_state import MemoryState

Noted = tuple[str, Any, Any]
"""A part of the state, a key, and the record that was set there."""


class SummedState(MemoryState):
    """The state; its accounts have all that runs have added to them whenever they are read.

    Attributes:
        noted: what was set, for the statements of the state.
        account_sums: what runs have added to accounts, put down before an account is read.
        note_sums: gets the accounts that were set so, and the secret of the last entry that touched each.
    """

    def __init__(self, noted: list[Noted], **parts: Any) -> None:  # noqa: ANN401 - parts of a state
        """The state of an empty log, whose ``parts`` note in ``noted`` what is set."""
        super().__init__(**parts)
        self.noted = noted
        self.account_sums = AccountSums(self)
        self.note_sums: Callable[[list[Noted], Mapping[tuple[str, str], bytes]], None] = lambda _accounts, _last: None

    @property
    def accounts(self) -> dict[tuple[str, str], Account]:
        """The accounts, with all that runs have added to them."""
        self.put_down()
        return self._accounts

    @accounts.setter
    def accounts(self, accounts: dict[tuple[str, str], Account]) -> None:
        self._accounts = accounts

    def put_down(self) -> None:
        """Put down what the runs of entries before this one have added to accounts."""
        sums = self.account_sums
        if sums:
            last, first = sums.last(), len(self.noted)
            sums.put()
            self.note_sums(self.noted[first:], last)
            del self.noted[first:]
