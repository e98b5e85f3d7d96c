"""How a policy writes whom it trusts: ``attestation``, read by :mod:`policy.documents.trusted_attesters`."""

from __future__ import annotations

from typing import Final

from policy.documents import field_shapes as s
from policy.documents.release_policy import VERSIONS
from policy.documents.trusted_attesters import ATTESTERS_MAX, CLAIMS_ALWAYS_CHECKED, CLAIMS_MAX, KEYS_MAX, Attestation

_ISSUER: Final = {"maxLength": 500, "minLength": 1, "type": "string"}
_NUMBER: Final = {"pattern": r"^[A-Za-z0-9_-]+$", "type": "string"}
_RSA: Final = {
    "additionalProperties": False,
    "properties": {
        "alg": {"const": "RS256"},
        "e": _NUMBER,
        "kid": {},
        "kty": {"const": "RSA"},
        "n": _NUMBER,
        "use": {"const": "sig"},
    },
    "required": ["e", "kty", "n"],
    "type": "object",
}
_EAT: Final = {
    "additionalProperties": False,
    "properties": {"format": {"const": "eat"}, "issuer": _ISSUER, "key": s.ED25519.schema},
    "required": ["issuer", "key"],
    "type": "object",
}
_AZURE: Final = {
    "additionalProperties": False,
    "properties": {
        "format": {"const": "azure"},
        "issuer": _ISSUER,
        "keys": {"items": _RSA, "maxItems": KEYS_MAX, "minItems": 1, "type": "array", "uniqueItems": True},
    },
    "required": ["format", "issuer", "keys"],
    "type": "object",
}
_CLAIMS: Final = {
    "additionalProperties": {"maxLength": 1000, "minLength": 1, "type": ["string", "integer", "boolean"]},
    "maxProperties": CLAIMS_MAX,
    "minProperties": 1,
    "propertyNames": {"maxLength": 100, "minLength": 1, "not": {"enum": list(CLAIMS_ALWAYS_CHECKED)}},
    "required": ["swname"],
    "type": "object",
}
_RELEASE_POLICY: Final = {
    "properties": {"anyOf": {"minItems": 1, "type": "array"}, "version": {"enum": list(VERSIONS)}},
    "required": ["anyOf", "version"],
    "type": "object",
}
ATTESTATION: Final = s.Shape(
    Attestation.parse,
    {
        "additionalProperties": False,
        "properties": {
            "attesters": {
                "items": {"anyOf": [_EAT, _AZURE]},
                "maxItems": ATTESTERS_MAX,
                "minItems": 1,
                "type": "array",
                "uniqueItems": True,
            },
            "claims": _CLAIMS,
            "release_policy": _RELEASE_POLICY,
        },
        "required": ["attesters"],
        "type": "object",
    },
)
