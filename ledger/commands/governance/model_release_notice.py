"""The clean room notifies the providers which model is to leave it, before its release is requested."""

from __future__ import annotations

from typing import Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context, require_model, require_posted
from ledger.domain.charge_record import Charge
from ledger.domain.decision import Decision, Rejected
from ledger.domain.outcomes import Code
from ledger.domain.roles import CCR
from ledger.wire.field_types import Name, Sha256
from ledger.wire.records import Record

NOTICES_MAX: Final = 16
"""How many models one charge may announce."""


class Announce(Record, frozen=True):
    """The clean room notifies the providers which model, known by its digest, is to leave."""

    charge: Name
    model: Sha256


def decide(context: Context[Announce]) -> Decision:
    """Decide a release notice."""
    charge, model = context.charge(context.body.charge), context.body.model
    require_posted(charge)
    context.require_clean_room(charge)
    require_model(charge, model)
    # A notice with a later time than now was given before the log's time went back.
    if any(announced == model and since <= context.now for announced, since in charge.notices):
        raise Rejected(Code.CONFLICT, f"the model {model} is announced already", "body.model")
    if len(charge.notices) >= NOTICES_MAX:
        raise Rejected(Code.CONFLICT, f"charge {charge.id} has announced {NOTICES_MAX} models", "body.model")
    return context.permit()


def apply(change: Change[Announce]) -> None:
    """Record which model was announced, and when."""
    change.state.change_charge(change.body.charge, lambda charge: announced(charge, change.body, change.entry.time))


def announced(charge: Charge, body: Announce, time: int) -> Charge:
    """The charge with a notice of this time (ms)."""
    return charge._replace(notices=(*charge.notices, (body.model, time)))


RELEASE_NOTICE: Final = CommandKind("release_notice", Announce, decide, (CCR,), "/v1/release-notices", apply)
