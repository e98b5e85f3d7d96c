"""The bodies of requests, for the OpenAPI document: ε, δ and noise are exact strings, names and digests have patterns.

A command's body is read by :mod:`ledger.domain.commands` and by nothing here: these say beforehand what it will take.
"""

from __future__ import annotations

from typing import Final

from msgspec import inspect

from api.http.json_schema import (
    BYTES_32,
    COMPACT_JWS,
    DID,
    DIGEST,
    FLAG,
    HOLDER,
    NAME,
    NUMBER,
    REF,
    TIME,
    WORDS,
    Form,
    distinct,
    integer,
    one_of,
    record,
    tagged,
    text,
)
from client.http.endpoints import BATCH_MAX
from ledger.domain.commands import COMMITMENTS_MAX, ROLES, RULES, RUNS_MAX, UNITS
from ledger.domain.governance_commands import REASON_MAX
from ledger.domain.lineage_commands import BODIES_MAX
from ledger.mechanisms.mechanism import GROUP_MAX, KINDS, RELATIONS, SHAPES, STEPS_MAX, Mechanism
from ledger.mechanisms.plan import BATCH_MAX as RECORDS_MAX
from ledger.mechanisms.plan import USER


def _key(curve: str) -> Form:
    return record({"crv": {"const": curve}, "kty": {"const": "OKP"}, "x": BYTES_32}, title=f"{curve}Key")


_MODULUS: Final = text("^[A-Za-z0-9_-]{342,683}$")
SIGNING: Final[Form] = {
    "title": "SigningKey",
    "description": "of Ed25519, P-256 (ES256) or RSA from 2048 bits on (RS256)",
    "oneOf": [
        _key("Ed25519"),
        record({"crv": {"const": "P-256"}, "kty": {"const": "EC"}, "x": BYTES_32, "y": BYTES_32}),
        record({"e": {"const": "AQAB"}, "kty": {"const": "RSA"}, "n": _MODULUS}),
    ],
}
SEALING: Final = _key("X25519")
_ROOM: Final = record(
    {"sealing": SEALING, "signing": _key("Ed25519")}, title="CleanRoom", description="one clean room, one run"
)
_MECHANISM: Final[Form] = {"$ref": "#/components/schemas/Mechanism"}
_WORDS: Final = {"relation": RELATIONS, "shape": SHAPES}


def _mechanism_field(field: inspect.Field) -> Form:
    kind = field.type.type if isinstance(field.type, inspect.Metadata) else field.type
    match kind:
        case inspect.IntType():
            return integer("", int(kind.ge or 0), int(kind.le or 0))
        case inspect.StrType():
            return one_of(*_WORDS[field.name])
        case inspect.VarTupleType():
            return {"type": "array", "minItems": 1, "maxItems": kind.max_length, "items": _MECHANISM}
        case inspect.UnionType():
            return _MECHANISM
        case _:
            return NUMBER


def _mechanism(kind: str, known: type[Mechanism]) -> Form:
    info = inspect.type_info(known)
    assert isinstance(info, inspect.StructType)
    return tagged(kind, {one.name: _mechanism_field(one) for one in info.fields if one.name != "v"})


MECHANISM: Final[Form] = {
    "title": "Mechanism",
    "description": "what will be released, enough to account for it",
    "oneOf": [_mechanism(kind, known) for kind, known in KINDS.items()],
}
_DP_SGD: Final = tagged(
    "dp_sgd",
    {
        "batch_size_expected": integer(least=1, most=RECORDS_MAX),
        "clipping_norm": NUMBER,
        "noise_multiplier": NUMBER,
        "sampler": record({"kind": {"const": "poisson"}, "probability": NUMBER}),
        "steps": integer(least=1, most=STEPS_MAX),
    },
    {"unit": {"const": USER, "description": "what is drawn and clipped; records, where nothing is said"}},
)
PLAN: Final[Form] = {
    "title": "Plan",
    "description": "what the charge and the run are both made from",
    "oneOf": [_DP_SGD, tagged("mechanism", {"mechanism": MECHANISM})],
}
_RUN: Final = {"contract": DIGEST, "partitions": distinct(REF, 16), "plan": PLAN}
_MORE: Final = {"base": distinct(NAME, RUNS_MAX), "recipients": distinct(DID, RUNS_MAX)}
_GROUP: Final = {"unit_records_max": integer("records of one privacy unit", 1, GROUP_MAX)}
_CHARGE: Final = {"charge": NAME}
_MODEL: Final = {"charge": NAME, "model": DIGEST}
_ATTESTED: Final = {"evidence": DIGEST, "nonce": BYTES_32}
_GIVER: Final = {"giver": DID}
_REASON: Final[Form] = {"type": "string", "minLength": 1, "maxLength": REASON_MAX}
_NAMED: Final[Form] = {"type": "string", "minLength": 1, "maxLength": 1_000, "description": "by its name on record"}
_DOCUMENT: Final = {"document": DIGEST, "signatures": distinct(DIGEST, 32)}
_PARTITION: Final = {
    "data_key": NAME,
    "dataset": NAME,
    "delta": NUMBER,
    "epsilon": NUMBER,
    "partition": NAME,
    "provider": DID,
    "records": integer("a public lower bound on how many there are", 1, 10**12),
    "relation": one_of(*RELATIONS),
    "rule": one_of(*RULES),
    "unit": one_of(*UNITS),
}
_PARTITION_MORE: Final = {
    **_GROUP,
    "commitments": distinct(DIGEST, COMMITMENTS_MAX),
    "load": PLAN,
    "reason": _REASON,
    "slack": NUMBER,
}
_ORGANISATION: Final = {
    "key": SIGNING,
    "name": WORDS,
    "organisation": DID,
    "possession": COMPACT_JWS,
    "roles": distinct(one_of(*ROLES), len(ROLES)),
}
_FIELDS: Final[dict[str, tuple[Form, Form]]] = {
    "acquisition": ({"acquired": distinct(DID, BODIES_MAX), "organisation": DID}, {}),
    "charge": ({**_RUN, "clean_room": _ROOM, "deadline": TIME}, {**_MORE, **_GROUP, "pipeline": DIGEST}),
    "coalition": ({"epsilon": NUMBER, "members": distinct(DID, BODIES_MAX, 2)}, {}),
    "collusion": ({"effective": TIME, "organisations": distinct(DID, BODIES_MAX, 2)}, {}),
    "contract": (_DOCUMENT, {}),
    "dataset": (_DOCUMENT, {}),
    "decree": ({"holder": HOLDER, "partition": _NAMED, "reason": _REASON}, {}),
    "key_release": ({**_CHARGE, **_ATTESTED}, {}),
    "merger": ({"organisation": DID, "parents": distinct(DID, BODIES_MAX)}, {"proposed": FLAG}),
    "model_opening": ({**_MODEL, **_ATTESTED, "clean_room": _ROOM}, {}),
    "model_release": (_MODEL, {"watermark": DIGEST}),
    "organisation": (_ORGANISATION, {}),
    "partition": (_PARTITION, _PARTITION_MORE),
    "policy": (_DOCUMENT, {}),
    "post": ({**_CHARGE, "steps": integer("begun steps count", 0, STEPS_MAX)}, {}),
    "publication": (_CHARGE, _GIVER),
    "recommendation": (_DOCUMENT, {}),
    "release_notice": (_MODEL, {}),
    "retirement": ({"partition": REF}, {}),
    "revocation": ({"contract": DIGEST}, {}),
    "split": ({"child": DID, "organisation": DID}, {}),
    "transfer": ({"charge": NAME, "recipient": DID}, _GIVER),
    "void": (_CHARGE, {}),
}
"""By kind of command: what its body must have, and what it may."""


def titled(kind: str, what: str) -> str:
    """The name of a form about a kind of command."""
    return "".join(word.capitalize() for word in kind.split("_")) + what


BODIES: Final = {kind: record(*fields, title=titled(kind, "Body")) for kind, fields in _FIELDS.items()}
"""By kind of command."""
_PASSED_OVER: Final[Form] = {"description": "passed over"}
_ASKED: Final = {"base": distinct(_NAMED, RUNS_MAX), "recipients": distinct(_NAMED, RUNS_MAX)}
PLANNED: Final = record(_RUN, {**_ASKED, "clean_room": _PASSED_OVER, "deadline": _PASSED_OVER}, title="PlannedRun")


def command(kind: str) -> Form:
    """A command of one kind."""
    return record(
        {
            "actor": DID,
            "body": BODIES[kind],
            "id": NAME,
            "key_id": BYTES_32,
            "kind": {"const": kind},
            "v": {"const": 1},
        },
        title=titled(kind, "Command"),
        description="canonical JSON (RFC 8785): the signature is over exactly these bytes",
    )


_SIGNED_CHARGE: Final = record({"command": command("charge"), "signature": {**COMPACT_JWS, "maxLength": 4_096}})
CHARGES: Final = record({"charges": {"type": "array", "minItems": 1, "maxItems": BATCH_MAX, "items": _SIGNED_CHARGE}})
