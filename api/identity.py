"""Who is calling: a bearer token, read once for each request, before the route.

The dependency stands on the application itself, so a route that somebody adds has a caller, or an operation id in
:data:`api.access.PUBLIC`, or is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from fastapi import Depends, Request

from api.access import CCR, PUBLIC, Caller
from api.problems import Fault, Problem
from api.tokens import Token, TokenInvalid, Tokens

if TYPE_CHECKING:
    from ledger.book import Book
    from ledger.registry import Facts

_SCHEME: Final = "bearer"


class Gatekeeper:
    """Lets a request in, or raises a problem."""

    def __init__(self, book: Book, tokens: Tokens) -> None:
        """Believe ``tokens``; look organisations and clean rooms up in ``book``."""
        self._book, self._tokens = book, tokens

    def __call__(self, request: Request) -> None:
        """Find out who calls, and whether they may. Raises: Problem (401, 403)."""
        operation = getattr(request.scope.get("route"), "operation_id", None) or ""
        if operation in PUBLIC:
            return
        with self._book.read() as facts:
            caller = self._caller(request, facts)
        caller.check(operation)
        request.state.caller = caller

    def _caller(self, request: Request, facts: Facts) -> Caller:
        try:
            token = self._tokens.verify(_bearer(request), lambda key_id: _room_key(facts, key_id))
        except TokenInvalid as fault:
            raise Problem(Fault.TOKEN_INVALID, str(fault), field="authorization") from None
        return _of_token(token, facts)


def _bearer(request: Request) -> str:
    values = request.headers.getlist("authorization")
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    if scheme.lower() != _SCHEME or not token:
        raise Problem(Fault.TOKEN_MISSING, "send one header 'authorization: Bearer <token>'", field="authorization")
    return token.strip()


def _room_key(facts: Facts, key_id: str) -> str | None:
    found = facts.keys.get(key_id)
    return found.x if found is not None and found.charge is not None else None


def _of_token(token: Token, facts: Facts) -> Caller:
    if token.key_id:
        charge = facts.charges[str(facts.keys[token.key_id].charge)]
        return Caller(charge.actor, (CCR,), charge.id)
    if token.roles:
        # Who comes to read, or to run the machine, comes as nothing else: an auditor writes nothing.
        return Caller(token.organisation, token.roles)
    known = facts.organisations.get(token.organisation)
    return Caller(token.organisation, known.roles if known is not None else ("",))


async def caller_of(request: Request) -> Caller:
    """Whom the gatekeeper found."""
    caller = request.state.caller
    if not isinstance(caller, Caller):
        message = "the gatekeeper stands before every route"
        raise TypeError(message)
    return caller


Calling = Annotated[Caller, Depends(caller_of)]
