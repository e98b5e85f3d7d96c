"""Answers: what a command got, or why not, and values that no cache keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi.responses import Response

from api.problems import Problem
from api.views import remaining
from client.paths import JSON_TYPE
from ledger import canonical as c
from ledger.outcomes import Code

if TYPE_CHECKING:
    from api.access import Caller
    from ledger.book import Book, Outcome
    from ledger.commands import Command


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
