"""The book's own entry that states the root of the whole state at a size of the log (ledger.state_tree)."""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.accounts.account_sums import AccountSums
from ledger.commands.command_fields import Count
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.decision import Decision, Rejected
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import Code
from ledger.wire.field_types import Sha256
from ledger.wire.records import Record

DISTANCE_MAX: Final = 4_096
"""The most entries between the state that a statement describes and the statement."""


class StateStatement(Record, frozen=True):
    """The state after the first ``size`` entries has this root; replay checks it."""

    size: Count
    root: Sha256


class Stated(NamedTuple):
    """A statement's effect: it changes nothing."""

    size: int
    root: str

    def apply(self, _state: MemoryState, _index: int, _sums: AccountSums) -> None:
        """Nothing to change."""


def _decide(context: Context[StateStatement]) -> Decision:
    """Only the book makes a statement, and only of a recent state. No policy decides."""
    if context.command.actor != LEDGER_ACTOR:
        raise Rejected(Code.NOT_AUTHORISED, "a statement of state is the book's own entry", "actor")
    if not context.index - DISTANCE_MAX <= context.body.size <= context.index:
        rule = f"must be one of the last {DISTANCE_MAX} sizes before this entry"
        raise Rejected(Code.CONFLICT, f"body.size: {rule}", "body.size")
    return Decision(Code.PERMITTED)


def _statement_effect(entry: Recorded[StateStatement]) -> Stated:
    return Stated(entry.body.size, entry.body.root)


STATEMENT: Final = CommandKind("statement", StateStatement, _decide, effect=_statement_effect, binds_all=True)
