"""A partition is retired: it accepts no new charge."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.domain.decision import Decision, Rejected
from ledger.domain.outcomes import Code
from ledger.domain.roles import TDP
from ledger.wire.field_types import Ref
from ledger.wire.records import Record


class Retire(Record, frozen=True):
    """The partition accepts no new charge; pending ones settle."""

    partition: Ref


def decide(context: Context[Retire]) -> Decision:
    """Decide a retirement."""
    if context.partition(context.body.partition).retired:
        raise Rejected(Code.CONFLICT, f"{context.body.partition} is retired already", "body.partition")
    return context.permit()


def apply(change: Change[Retire]) -> None:
    """Close the partition."""
    ref = change.body.partition
    change.state.partitions[ref] = replace(change.state.partitions[ref], retired=True)


RETIREMENT: Final = CommandKind("retirement", Retire, decide, (TDP,), "/v1/retirements", apply)
