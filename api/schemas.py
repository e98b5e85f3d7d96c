"""The bodies of the commands that state a privacy loss, for the OpenAPI document: ε, δ and noise are exact strings."""

from __future__ import annotations

from typing import Any, Final

NUMBER: Final[dict[str, Any]] = {
    "type": "string",
    "pattern": r"^((0|[1-9][0-9]{0,17})(\.[0-9]{0,17}[1-9])?|[1-9][0-9]{0,17}/[1-9][0-9]{0,17})$",
    "description": "a decimal without trailing zeros, or a ratio; never a float",
    "example": "2.25",
}
"""As :func:`ledger.units.parse_number` reads it."""
DIGEST: Final[dict[str, Any]] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_REF: Final[dict[str, Any]] = {"type": "string", "example": "did:web:hospital.example/digits/2026-q4"}
_KEY: Final[dict[str, Any]] = {"type": "object", "required": ["crv", "kty", "x"]}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": sorted(required),
        "properties": {**required, **(optional or {})},
    }


_DP_SGD: Final = _object(
    {
        "batch_size_expected": {"type": "integer", "minimum": 1},
        "clipping_norm": NUMBER,
        "kind": {"const": "dp_sgd"},
        "noise_multiplier": NUMBER,
        "sampler": _object({"kind": {"const": "poisson"}, "probability": NUMBER}),
        "steps": {"type": "integer", "minimum": 1},
        "v": {"const": 1},
    }
)
_MECHANISM: Final = _object({"kind": {"const": "mechanism"}, "mechanism": {"type": "object"}, "v": {"const": 1}})
PLAN: Final[dict[str, Any]] = {"oneOf": [_DP_SGD, _MECHANISM]}
RUN: Final = {
    "contract": DIGEST,
    "partitions": {"type": "array", "minItems": 1, "maxItems": 16, "items": _REF},
    "plan": PLAN,
}
_NAMES: Final[dict[str, Any]] = {"type": "array", "minItems": 1, "maxItems": 16, "items": {"type": "string"}}
_TIME: Final[dict[str, Any]] = {"type": "integer", "minimum": 0, "description": "Unix milliseconds"}
_ROOM: Final = _object({"sealing": _KEY, "signing": _KEY})

BODIES: Final[dict[str, dict[str, Any]]] = {
    "charge": _object(
        {**RUN, "clean_room": _ROOM, "deadline": _TIME},
        {
            "base": _NAMES,
            "pipeline": DIGEST,
            "recipients": _NAMES,
            "unit_records_max": {"type": "integer", "minimum": 1},
        },
    ),
    "coalition": _object({"epsilon": NUMBER, "members": {**_NAMES, "minItems": 2, "maxItems": 64}}),
    "partition": _object(
        {
            **{name: {"type": "string"} for name in ("data_key", "dataset", "partition", "provider", "relation")},
            "delta": NUMBER,
            "epsilon": NUMBER,
            "records": {"type": "integer", "minimum": 1},
            "rule": {"enum": ["renyi", "reference", "gaussian"]},
            "unit": {"enum": ["record", "user"]},
        },
        {
            "commitments": {"type": "array", "items": DIGEST},
            "load": PLAN,
            "reason": {"type": "string"},
            "slack": NUMBER,
            "unit_records_max": {"type": "integer", "minimum": 1},
        },
    ),
    "post": _object({"charge": {"type": "string"}, "steps": {"type": "integer", "minimum": 0}}),
}
"""By kind of command; the others name things and state no loss."""
PLANNED: Final = _object(RUN, {"base": _NAMES, "clean_room": _ROOM, "deadline": _TIME, "recipients": _NAMES})
EXAMPLE: Final[dict[str, Any]] = {
    "actor": "did:web:bank-a.example",
    "body": {"charge": "run-1"},
    "id": "void-1",
    "key_id": "8kPTrH0rJ8oDx0hB1xQ0wJ2c4rJb1cYv3m1t4k5s6u8",
    "kind": "void",
    "v": 1,
}
