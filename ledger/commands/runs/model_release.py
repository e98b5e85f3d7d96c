"""The release of a trained model from the clean room, after the run was posted."""

from __future__ import annotations

from typing import Final

from ledger.commands.command_kind import CommandKind
from ledger.commands.context import Context, require_model, require_post, require_posted
from ledger.domain.decision import Decision
from ledger.domain.roles import CCR
from ledger.wire.field_types import Name, Sha256
from ledger.wire.records import Record


class ReleaseModel(Record, frozen=True):
    """Let the trained model, known by its digest, leave the clean room.

    Attributes:
        watermark: the digest of its record. post: the id of the post that names the model; a run that leased its steps
            names it.
    """

    charge: Name
    model: Sha256
    watermark: Sha256 | None = None
    post: Name | None = None


def decide(context: Context[ReleaseModel]) -> Decision:
    """Decide the release of a model."""
    charge = context.charge(context.body.charge)
    context.require_clean_room(charge)
    require_posted(charge, "a model leaves after its run was posted")
    require_model(charge, context.body.model)
    if context.body.post is not None or charge.leases is not None:
        require_post(charge, context.body.post)
    return context.permit()


MODEL_RELEASE: Final = CommandKind("model_release", ReleaseModel, decide, (CCR,), "/v1/model-releases")
