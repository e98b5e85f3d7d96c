"""Requests that carry commands: their schemas come of the declarations of the commands' bodies."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from api.http.field_types import Schema, schema_of
from client.http.endpoints import BATCH_MAX
from ledger.commands.registry import KINDS
from ledger.crypto.organisation_keys import SignerKey
from ledger.domain.command import Command
from ledger.wire.records import Record
from policy.planning.what_if import PlannedCharge

Signing = Annotated[
    SignerKey, Meta(title="SigningKey", description="Ed25519, P-256 (ES256), or RSA of at least 2048 bits (RS256)")
]
_Ignored = Annotated[Any, Meta(description="ignored")]


class PlannedRun(PlannedCharge, frozen=True):
    """The body of a charge, without what a plan does not need."""

    clean_room: _Ignored = None
    deadline: _Ignored = None
    policy: Annotated[
        str, Meta(description="a policy, JSON or YAML: decide as if it had always been the only one of its domain")
    ] = ""


def titled(kind: str, what: str) -> str:
    """The name of a schema about a kind of command."""
    return "".join(word.capitalize() for word in kind.split("_")) + what


def command_schema(kind: str) -> Schema:
    """A command of one kind."""
    command = schema_of(Command)
    declared: type[Record] = KINDS[kind].body
    body = {**schema_of(declared), "title": titled(kind, "Body")}
    return {
        **command,
        "title": titled(kind, "Command"),
        "description": "canonical JSON (RFC 8785): the signature is over exactly these bytes",
        "properties": {**command["properties"], "body": body, "kind": {"const": kind}},
    }


_SIGNATURE: Final = {"type": "string", "minLength": 1, "maxLength": 4_096, "description": "a detached JWS"}


def batch_request_schema() -> Schema:
    """Signed charges, each with a signature of its own."""
    fields = {"command": command_schema("charge"), "signature": _SIGNATURE}
    charge = {"type": "object", "additionalProperties": False, "required": [*fields], "properties": fields}
    charges = {"charges": {"type": "array", "minItems": 1, "maxItems": BATCH_MAX, "items": charge}}
    return {"type": "object", "additionalProperties": False, "required": ["charges"], "properties": charges}
