"""The clean room notifies the providers which model is to leave it, before its release is requested."""

from __future__ import annotations

from typing import Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context, require_posted
from ledger.domain.decision import Decision, Rejected
from ledger.domain.outcomes import Code
from ledger.domain.roles import CCR
from ledger.wire.field_types import Name, Sha256
from ledger.wire.records import Record

NOTICES_MAX: Final = 16
"""Models that one charge announces."""


class Announce(Record, frozen=True):
    """The clean room notifies the providers which model, known by its digest, is to leave."""

    charge: Name
    model: Sha256


def decide(context: Context[Announce]) -> Decision:
    """Decide a release notice."""
    charge, model = context.charge(context.body.charge), context.body.model
    require_posted(charge)
    context.require_clean_room(charge)
    if model in dict(charge.notices):
        raise Rejected(Code.CONFLICT, f"the model {model} is announced already", "body.model")
    if len(charge.notices) >= NOTICES_MAX:
        raise Rejected(Code.CONFLICT, f"charge {charge.id} has announced {NOTICES_MAX} models", "body.model")
    return context.permit()


def apply(change: Change[Announce]) -> None:
    """Note which model was announced, and when."""
    charge = change.state.charges[change.body.charge]
    notices = (*charge.notices, (change.body.model, change.entry.time))
    change.state.charges[charge.id] = charge._replace(notices=notices)


RELEASE_NOTICE: Final = CommandKind("release_notice", Announce, decide, (CCR,), "/v1/release-notices", apply)
