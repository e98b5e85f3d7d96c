"""Answers to commands: what was recorded, decisions, entries, envelopes of keys and the outcomes of a batch.

The body of an entry is the request and what the decision fixed, as the registry declares it by kind of command.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Final, Literal, Self

import msgspec
from msgspec import Meta, structs

from api.http.field_types import (
    Index,
    KeyBytes,
    Schema,
    Time,
    one_of,
    schema_of,
)
from api.http.problems import ProblemDetails
from api.wire.command_requests import titled
from client.keys.hpke_envelope import Envelope
from ledger.accounts.run_epsilon import RunLines
from ledger.commands.command_kind import CommandKind
from ledger.commands.entry import Entry
from ledger.commands.registry import KINDS
from ledger.domain.gate import Check
from ledger.domain.outcomes import Code
from ledger.wire.field_types import Did, Name
from ledger.wire.records import Record

RECORDED: Final = one_of(*(code.word for code in Code if code.recorded))
"""Outcomes that an entry records."""
Request = Annotated[Any, Meta(extra_json_schema={"type": "object"}, description="the body of the command")]


_PERMITS: Final = {"charge": "pending", "post": "posted", "void": "voided"}
"""The outcome of a command that is not rejected; else it is permitted."""
_ENVELOPE: Final = Annotated[Envelope | None, Meta(extra_json_schema={"default": "absent"})]
"""Null where the service only authorises, and absent from a dry run."""
_RELEASES: Final = frozenset({"key_release", "model_opening"})
WARNED: Final = frozenset({"coalition", "contract", "policy"})
"""Kinds of command that state caps."""
_WARNINGS: Final = Annotated[
    tuple[str, ...] | None, Meta(description="caps under which no run, or not the declared plan, could be admitted")
]

_QUOTED: Final = {
    "warnings": Annotated[
        tuple[str, ...] | None,
        Meta(
            description="of a quote or a dry run: that an account which is shared with others may have no room, or "
            "that the run would be the first charge of a partition and choose its rule"
        ),
    ]
}


class CommandAnswer(Record, frozen=True):
    """What was recorded, with its receipt."""

    body: Annotated[Any, Meta(extra_json_schema={"type": "object"})]
    id: Name
    index: Index | None
    outcome: str
    receipt: Annotated[str, Meta(description="a C2SP tlog-proof; null where nothing was recorded")] | None
    repeated: Annotated[bool, Meta(description="the very same command was recorded before")]


def _record(
    name: str, required: Mapping[str, Any], optional: Mapping[str, Any], doc: str, base: type[Record] = Record
) -> type[Record]:
    fields: list[Any] = [*required.items(), *((field, kind | None, None) for field, kind in optional.items())]
    made = msgspec.defstruct(name, fields, bases=(base,), namespace={"__doc__": doc}, frozen=True)
    assert issubclass(made, Record)
    return made


def _recorded_fields(kind: CommandKind[Any]) -> tuple[structs.FieldInfo, ...]:
    """The fields of what an entry of a kind records beside the request and the outcome."""
    return () if kind.recorded is None else structs.fields(kind.recorded)


@cache
def answer_to(kind: str) -> type[Record]:
    """The answer to a command of a kind, which says what that kind's decision fixed."""
    beside = {"envelope": _ENVELOPE} if kind in _RELEASES else {"warnings": _WARNINGS} if kind in WARNED else {}
    beside |= _QUOTED if kind == "charge" else {}
    return _record(titled(kind, "Answer"), _narrowed(kind), beside, str(CommandAnswer.__doc__), CommandAnswer)


def _narrowed(kind: str) -> Mapping[str, Any]:
    """The fields of :class:`CommandAnswer` whose type depends on the kind of command."""
    outcome = Annotated[str, Meta(extra_json_schema={"const": _PERMITS.get(kind, "permitted")})]
    request = Annotated[Any, Meta(extra_json_schema={"$ref": f"#/components/schemas/{titled(kind, 'Body')}"})]
    fixed = _recorded_fields(KINDS[kind])
    required = {field.name: field.type for field in fixed if field.required}
    # A quote or a dry run has what was decided, and nothing more.
    optional = {
        "outcome": outcome,
        "request": request,
        **{field.name: field.type for field in fixed if not field.required},
    }
    if kind == "charge":
        optional["run_epsilon"] = RunLines
    doc = f"What the decision on a {kind.replace('_', ' ')} fixed, and the request."
    return {"body": _record(titled(kind, "Decided"), required, optional, doc), "outcome": outcome}


class BatchProblem(Record, frozen=True):
    """The problem of one charge of a batch."""

    problem: ProblemDetails
    status: Annotated[int, Meta(ge=400, le=599)]


_STATUS: Final = {"status": Annotated[int, Meta(extra_json_schema={"enum": [200, 201]})]}
BatchAnswer: Final = _record(
    "BatchAnswer",
    {**_narrowed("charge"), **_STATUS},
    _QUOTED,
    "What was recorded for one charge of a batch.",
    CommandAnswer,
)


def batch_schema() -> Schema:
    """An outcome for each charge of a batch, in order: an answer or a problem, by its status."""
    outcome = {"oneOf": [schema_of(BatchAnswer), schema_of(BatchProblem)]}
    outcomes = {"type": "array", "minItems": 1, "items": outcome}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["outcomes"],
        "properties": {"outcomes": outcomes},
    }


EntryBody: Final = _record(
    "EntryBody",
    {"outcome": Annotated[str, RECORDED], "request": Request},
    {
        **{field.name: field.type for kind in KINDS.values() for field in _recorded_fields(kind)},
        "checks": tuple[Check, ...],
        "detail": str,
    },
    "The request, the outcome, and what the decision fixed.",
)
LoggedEntry: Final = _record(
    "Entry",
    {
        "actor": Did,
        "body": EntryBody,
        "id": Name,
        "key_id": KeyBytes,
        "kind": Annotated[str, one_of(*KINDS)],
        "signature": str,
        "time": Time,
        "v": Literal[1],
    },
    {},
    "The exact bytes that are hashed into the tree: the command as it was signed, and what was decided.",
)


class Decision(Record, frozen=True):
    """The decision on a command, with every check on record: all of a rejection's."""

    actor: Did
    checks: tuple[Check, ...]
    detail: str
    id: Name
    index: Index
    key_id: KeyBytes
    kind: Annotated[str, one_of(*KINDS)]
    outcome: Annotated[str, RECORDED]
    permit: bool
    request: Request
    time: Time

    @classmethod
    def of_entry(cls, entry: Entry, index: int) -> Self:
        """The decision that an entry records."""
        return cls.project(
            entry,
            checks=entry.body.get("checks", []),
            detail=entry.body.get("detail", ""),
            index=index,
            outcome=entry.code.word,
            permit=not entry.code.refused,
        )
