"""A sealed model is opened in a clean room of its own: from this entry on its key counts as released."""

from __future__ import annotations

from typing import Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context, require_posted
from ledger.crypto.public_keys import CleanRoomKeys
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import SigningKey
from ledger.domain.organisation_graph import knows
from ledger.domain.outcomes import Code
from ledger.domain.roles import TDC
from ledger.wire.field_types import KeyBytes, Name, Sha256
from ledger.wire.records import Record


class OpenModel(Record, frozen=True):
    """A sealed model opened in an attested clean room, known by its two keys; ``nonce`` answers a challenge."""

    charge: Name
    model: Sha256
    clean_room: CleanRoomKeys
    evidence: Sha256
    nonce: KeyBytes


def decide(context: Context[OpenModel]) -> Decision:
    """Decide the opening of a model."""
    body, consumer = context.body, context.require_role()
    charge = context.charge(body.charge)
    require_posted(charge)
    if not knows(context.facts.nodes, consumer.node, charge.author, charge.index):
        raise Rejected(Code.NOT_AUTHORISED, f"{consumer.did} does not know charge {charge.id}", "actor")
    context.require_new_clean_room(body.clean_room, "opening")
    context.require_evidence(body.evidence)
    return context.permit()


def apply(change: Change[OpenModel]) -> None:
    """Bind the clean room's signing key to the charge."""
    key = key_of_opening(change.body, change.entry.actor, change.index)
    change.state.keys[key.key_id] = key


def key_of_opening(body: OpenModel, actor: str, index: int) -> SigningKey:
    """The key that the entry at ``index`` binds to its charge."""
    signing = body.clean_room.signing
    return SigningKey(signing.thumbprint, actor, signing.x, body.charge, index)


MODEL_OPENING: Final = CommandKind("model_opening", OpenModel, decide, (TDC,), "/v1/model-openings", apply)
