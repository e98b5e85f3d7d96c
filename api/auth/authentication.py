"""Authentication: a bearer token is verified once for each request, before the route.

The dependency is the application's own, so every added route has a caller, or an operation id in
:data:`api.auth.authorisation.PUBLIC`, or is refused.
"""

from __future__ import annotations

from typing import Annotated, Final

from anyio.to_thread import run_sync
from fastapi import Depends, Request

from api.auth.access_tokens import Token, TokenInvalid, Tokens
from api.auth.authorisation import PUBLIC, Caller
from api.auth.caller_quotas import CallerQuotas
from api.http.problems import Problem, ServiceCode
from ledger.book.book import Book
from ledger.commands.registry import CLIENT_KINDS
from ledger.domain.facts import Facts
from ledger.domain.roles import CCR

_SCHEME: Final = "bearer"
DEFERRED: Final = frozenset({"quote_charge", *(f"submit_{kind}" for kind in CLIENT_KINDS)})
"""Operations that authenticate on the snapshot that they read from, in the thread that they run in. A batch is not one
of them: an unauthenticated caller must not make the service hold so large a body."""


_READS: Final = frozenset({"GET", "HEAD"})
_HEALTH: Final = frozenset({"read_live", "read_ready"})
"""Operations that no quota counts: a flood must not make a working service look as if it were not."""


class UnauthenticatedRequest:
    """A request whose caller is not known yet; only a token that permits the operation makes a :class:`Caller`."""

    def __init__(self, request: Request, tokens: Tokens, operation: str, quotas: CallerQuotas) -> None:
        """A request with a token. Raises: Problem (401, 429)."""
        self._request, self._tokens, self._operation, self._quotas = request, tokens, operation, quotas
        self._bearer = _bearer(request)
        if not self._bearer:
            quotas.admit_anonymous(request.scope)
            detail = "send one header 'authorization: Bearer <token>'"
            raise Problem(ServiceCode.TOKEN_MISSING, detail, field="authorization")

    def authenticate(self, facts: Facts) -> Caller:
        """Verify the token and the permission, count the request, and give the caller. Raises: Problem (401, 403, 429).

        A valid token passes whatever others have sent from the same address.
        """
        try:
            token = self._tokens.verify(self._bearer, lambda key_id: _room_key(facts, key_id))
        except TokenInvalid as error:
            self._quotas.admit_anonymous(self._request.scope)
            raise Problem(ServiceCode.TOKEN_INVALID, str(error), field="authorization") from None
        caller = self._request.state.caller = caller_of_token(token, facts)
        caller.check(self._operation)
        if self._request.method not in _READS:
            self._quotas.admit_commands(caller)
        return caller


class Authenticator:
    """Authenticates every request, or raises a problem."""

    def __init__(self, book: Book, tokens: Tokens, quotas: CallerQuotas) -> None:
        """Verify tokens by ``tokens``; look organisations and clean rooms up in ``book``."""
        self._book, self._tokens, self._quotas = book, tokens, quotas

    async def __call__(self, request: Request) -> None:
        """Authenticate and authorise the caller; for :data:`DEFERRED` operations the route does. Raises: Problem."""
        operation = getattr(request.scope.get("route"), "operation_id", None) or ""
        if operation in PUBLIC:
            if operation not in _HEALTH:
                self._quotas.admit_anonymous(request.scope)
            return
        unknown = request.state.unknown = UnauthenticatedRequest(request, self._tokens, operation, self._quotas)
        if operation not in DEFERRED:
            await run_sync(self._let_in, unknown)

    def _let_in(self, unknown: UnauthenticatedRequest) -> None:
        with self._book.read() as facts:
            unknown.authenticate(facts)


def _bearer(request: Request) -> str:
    """The one bearer token; empty if there is none."""
    values = request.headers.getlist("authorization")
    scheme, _, token = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == _SCHEME else ""


def _room_key(facts: Facts, key_id: str) -> str | None:
    key = facts.keys.get(key_id)
    return key.x if key is not None and key.charge is not None else None


def caller_of_token(token: Token, facts: Facts) -> Caller:
    """The caller of a verified token, with the roles on record, or with those that its issuer gives."""
    if token.key_id:
        charge = facts.charges[str(facts.keys[token.key_id].charge)]
        return Caller(charge.actor, (CCR,), charge.id)
    if token.roles:
        # An auditor or an operator has no other role: an auditor writes nothing.
        return Caller(token.organisation, token.roles)
    organisation = facts.organisations.get(token.organisation)
    return Caller(token.organisation, organisation.roles if organisation is not None else ("",))


async def caller_of(request: Request) -> Caller:
    """The authenticated caller. Raises: AttributeError, where a route was not authenticated."""
    caller: Caller = request.state.caller
    return caller


async def unauthenticated_request(request: Request) -> UnauthenticatedRequest:
    """The request that the route itself authenticates, or authenticates again while it lasts."""
    unknown: UnauthenticatedRequest = request.state.unknown
    return unknown


Calling = Annotated[Caller, Depends(caller_of)]
DeferredCaller = Annotated[UnauthenticatedRequest, Depends(unauthenticated_request)]
