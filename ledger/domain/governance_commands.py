"""The bodies of commands that govern what was entered: revocations, decrees, notices and openings of models."""

from __future__ import annotations

from typing import Annotated, Final

from ledger.crypto.public_keys import CleanRoomKeys
from ledger.wire.field_types import KeyBytes, Name, Sha256, pattern, text
from ledger.wire.records import Record

REASON_MAX: Final = 2_000
Holder = Annotated[
    str, pattern("global|lineage:(0|[1-9][0-9]{0,31})", "must be 'global' or 'lineage:' and the index of a node")
]
"""Whose account: everyone's, or one lineage's."""


class Revoke(Record, frozen=True):
    """A TDP ends a contract, known by its document's digest: nothing new is admitted or released under it."""

    contract: Sha256


class Decree(Record, frozen=True):
    """An SRO lets one account begin anew against its cap; what was lost stays on record and counts for life."""

    partition: Annotated[str, text(1_000)]
    holder: Holder
    reason: Annotated[str, text(REASON_MAX)]


class Announce(Record, frozen=True):
    """The clean room notifies the providers which model, known by its digest, is to leave."""

    charge: Name
    model: Sha256


class OpenModel(Record, frozen=True):
    """A sealed model opened in an attested clean room, known by its two keys; ``nonce`` answers a challenge."""

    charge: Name
    model: Sha256
    clean_room: CleanRoomKeys
    evidence: Sha256
    nonce: KeyBytes


GoverningBody = Revoke | Decree | Announce | OpenModel
BODIES: Final[dict[str, type[GoverningBody]]] = {
    "revocation": Revoke,
    "decree": Decree,
    "release_notice": Announce,
    "model_opening": OpenModel,
}
"""By kind of command."""
