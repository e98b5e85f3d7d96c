"""The trained model leaves the clean room, or does not: after what ran was posted."""

from __future__ import annotations

from typing import Final

from ledger.commands.command_kind import CommandKind
from ledger.commands.context import Context, require_posted
from ledger.domain.decision import Decision
from ledger.domain.roles import CCR
from ledger.wire.field_types import Name, Sha256
from ledger.wire.records import Record


class ReleaseModel(Record, frozen=True):
    """Let the trained model, known by its digest, leave the clean room; ``watermark`` is its record's digest."""

    charge: Name
    model: Sha256
    watermark: Sha256 | None = None


def decide(context: Context[ReleaseModel]) -> Decision:
    """Decide the release of a model."""
    charge = context.charge(context.body.charge)
    context.require_clean_room(charge)
    require_posted(charge, "a model leaves after its run was posted")
    return context.permit()


MODEL_RELEASE: Final = CommandKind("model_release", ReleaseModel, decide, (CCR,), "/v1/model-releases")
