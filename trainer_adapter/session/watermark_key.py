"""The watermark of a run's model: its key comes from the service, and a release names the commitment to it.

Before a run gets its data, the weights that it starts from are searched for the marks of other runs: a model that
descends from a charged one, and does not say so, would hide what that one revealed.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from http import HTTPStatus
from typing import Final, NamedTuple

from client.http.problems import Refused
from client.service.service import Service
from client.watermarks.sealed_key import open_sealed_key
from ledger.wire.malformed import Malformed
from trainer_adapter.session.clean_room_identity import CleanRoomIdentity

METADATA: Final = "watermark"
"""Where the metadata of a model's file name the commitment."""
_SIZE_BYTES: Final = 8


class Watermark(NamedTuple):
    """The key of a run's mark, and the commitment to it."""

    key: bytes
    commitment: str


def read_watermark(service: Service, identity: CleanRoomIdentity, charge: str) -> Watermark:
    """The mark of a charge's model, for its clean room. Raises: Refused, Unreachable, Malformed."""
    answer = service.watermark_key(charge)
    key = open_sealed_key(answer.get("sealed"), identity.sealing, charge, answer.get("commitment"))
    return Watermark(key, str(answer["commitment"]))


def undeclared_bases(service: Service, fingerprint: bytes, declared: Collection[str]) -> list[str]:
    """The runs whose marks are in the weights that a run starts from, and that its charge does not name.

    None of a service that keeps no marks. Raises: Refused, Unreachable.
    """
    try:
        listed = service.search_watermarks(fingerprint).get("found")
    except Refused as refused:
        if refused.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            raise
        return []
    marks = listed if isinstance(listed, list) else []
    named = [str(mark["charge"]) for mark in marks if isinstance(mark, dict)]
    return [charge for charge in named if charge not in declared]


def commitment_in(data: bytes) -> str | None:
    """The commitment that a model's file (safetensors) names; None of one that names none, and of any other bytes."""
    size = int.from_bytes(data[:_SIZE_BYTES], "little")
    try:
        named = json.loads(data[_SIZE_BYTES : _SIZE_BYTES + size])["__metadata__"][METADATA]
    except (ValueError, KeyError, TypeError):
        return None
    return named if isinstance(named, str) else None


def refuse_undeclared(named: list[str]) -> None:
    """Raises: Malformed, where a run starts from the models of others without saying so."""
    if named:
        declared = ", ".join(f'"{charge}"' for charge in named)
        raise Malformed("base", f"is missing: the model carries the watermark of {declared}: write base = [{declared}]")
