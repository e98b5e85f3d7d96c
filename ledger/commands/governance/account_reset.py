"""An SRO's decree that resets an account: the entry records the loss that no longer counts against its caps."""

from __future__ import annotations

from typing import Annotated, Final

from ledger.commands.command_fields import RecordedLoss
from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.domain.command import REASON_MAX
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import GLOBAL
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.mechanisms.loss import Loss
from ledger.organisation_lineage.holder_names import holder_name
from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.field_types import pattern, text
from ledger.wire.records import Record

Holder = Annotated[
    str, pattern("global|lineage:(0|[1-9][0-9]{0,31})", "must be 'global' or 'lineage:' and the index of a node")
]
"""The account's holder: everyone, or one lineage."""


class Decree(Record, frozen=True):
    """An SRO resets one account against its caps; the loss itself stays on record and is never reduced."""

    partition: Annotated[str, text(1_000)]
    holder: Holder
    reason: Annotated[str, text(REASON_MAX)]


class Forgiven(Record, frozen=True):
    """The loss that no longer counts against the account's caps, as the entry records it."""

    forgiven: RecordedLoss


def decide(context: Context[Decree]) -> Decision:
    """Decide a decree."""
    body = context.body
    context.partition(body.partition)
    # No node has an index beyond, and no database could be asked for one.
    can_be = body.holder == GLOBAL or int(body.holder.partition(":")[2]) <= INTEGER_MAX
    account = context.facts.accounts.get((body.partition, body.holder)) if can_be else None
    if account is None or account.posted.empty:
        whose = holder_name(context.facts, body.holder) if can_be else body.holder
        detail = f"the account of {whose} on {body.partition} has nothing settled that could be reset"
        raise Rejected(Code.CONFLICT, detail, "body.holder")
    # An entry holds integers of 53 bits. What is beyond is at a coordinate that decides nothing, and is not forgiven.
    finite = tuple(min(at, INTEGER_MAX) for at in account.posted.finite)
    return context.permit(Forgiven(RecordedLoss(finite, account.posted.infinite)))


def apply(change: Change[Decree]) -> None:
    """Record the loss that no longer counts against the account's caps."""
    place, loss = (change.body.partition, change.body.holder), change.recorded(Forgiven).forgiven
    change.state.forgiven[place] = Loss(loss.finite, loss.infinite)


DECREE: Final = CommandKind(
    "decree", Decree, decide, (SRO,), "/v1/decrees", apply, recorded=Forgiven, changes_prices=True
)
