"""POST /v1/charges/batch: many charges in one request and one commit, each with its own signature and outcome.

    {"charges":[{"command":{...},"signature":"eyJh..."},...]}

They are decided in the order given; each sees what those before it did. A signature is over the canonical bytes of its
command and is made for this very path, with the command's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from api.access import Caller
from api.answering import answered, json_response, refusal, status_of
from api.hidden import check_seen
from api.identity import Calling
from api.problems import Problem, declared
from api.reading import batch_bytes
from api.schemas import command as command_schema
from client.paths import BATCH, BATCH_MAX, JSON_TYPE
from ledger import canonical as c
from ledger.book import Submission
from ledger.commands import COMMAND_BYTES_MAX, Command
from ledger.malformed import Malformed

if TYPE_CHECKING:
    from api.binding import Binding
    from ledger.book import Book, Outcome
    from ledger.snapshot import Snapshot

Batch = Annotated[bytes, Depends(batch_bytes)]
_SIGNATURE_MAX: Final = 4_096
_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["charges"],
    "properties": {
        "charges": {
            "type": "array",
            "minItems": 1,
            "maxItems": BATCH_MAX,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["command", "signature"],
                "properties": {"command": command_schema("charge"), "signature": {"type": "string"}},
            },
        }
    },
}


def batch_router(book: Book, binding: Binding) -> APIRouter:
    """The one route."""
    router = APIRouter(tags=["commands"])

    @router.post(
        BATCH,
        operation_id="charge_batch",
        responses=declared(401, 403, 404, 408, 413, 415, 422),
        openapi_extra={"requestBody": {"required": True, "content": {JSON_TYPE: {"schema": _SCHEMA}}}},
    )
    def submit(raw: Batch, caller: Calling) -> Response:
        with book.read() as facts:
            asked = _all(raw, facts, binding, caller)
        outcomes = iter(book.submit([one for one in asked if isinstance(one, Submission)]))
        told = [_told(next(outcomes)) if isinstance(one, Submission) else _problem(one) for one in asked]
        return json_response({"outcomes": [*told]})

    return router


def _all(raw: bytes, facts: Snapshot, binding: Binding, caller: Caller) -> list[Submission | Problem]:
    """Every charge of a batch, or why it is not sent. Raises: Malformed."""
    known = c.fields(c.parse(raw, len(raw)), "", ("charges",))
    listed = known["charges"]
    if not isinstance(listed, list) or not 1 <= len(listed) <= BATCH_MAX:
        raise Malformed("charges", f"must have 1 to {BATCH_MAX} items")
    return [_asked(one, f"charges[{place}]", facts, binding, caller) for place, one in enumerate(listed)]


def _asked(value: object, where: str, facts: Snapshot, binding: Binding, caller: Caller) -> Submission | Problem:
    """One charge ready to be sent, or why it is not: by itself, so that the others are. Raises: Malformed."""
    known = c.fields(value, where, ("command", "signature"))
    raw, signature = c.dump(known["command"]), c.string(known["signature"], f"{where}.signature", _SIGNATURE_MAX)
    if len(raw) > COMMAND_BYTES_MAX:
        raise Malformed(f"{where}.command", f"has more than the {COMMAND_BYTES_MAX} bytes allowed")
    try:
        command = Command.parse(raw)
    except Malformed as fault:
        raise fault.under(f"{where}.command") from None
    if command.kind != "charge":
        raise Malformed(f"{where}.command.kind", f"must be 'charge' at this path, not '{command.kind}'")
    submission = Submission(raw, signature)
    try:
        caller.check_actor(command.actor)
        binding.check(signature, "POST", BATCH, command.id)
        check_seen(facts, caller, submission)
    except Problem as problem:
        return problem
    return submission


def _told(outcome: Outcome) -> c.Object:
    if outcome.code.refused:
        return _problem(refusal(outcome))
    return {**answered(outcome), "status": status_of(outcome)}


def _problem(problem: Problem) -> c.Object:
    return {"problem": problem.body, "status": problem.status}
