"""Logging in to the console: OpenID Connect's authorization code flow with PKCE, its state in a sealed cookie.

    GET /console/login?issuer=...&next=...   sets the cookie, and sends the browser to the issuer
    GET /console/callback?code=...           checks state, iss and nonce, exchanges the code, sets the session

The access token is verified as the API verifies it, by the issuer's pinned keys, and is not kept: the session holds
its claims, until it would have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple, Self

from api.auth.access_tokens import Issuer, Token, TokenInvalid, Tokens
from api.console.frame.addresses import address, local_path
from api.console.session.sealed_cookies import SealedCookies
from api.console.session.session import LIFE_S, Session
from client.login.code_request import CodeRequest
from client.login.discovery import discover, issuer_client, login_failed
from client.profile.profile import SCOPE
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

LOGIN_S: Final = 600
"""How long a person may take at the issuer."""
CLIENT_ID: Final = "epsilon-console"
SESSION: Final = "session"
LOGIN: Final = "login"
_REQUEST: Final = ("client_id", "nonce", "redirect_uri", "resource", "scope", "state", "verifier")


@dataclass(frozen=True, slots=True)
class LoginTerms:
    """How the console is known to its issuers: the table ``[serve.console]`` of a profile.

    Attributes:
        client_id: of a public client (RFC 6749, section 2.1) whose redirect URI is this service's /console/callback.
        scope: what is requested; ``openid`` is among it.
        issuers: those at which people log in; all that the service trusts where it is empty.
    """

    client_id: str = CLIENT_ID
    scope: str = SCOPE
    issuers: tuple[str, ...] = ()

    @classmethod
    def parse(cls, value: object, where: str, trusted: Collection[str]) -> Self:
        """Read the table; its issuers are among those that the service trusts. Raises: Malformed."""
        members = c.fields(value, where, (), ("client_id", "scope", "issuers"))
        scope = c.string(members.get("scope", SCOPE), f"{where}.scope", 1_000)
        if SCOPE not in scope.split(" "):
            raise Malformed(f"{where}.scope", "must be words between spaces, with 'openid' among them")
        named = c.strings(members["issuers"], f"{where}.issuers", len(trusted)) if "issuers" in members else ()
        if unknown := [name for name in named if name not in trusted]:
            raise Malformed(f"{where}.issuers", f"names {unknown[0]}, which serve.issuers does not")
        return cls(c.string(members.get("client_id", CLIENT_ID), f"{where}.client_id", 200), scope, named)


class Begun(NamedTuple):
    """A login that has begun: where the browser goes, and the header field that it takes along."""

    location: str
    cookie: str


class Finished(NamedTuple):
    """A login that has ended well: the header fields, and where the browser goes on."""

    cookies: tuple[str, ...]
    location: str


class Logins:
    """Logs people in to one service."""

    def __init__(  # noqa: PLR0913 - what a login is made of
        self,
        tokens: Tokens,
        issuers: Callable[[], Iterable[Issuer]],
        cookies: SealedCookies,
        clock: Callable[[], int],
        *,
        url: str,
        audience: str,
        terms: LoginTerms,
    ) -> None:
        """For the service at ``url``, whose tokens name ``audience``; ``clock`` gives Unix milliseconds."""
        self._tokens, self._issuers, self._cookies, self._clock = tokens, issuers, cookies, clock
        self._redirect, self._audience, self._terms = f"{url}{address('callback')}", audience, terms

    @property
    def issuers(self) -> tuple[str, ...]:
        """The issuers at which people may log in, by name."""
        return tuple(
            issuer.name for issuer in self._issuers() if not self._terms.issuers or issuer.name in self._terms.issuers
        )

    def begin(self, issuer: str, following: str) -> Begun:
        """Send a browser to an issuer. Raises: Malformed, Refused, Unreachable."""
        if issuer not in self.issuers:
            raise Malformed("issuer", "is none of those at which people log in here")
        with issuer_client(issuer) as http:
            metadata = discover(http, issuer)
        request = CodeRequest.fresh(self._terms.client_id, self._redirect, self._audience, self._terms.scope)
        sealed: c.Object = {
            "ends": self._now_s + LOGIN_S,
            "issuer": issuer,
            "next": local_path(following),
            "request": {**asdict(request)},
        }
        return Begun(request.url(metadata), self._cookies.set(LOGIN, self._cookies.seal(LOGIN, sealed), LOGIN_S))

    def finish(self, answer: Mapping[str, str], header: str) -> Finished:
        """Take an issuer's answer, with the cookies of the browser that brings it.

        Raises:
            Refused: if it belongs to no login that this browser began, or the issuer refuses.
            Malformed, Unreachable: if the issuer's metadata are invalid, or it does not answer.
        """
        begun = self._cookies.open(LOGIN, header)
        if begun is None or int(str(begun.get("ends", 0))) <= self._now_s:
            raise login_failed("this browser began no login here within ten minutes: log in again")
        issuer, request = str(begun["issuer"]), _request_in(begun)
        with issuer_client(issuer) as http:
            metadata = discover(http, issuer)
            code = request.code_in(answer, metadata)
            granted = request.exchange(http, metadata, code, self._now_s)
        token = self._verified(granted.access_token)
        session = Session.begin(token, issuer, self._now_s, granted.expires_s)
        if not self._speaks_for(session):
            raise login_failed(f"{issuer} may not speak for {token.organisation} here")
        sealed = self._cookies.seal(SESSION, session.to_json())
        cookies = (
            self._cookies.set(SESSION, sealed, session.ends_s - self._now_s),
            self._cookies.set(LOGIN, "", 0),
        )
        return Finished(cookies, local_path(str(begun["next"])))

    def session(self, header: str) -> Session | None:
        """The session of a request's cookies; None if there is none, or it has ended, or its issuer is trusted no more.

        A clock that goes back lengthens no session: one that would last longer than a session may is none.
        """
        known = self._cookies.open(SESSION, header)
        session = None if known is None else Session.parse(known)
        return session if session is not None and self._is_live(session) and self._speaks_for(session) else None

    def _is_live(self, session: Session) -> bool:
        return self._now_s < session.ends_s <= self._now_s + LIFE_S

    def _speaks_for(self, session: Session) -> bool:
        """Whether the issuer of a session is trusted, for this organisation and these roles."""
        issuer = next((known for known in self._issuers() if known.name == session.issuer), None)
        if issuer is None or session.issuer not in self.issuers:
            return False
        try:
            issuer.bounds.check(session.organisation, session.roles)
        except Malformed:
            return False
        return True

    def _verified(self, access_token: str) -> Token:
        """What an access token says of a person. Raises: Refused."""
        try:
            return self._tokens.verify(access_token, lambda _: None)
        except TokenInvalid as error:
            raise login_failed(f"the issuer's access token is refused: {error}") from None

    @property
    def _now_s(self) -> int:
        return self._clock() // 1000


def _request_in(begun: c.Object) -> CodeRequest:
    members = c.fields(begun["request"], "request", _REQUEST)
    return CodeRequest(**{name: str(value) for name, value in members.items()})
