"""The bodies of commands, for the OpenAPI document: ε, δ and noise are exact strings, names and digests have patterns.

A command's body is read by :mod:`ledger.commands` and by nothing here: these say beforehand what it will take.
"""

from __future__ import annotations

from typing import Any, Final

from ledger.commands import ROLES
from ledger.lineage_commands import BODIES_MAX

Schema = dict[str, Any]

_EXACT: Final = r"^((0|[1-9][0-9]{0,17})(\.[0-9]{0,17}[1-9])?|[1-9][0-9]{0,17}/[1-9][0-9]{0,17})$"
"""As :func:`ledger.units.parse_number` reads it."""
_DID: Final = r"^did:[a-z0-9]{1,32}:[A-Za-z0-9._%-]{1,200}(:[A-Za-z0-9._%-]{1,200}){0,8}$"
_NAME: Final = r"^[A-Za-z0-9][A-Za-z0-9._~-]{0,127}$"
_BYTES_32: Final = r"^[A-Za-z0-9_-]{42}[AEIMQUYcgkosw048]$"


def _text(pattern: str, example: str, description: str = "") -> Schema:
    told = {"description": description} if description else {}
    return {"type": "string", "pattern": pattern, **told, "example": example}


def _object(required: Schema, optional: Schema | None = None) -> Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(required),
        "properties": {**required, **(optional or {})},
    }


def _list(items: Schema, most: int, least: int = 1) -> Schema:
    return {"type": "array", "minItems": least, "maxItems": most, "uniqueItems": True, "items": items}


def _kept(name: str, schema: Schema) -> Schema:
    return {"kind": {"const": name}, **schema, "v": {"const": 1}}


NUMBER: Final = _text(_EXACT, "2.25", "a decimal without trailing zeros, or a ratio; never a float")
DIGEST: Final = _text("^[0-9a-f]{64}$", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08")
DID: Final = _text(_DID, "did:web:bank-a.example")
NAME: Final = _text(_NAME, "run-1")
REF: Final = _text(
    f"{_DID[:-1]}/{_NAME[1:-1]}/{_NAME[1:]}", "did:web:hospital.example/digits/2026-q4", "provider/dataset/partition"
)
BYTES_32: Final = _text(_BYTES_32, "8kPTrH0rJ8oDx0hB1xQ0wJ2c4rJb1cYv3m1t4k5s6u8", "32 bytes in base64url")
_INTEGER_MAX: Final = 2**53 - 1
_COUNT: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": _INTEGER_MAX, "example": 100}
_TIME: Final[Schema] = {
    "type": "integer",
    "minimum": 0,
    "maximum": _INTEGER_MAX,
    "description": "Unix milliseconds",
    "example": 1_790_000_000_000,
}
_WORDS: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 200, "example": "A bank"}
_JWS: Final[Schema] = {"type": "string", "maxLength": 2048, "example": "eyJhbGciOiJFZDI1NTE5In0..c2lnbmF0dXJl"}


def _key(curve: str) -> Schema:
    return _object({"crv": {"const": curve}, "kty": {"const": "OKP"}, "x": BYTES_32})


_COORDINATE: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9_-]{43}$"}
_MODULUS: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9_-]{342,683}$"}
_SIGNING: Final = {
    "description": "of Ed25519, P-256 (ES256) or RSA from 2048 bits on (RS256)",
    "oneOf": [
        _key("Ed25519"),
        _object({"crv": {"const": "P-256"}, "kty": {"const": "EC"}, "x": _COORDINATE, "y": _COORDINATE}),
        _object({"e": {"const": "AQAB"}, "kty": {"const": "RSA"}, "n": _MODULUS}),
    ],
}
_ROOM: Final = _object({"sealing": _key("X25519"), "signing": _key("Ed25519")})
_DP_SGD: Final = _object(
    _kept(
        "dp_sgd",
        {
            "batch_size_expected": _COUNT,
            "clipping_norm": NUMBER,
            "noise_multiplier": NUMBER,
            "sampler": _object({"kind": {"const": "poisson"}, "probability": {**NUMBER, "example": "1/186"}}),
            "steps": _COUNT,
        },
    ),
    {"unit": {"const": "user"}},
)
PLAN: Final[Schema] = {"oneOf": [_DP_SGD, _object(_kept("mechanism", {"mechanism": {"type": "object"}}))]}
_RUN: Final = {"contract": DIGEST, "partitions": _list(REF, 16), "plan": PLAN}
_MORE: Final = {"base": _list(NAME, 16), "recipients": _list(DID, 16)}
_CHARGE: Final = {"charge": NAME}
_MODEL: Final = {"charge": NAME, "model": DIGEST}
_GIVER: Final = {"giver": DID}
_TWO: Final = {**_list(DID, BODIES_MAX, 2), "example": ["did:web:bank-a.example", "did:web:bank-b.example"]}
_DOCUMENT: Final = _object({"document": DIGEST, "signatures": _list(DIGEST, 32)})

BODIES: Final[dict[str, Schema]] = {
    "acquisition": _object({"acquired": _list(DID, BODIES_MAX), "organisation": DID}),
    "charge": _object(
        {**_RUN, "clean_room": _ROOM, "deadline": _TIME}, {**_MORE, "pipeline": DIGEST, "unit_records_max": _COUNT}
    ),
    "coalition": _object({"epsilon": NUMBER, "members": _TWO}),
    "collusion": _object({"effective": _TIME, "organisations": _TWO}),
    "contract": _DOCUMENT,
    "dataset": _DOCUMENT,
    "decree": _object(
        {"holder": _text("^(global|lineage:(0|[1-9][0-9]{0,15}))$", "global"), "partition": REF, "reason": _WORDS}
    ),
    "key_release": _object({"charge": NAME, "evidence": DIGEST, "nonce": BYTES_32}),
    "merger": _object({"organisation": DID, "parents": _list(DID, BODIES_MAX)}, {"proposed": {"type": "boolean"}}),
    "model_opening": _object({**_MODEL, "clean_room": _ROOM, "evidence": DIGEST, "nonce": BYTES_32}),
    "model_release": _object(_MODEL, {"watermark": DIGEST}),
    "organisation": _object(
        {
            "key": _SIGNING,
            "name": _WORDS,
            "organisation": DID,
            "possession": _JWS,
            "roles": _list({"enum": [*ROLES]}, len(ROLES)),
        }
    ),
    "partition": _object(
        {
            "data_key": NAME,
            "dataset": NAME,
            "delta": {**NUMBER, "example": "0.00001"},
            "epsilon": NUMBER,
            "partition": NAME,
            "provider": DID,
            "records": _COUNT,
            "relation": {"enum": ["ADD_OR_REMOVE_ONE", "REPLACE_ONE", "REPLACE_SPECIAL"]},
            "rule": {"enum": ["renyi", "reference", "gaussian"]},
            "unit": {"enum": ["record", "user"]},
        },
        {
            "commitments": {"type": "array", "items": DIGEST},
            "load": PLAN,
            "reason": _WORDS,
            "slack": NUMBER,
            "unit_records_max": _COUNT,
        },
    ),
    "policy": _DOCUMENT,
    "post": _object({"charge": NAME, "steps": {**_COUNT, "minimum": 0}}),
    "publication": _object(_CHARGE, _GIVER),
    "recommendation": _DOCUMENT,
    "release_notice": _object(_MODEL),
    "retirement": _object({"partition": REF}),
    "revocation": _object({"contract": DIGEST}),
    "split": _object({"child": {**DID, "example": "did:web:bank-c.example"}, "organisation": DID}),
    "transfer": _object({"charge": NAME, "recipient": DID}, _GIVER),
    "void": _object(_CHARGE),
}
"""By kind of command."""
PLANNED: Final = _object(_RUN, {**_MORE, "clean_room": _ROOM, "deadline": _TIME})


def command(kind: str) -> Schema:
    """A command of one kind, with an example."""
    body = BODIES[kind]
    known: Schema = {"actor": DID, "body": body, "id": NAME, "key_id": BYTES_32, "kind": {"const": kind}}
    schema = _object({**known, "v": {"const": 1}})
    return {**schema, "example": example(schema)}


def example(schema: Schema) -> Any:  # noqa: ANN401 - JSON
    """A value that a schema of ours allows, of its own examples."""
    for name in ("example", "const"):
        if name in schema:
            return schema[name]
    if "enum" in schema:
        return schema["enum"][0]
    if "oneOf" in schema:
        return example(schema["oneOf"][0])
    if schema["type"] == "array":
        return [example(schema["items"])] * schema.get("minItems", 0)
    return {name: example(schema["properties"][name]) for name in schema.get("required", ())}
