"""Answers: what a command got, or why not, and values that no cache keeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from fastapi.responses import Response

from api.http.json_schema import ETAG, FREE, Form
from api.http.problems import Problem, declared
from api.wire.account_views import remaining
from client.http.endpoints import JSON_TYPE
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c

if TYPE_CHECKING:
    from api.auth.authorisation import Caller
    from ledger.book.book import Book, Outcome
    from ledger.domain.commands import Command

Responses = dict[int | str, dict[str, Any]]

TEXT_TYPE: Final = "text/plain"
BYTES_TYPE: Final = "application/octet-stream"
BINARY: Final[Form] = {"type": "string", "format": "binary"}


def takes(form: Form, media_type: str = JSON_TYPE, parameters: Sequence[Form] = ()) -> dict[str, Any]:
    """What a route takes that reads its body by itself, for its ``openapi_extra``."""
    more = {"parameters": [*parameters]} if parameters else {}
    return {**more, "requestBody": {"required": True, "content": {media_type: {"schema": form}}}}


def shows(form: Form, *problems: int, media_type: str = JSON_TYPE, description: str = "As it stands") -> Responses:
    """The OpenAPI responses of a route that answers 200 with one form, and of the problems beside it."""
    return {**declared(*problems), 200: {"description": description, "content": {media_type: {"schema": form}}}}


def shows_text(*problems: int, description: str, media_type: str = TEXT_TYPE) -> Responses:
    """The same, of a text in a format of its own."""
    return shows(FREE, *problems, media_type=media_type, description=description)


def shows_version(form: Form, *problems: int) -> Responses:
    """The same, of what has a tag (:mod:`api.http.etags`): 304 for whoever has it already."""
    told = shows(form, *problems)
    tag = {"etag": {"description": "a strong entity tag", "schema": ETAG}}
    return {**told, 200: {**told[200], "headers": tag}, 304: {"description": "It is what If-None-Match names"}}


def answer(outcome: Outcome, extra: c.Object | None = None, status: int | None = None) -> Response:
    """The HTTP answer to an outcome. Raises: Problem, if it is a refusal."""
    if outcome.code.refused:
        raise refusal(outcome)
    return json_response({**answered(outcome), **(extra or {})}, status or status_of(outcome))


def answered(outcome: Outcome) -> c.Object:
    """What was recorded, as it is told."""
    return {
        "body": outcome.body,
        "id": outcome.id,
        "index": outcome.index,
        "outcome": outcome.code.word,
        "receipt": outcome.receipt,
        "repeated": outcome.repeated,
    }


def status_of(outcome: Outcome) -> int:
    """201 when it was recorded now, 200 when it was before."""
    return 200 if outcome.repeated else outcome.code.http_status


def refusal(outcome: Outcome, remaining: tuple[c.Object, ...] = ()) -> Problem:
    """The problem that a refusal is told as; ``remaining`` is the headroom that the caller may see."""
    return Problem(
        outcome.code,
        outcome.detail,
        field=outcome.field,
        id=outcome.id,
        index=outcome.index,
        reasons=reasons(outcome.body),
        remaining=remaining,
    )


def with_headroom(book: Book, outcome: Outcome, command: Command, caller: Caller) -> Problem:
    """A refusal, with what is left where there was no room or a policy forbade it."""
    if outcome.code not in {Code.BUDGET_EXHAUSTED, Code.POLICY_DENIED}:
        return refusal(outcome)
    with book.read() as facts:
        return refusal(outcome, remaining(facts, command.body.get("partitions"), caller))


def reasons(body: c.Object) -> tuple[c.Object, ...]:
    """Every check of a decision that failed, in order."""
    checks = body.get("checks")
    return tuple(
        {"code": check["code"], "detail": check["text"]}
        for check in (checks if isinstance(checks, list) else [])
        if isinstance(check, dict) and check.get("passed") is False
    )


def json_response(value: c.Json, status: int = 200) -> Response:
    """Canonical JSON that no cache keeps: what it says may change with the next entry."""
    return Response(c.dump(value), status, {"cache-control": "no-store"}, JSON_TYPE)
