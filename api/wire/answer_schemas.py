"""What is told of commands, for the OpenAPI document: answers, decisions, entries, envelopes and outcomes of a batch.

The body of an entry is what was asked for and what the decision fixed: :data:`_FIXED` has it by kind of command.
"""

from __future__ import annotations

from typing import Final

from api.http.field_types import schema_of
from api.http.json_schema import (
    BYTES,
    BYTES_32,
    COUNT,
    DID,
    DIGEST,
    FLAG,
    FREE,
    HOLDER,
    INDEX,
    NAME,
    NODE,
    NUMBER,
    REF,
    TIME,
    TOLD,
    Form,
    integer,
    mapping,
    nullable,
    one_of,
    record,
    several,
)
from api.http.problems import SCHEMA as PROBLEM
from api.wire.decision_answers import Check
from api.wire.request_schemas import BODIES, titled
from client.keys.hpke_envelope import SUITE
from ledger.domain.commands import KINDS
from ledger.domain.outcomes import Code

CHECK: Final = schema_of(Check)
LOSS: Final = record(
    {"finite": several(integer()), "infinite": several(integer())},
    title="Loss",
    description="by coordinate of the partition's rule: units of loss, and how many charges without bound",
)
CAP: Final = record(
    {"capacity": several(nullable(integer())), "epsilon": TOLD},
    title="Cap",
    description="an ε, and the capacity that it is at each coordinate of the partition's rule; null where it is closed",
)
_HEADER: Final = record(
    {
        "consumer": FREE,
        "domain": FREE,
        "ends": TIME,
        "id": NAME,
        "kind": one_of("policy", "recommendation", "dataset", "contract"),
        "providers": several(DID),
        "starts": TIME,
        "version": COUNT,
    },
    title="DocumentHeader",
    description="what a document says of itself; what is not of its kind is empty or zero",
)
ALERT: Final = record(
    {"holder": HOLDER, "partition": REF, "share": NUMBER},
    title="BudgetAlert",
    description="a share of a capacity that this charge reached or crossed",
)
_LIMIT: Final = record({"cap": CAP, "holder": HOLDER, "partition": REF}, {"share": NUMBER}, title="Limit")
_PRICE: Final = record({"price": several(nullable(integer())), "steps": COUNT, "unit": COUNT}, title="PriceSegment")
_ORDERS: Final = {"orders": several(COUNT), "weights": several(COUNT)}
TERMS: Final[Form] = {
    "title": "RuleTerms",
    "description": "the rule by which charges are admitted, as it was fixed when the partition was opened",
    "oneOf": [
        record({"delta": NUMBER, "kind": {"const": "renyi"}, "slack": integer(), "v": {"const": 1}, **_ORDERS}),
        record(
            {
                "delta": NUMBER,
                "epsilon": NUMBER,
                "kind": {"const": "reference"},
                "noise_multiplier": NUMBER,
                "probability": NUMBER,
                "v": {"const": 1},
            }
        ),
        record(
            {
                "delta": NUMBER,
                "epsilon": NUMBER,
                "kind": {"const": "gaussian"},
                "menu": several(integer()),
                "slack": integer(),
                "v": {"const": 1},
            }
        ),
        record({"delta": {"const": "0"}, "kind": {"const": "pure"}, "v": {"const": 1}}),
    ],
}
_PARENTS: Final = {"parents": several(NODE)}
_FIXED: Final[dict[str, Form]] = {
    "acquisition": _PARENTS,
    "charge": {
        "author": NODE,
        "limits": several(_LIMIT),
        "plan": DIGEST,
        "prices": mapping(REF, several(_PRICE)),
    },
    "coalition": _PARENTS,
    "collusion": _PARENTS,
    "contract": {"header": _HEADER},
    "dataset": {"header": _HEADER},
    "decree": {"forgiven": LOSS},
    "merger": _PARENTS,
    "partition": {"caps": several(CAP), "terms": TERMS},
    "policy": {"header": _HEADER},
    "publication": {"giver": DID, "node": NODE},
    "recommendation": {"header": _HEADER},
    "split": _PARENTS,
    "transfer": {"before": INDEX, "giver": DID, "node": NODE},
}
_ALERTS: Final = {"alerts": several(ALERT)}
_PERMITS: Final = {"charge": "pending", "post": "posted", "void": "voided"}
"""What a command gets that is not refused; else it is permitted."""


def _recorded(kind: str) -> Form:
    """The body of an entry of one kind; a quote or a dry run has what was decided, and nothing more."""
    said = {"outcome": {"const": _PERMITS.get(kind, "permitted")}, "request": BODIES[kind]}
    return record(
        _FIXED.get(kind, {}), {**said, **(_ALERTS if kind == "charge" else {})}, title=titled(kind, "Decided")
    )


_INFO: Final = record(
    {
        "charge": NAME,
        "contract": DIGEST,
        "entry": INDEX,
        "evidence": DIGEST,
        "key_release": NAME,
        "not_after": TIME,
        "v": {"const": 1},
    }
)
ENVELOPE: Final = record(
    {
        "info": _INFO,
        "sealed": mapping({"type": "string"}, BYTES),
        "suite": {"const": SUITE},
        "v": {"const": 1},
    },
    title="Envelope",
    description="each key sealed with HPKE (RFC 9180) to the clean room, by what it opens; info is bound in",
)
_RECEIPT: Final = nullable({**FREE, "description": "a C2SP tlog-proof; null where nothing was recorded"})
_RELEASES: Final = frozenset({"key_release", "model_opening"})


def answer_to(kind: str) -> Form:
    """What a command of a kind is answered with, as :func:`api.wire.responses.answered` writes it."""
    fields = {
        "body": _recorded(kind),
        "id": NAME,
        "index": nullable(INDEX),
        "outcome": {"const": _PERMITS.get(kind, "permitted")},
        "receipt": _RECEIPT,
        "repeated": {**FLAG, "description": "the very same command was recorded before"},
    }
    more = {"envelope": nullable(ENVELOPE)} if kind in _RELEASES else {}
    return record(fields, more, title=titled(kind, "Answer"))


_CHARGED: Final = answer_to("charge")
BATCHED: Final = record(
    {
        "outcomes": several(
            {
                "oneOf": [
                    record({**_CHARGED["properties"], "status": {"enum": [200, 201]}}, title="BatchAnswer"),
                    record({"problem": PROBLEM, "status": integer("", 400, 599)}, title="BatchProblem"),
                ]
            },
            least=1,
        )
    }
)
_OUTCOMES: Final = one_of(*(code.word for code in Code if code.recorded))
_REQUEST: Final[Form] = {"type": "object", "description": "the body of the command"}
_REFUSED: Final = {"checks": several(CHECK), "detail": FREE}
_ALL_FIXED: Final = {name: form for fixed in _FIXED.values() for name, form in fixed.items()}
ENTRY: Final = record(
    {
        "actor": DID,
        "body": record({"outcome": _OUTCOMES, "request": _REQUEST}, {**_ALL_FIXED, **_ALERTS, **_REFUSED}),
        "id": NAME,
        "key_id": BYTES_32,
        "kind": one_of(*KINDS),
        "signature": FREE,
        "time": TIME,
        "v": {"const": 1},
    },
    title="Entry",
    description="the exact bytes that are hashed into the tree: the command as it was signed, and what was decided",
)
