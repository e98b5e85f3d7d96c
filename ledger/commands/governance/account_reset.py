"""An SRO's order that an account begins anew: the entry says from what."""

from __future__ import annotations

from typing import Annotated, Final

from ledger.commands.command_fields import RecordedLoss
from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.domain.command import REASON_MAX
from ledger.domain.decision import Decision, Rejected
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.mechanisms.loss import Loss
from ledger.organisation_lineage.holder_names import holder_name
from ledger.wire.field_types import pattern, text
from ledger.wire.records import Record

Holder = Annotated[
    str, pattern("global|lineage:(0|[1-9][0-9]{0,31})", "must be 'global' or 'lineage:' and the index of a node")
]
"""Whose account: everyone's, or one lineage's."""


class Decree(Record, frozen=True):
    """An SRO lets one account begin anew against its cap; what was lost stays on record and counts for life."""

    partition: Annotated[str, text(1_000)]
    holder: Holder
    reason: Annotated[str, text(REASON_MAX)]


class Forgiven(Record, frozen=True):
    """What the account no longer counts against its caps, as the entry records it."""

    forgiven: RecordedLoss


def decide(context: Context[Decree]) -> Decision:
    """Decide a decree."""
    body = context.body
    context.partition(body.partition)
    account = context.facts.accounts.get((body.partition, body.holder))
    if account is None or account.posted.empty:
        whose = holder_name(context.facts, body.holder)
        detail = f"the account of {whose} on {body.partition} has nothing settled that could be reset"
        raise Rejected(Code.CONFLICT, detail, "body.holder")
    return context.permit(Forgiven(RecordedLoss(*account.posted)))


def apply(change: Change[Decree]) -> None:
    """Note what the account no longer counts against its caps."""
    place, loss = (change.body.partition, change.body.holder), change.recorded(Forgiven).forgiven
    change.state.forgiven[place] = Loss(loss.finite, loss.infinite)


DECREE: Final = CommandKind(
    "decree", Decree, decide, (SRO,), "/v1/decrees", apply, recorded=Forgiven, changes_prices=True
)
