"""Responses: how a route declares its answers, and how it renders an outcome, a rejection or a value without a tag."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from fastapi.responses import Response
from msgspec import structs

from api.auth.authorisation import Caller
from api.http.field_types import EntityTag, Schema, schema_of
from api.http.problems import Problem, Reason, RemainingShare, declared
from api.wire.account_book import remaining
from api.wire.command_answers import CommandAnswer
from client.http.endpoints import JSON_TYPE
from ledger.book.book import Book, Outcome
from ledger.commands.runs.charge import CHARGE
from ledger.domain.command import Command
from ledger.domain.gate import Check
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from ledger.wire.records import Record, convert, write
from policy.planning.shared_account import UNCERTAIN

Responses = dict[int | str, dict[str, Any]]

TEXT_TYPE: Final = "text/plain"
_LOG: Final = logging.getLogger("api.commands")
BINARY: Final[Schema] = {"type": "string", "format": "binary"}


def takes(kind: Any, media_type: str = JSON_TYPE, parameters: Sequence[Schema] = ()) -> dict[str, Any]:  # noqa: ANN401 - a type
    """The body of a route that reads it by itself, for its ``openapi_extra``."""
    more = {"parameters": [*parameters]} if parameters else {}
    return {**more, "requestBody": {"required": True, "content": {media_type: {"schema": _schema(kind)}}}}


def shows(
    kind: Any,  # noqa: ANN401 - a type, or its schema
    *problems: int,
    media_type: str = JSON_TYPE,
    description: str = "The current state",
) -> Responses:
    """The OpenAPI responses of a route that answers 200 with one type of answer, and of the problems beside it."""
    content = {media_type: {"schema": _schema(kind)}}
    return {**declared(*problems), 200: {"description": description, "content": content}}


def shows_text(*problems: int, description: str, media_type: str = TEXT_TYPE) -> Responses:
    """The same, for a text in a format of its own."""
    return shows(str, *problems, media_type=media_type, description=description)


def shows_tagged(kind: Any, *problems: int) -> Responses:  # noqa: ANN401 - a type
    """The same, for an answer with an entity tag (:mod:`api.http.etags`): 304 if the caller has it already."""
    shown = shows(kind, *problems)
    tag = {"etag": {"description": "a strong entity tag", "schema": schema_of(EntityTag)}}
    return {**shown, 200: {**shown[200], "headers": tag}, 304: {"description": "If-None-Match names the current tag"}}


def shows_page(kind: Any, *problems: int) -> Responses:  # noqa: ANN401 - a type
    """The same, for a page of a list: the address of the next page is a link (RFC 8288). A URL may be too long."""
    shown = shows(kind, 414, *problems)
    link = {"link": {"description": '<address of the next page>; rel="next"', "schema": {"type": "string"}}}
    return {**shown, 200: {**shown[200], "headers": link}}


def _schema(kind: Any) -> Schema:  # noqa: ANN401 - a type, or its schema
    return kind if isinstance(kind, dict) else schema_of(kind)


def answer(outcome: Outcome, extra: c.Object | None = None, status: int | None = None) -> Response:
    """The HTTP answer to an outcome. Raises: Problem, if it is a rejection."""
    if outcome.code.refused:
        raise refusal(outcome)
    recorded = CommandAnswer.project(outcome, outcome=outcome.code.word)
    whole = {**structs.asdict(recorded), **extra} if extra else recorded
    return json_response(whole, status or status_of(outcome))


def recorded_answer(outcome: Outcome) -> c.Object:
    """What was recorded, as an answer shows it."""
    return structs.asdict(CommandAnswer.project(outcome, outcome=outcome.code.word))


def warned(outcome: Outcome, warnings: Sequence[str] = ()) -> c.Object:
    """The warnings of an answer, where it has any: of a quote too that it is uncertain."""
    texts: list[c.Json] = [*warnings, *([UNCERTAIN] if outcome.uncertain else [])]
    return {"warnings": texts} if texts else {}


def status_of(outcome: Outcome) -> int:
    """201 when it was recorded now, 200 when it was before."""
    return 200 if outcome.repeated else outcome.code.http_status


def refusal(outcome: Outcome, remaining: tuple[RemainingShare, ...] = ()) -> Problem:
    """The problem that reports a rejection; ``remaining`` is the headroom that the caller may see."""
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
    """A rejection, with the remaining budget where there was no room or a policy forbade it.

    Without it, if it cannot be read: a refusal that is recorded is answered whatever fails here.
    """
    if outcome.code not in {Code.BUDGET_EXHAUSTED, Code.POLICY_DENIED} or command.kind != CHARGE.name:
        return refusal(outcome)
    try:
        with book.read() as facts:
            return refusal(outcome, remaining(facts, CHARGE.read_body(command), caller))
    except Exception:  # noqa: BLE001 - whatever it was, the refusal may be recorded
        _LOG.exception("the answer to a refused charge does not have its remaining budget")
        return refusal(outcome)


def reasons(body: c.Object) -> tuple[Reason, ...]:
    """Every check of a decision that failed, in order."""
    checks = convert(tuple[Check, ...], body.get("checks", []))
    return tuple(Reason(code=check.code, detail=check.text) for check in checks if not check.passed)


def json_response(answer: Record | c.Json, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Canonical JSON that no cache stores: it may change with the next entry."""
    return Response(write(answer), status, {"cache-control": "no-store", **(headers or {})}, JSON_TYPE)
