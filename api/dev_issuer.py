"""The development issuer: an OAuth 2.0 and OpenID Connect server for one machine.

It gives machines tokens for a ``private_key_jwt`` assertion (RFC 7523) that their registered key signed, and people
tokens by authorization code with PKCE (RFC 7636, S256), where logging in is choosing who to be: it proves nothing about
anybody, is bound to loopback, and a service in production refuses it.

    [issuer]
    host = "127.0.0.1"
    port = 8100
    audience = "epsilon.example/ledger"
    key = "issuer.pem"

    [issuer.clients]
    "did:web:bank-a.example" = "bank-a.pem"

    [issuer.people.asha]
    organisation = "did:web:health-council.example"
    roles = ["AUDITOR"]
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final
from urllib.parse import parse_qs, urlencode, urlsplit

from cryptography.exceptions import InvalidSignature
from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from api.server import check_loopback
from client.signer import Signer
from client.tokens import ASSERTION
from ledger import canonical as c
from ledger.malformed import Malformed
from ledger.public_key import PublicKey

LIFE_S: Final = 300
CODE_S: Final = 60
SKEW_S: Final = 60
FORM_BYTES_MAX: Final = 16_384
OPEN_MAX: Final = 4_096
_TIME_S_MAX: Final = 253_402_300_799


@dataclass(frozen=True, slots=True)
class Person:
    """Who somebody may choose to be."""

    organisation: str
    roles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Code:
    person: str
    client: str
    redirect: str
    challenge: str
    expires: int


class Refused(Exception):  # noqa: N818 - what is the case
    """An OAuth error (RFC 6749, section 5.2)."""

    def __init__(self, error: str, description: str) -> None:
        """``error`` is one of the standard's words."""
        super().__init__(description)
        self.error = error


class DevelopmentIssuer:
    """Clients with their keys, people without, and what was handed out lately."""

    def __init__(  # noqa: PLR0913, PLR0917 - what an issuer is made of
        self,
        url: str,
        audience: str,
        signer: Signer,
        clients: Mapping[str, PublicKey],
        people: Mapping[str, Person],
        clock: Callable[[], int],
    ) -> None:
        """Issue as ``url`` for ``audience``; ``clock`` gives Unix milliseconds. Raises: Malformed, off loopback."""
        check_loopback(urlsplit(url).hostname or "")
        self.url, self.audience = url, audience
        self._clients, self._people, self._clock = dict(clients), dict(people), clock
        self._signer = signer
        self._turn = threading.Lock()
        self._seen: dict[str, int] = {}
        self._codes: dict[str, _Code] = {}

    def add(self, client: str, key: PublicKey) -> None:
        """Know one more client."""
        self._clients[client] = key

    @property
    def jwks(self) -> bytes:
        """Its public key as a JWK Set."""
        return c.dump({"keys": [{**self._signer.jwk, "kid": self._signer.key_id}]})

    @property
    def people(self) -> Mapping[str, Person]:
        """Who there is to choose from."""
        return self._people

    def client_credentials(self, form: Mapping[str, str]) -> c.Object:
        """A token for a machine (RFC 6749, section 4.4). Raises: Refused."""
        client = self._authenticated(form)
        return self._grant({"client_id": client, "sub": client})

    def authorize(self, form: Mapping[str, str]) -> str:
        """Where to send a person who chose who to be, with a code (RFC 6749, section 4.1). Raises: Refused."""
        person, redirect = form.get("person", ""), form.get("redirect_uri", "")
        _check_redirect(redirect)
        if person not in self._people:
            raise Refused("access_denied", "choose one of the people on the page")
        if form.get("response_type") != "code" or form.get("code_challenge_method") != "S256":
            raise Refused("invalid_request", "response_type must be 'code' and code_challenge_method 'S256'")
        challenge = form.get("code_challenge", "")
        if len(challenge) != 43:
            raise Refused("invalid_request", "code_challenge must be 43 characters of base64url")
        code = secrets.token_urlsafe(24)
        with self._turn:
            self._forget()
            expires = self._now + CODE_S
            self._codes[code] = _Code(person, form.get("client_id", ""), redirect, challenge, expires)
        return f"{redirect}?{urlencode({'code': code, 'iss': self.url, 'state': form.get('state', '')})}"

    def authorization_code(self, form: Mapping[str, str]) -> c.Object:
        """A token for a person (RFC 7636, section 4.6); a code works once. Raises: Refused."""
        with self._turn:
            self._forget()
            code = self._codes.pop(form.get("code", ""), None)
        verifier = form.get("code_verifier", "")
        if not 43 <= len(verifier) <= 128 or not verifier.isascii():
            raise Refused("invalid_grant", "code_verifier must have 43 to 128 characters")
        made = c.base64url(hashlib.sha256(verifier.encode()).digest())
        if (
            code is None
            or not hmac.compare_digest(made, code.challenge)
            or form.get("redirect_uri", "") != code.redirect
            or form.get("client_id", "") != code.client
        ):
            raise Refused("invalid_grant", "the code is unknown, used, expired, or another's")
        person = self._people[code.person]
        claims: c.Object = {
            "client_id": code.client or "browser",
            "organisation": person.organisation,
            "sub": code.person,
        }
        answer = self._grant({**claims, **({"roles": [*person.roles]} if person.roles else {})})
        identity: c.Object = {"aud": code.client or "browser", "sub": code.person, **self._times()}
        return {**answer, "id_token": self._signer.jwt("JWT", {"iss": self.url, **identity})}

    def _authenticated(self, form: Mapping[str, str]) -> str:
        if form.get("client_assertion_type") != ASSERTION:
            raise Refused("invalid_client", f"client_assertion_type must be '{ASSERTION}'")
        try:
            return self._asserted(form.get("client_assertion", ""))
        except Malformed as fault:
            raise Refused("invalid_client", f"the client assertion is refused: {fault}") from None

    def _asserted(self, text: str) -> str:
        """The client that signed an assertion (RFC 7523, section 3). Raises: Malformed."""
        parts = text.split(".") if len(text) <= FORM_BYTES_MAX else []
        if len(parts) != 3:
            raise Malformed("client_assertion", "must be a compact JWS")
        known = c.fields(c.parse(c.unbase64url(parts[1], "claims"), FORM_BYTES_MAX, "claims"), "claims", _ASSERTED)
        client = c.did(known["sub"], "sub")
        key = self._clients.get(client)
        if key is None or known["iss"] != client:
            raise Malformed("sub", "is no client that this issuer knows, or not the iss")
        try:
            jws.deserialize_compact(
                text, OKPKey.import_key({"crv": key.curve, "kty": "OKP", "x": key.x}), algorithms=["Ed25519"]
            )
        except (JoseError, InvalidSignature, ValueError):
            raise Malformed("signature", "does not verify with the client's key") from None
        self._check_assertion(known)
        return client

    def _check_assertion(self, known: Mapping[str, Any]) -> None:
        if known["aud"] not in (f"{self.url}/token", self.url):
            raise Malformed("aud", "must be this issuer's token endpoint")
        issued, expires = (c.integer(known[name], name, 0, _TIME_S_MAX) for name in ("iat", "exp"))
        if not 0 < expires - issued <= LIFE_S or issued > self._now + SKEW_S or self._now >= expires + SKEW_S:
            raise Malformed("exp", f"must be now, and after iat by at most {LIFE_S} s")
        jti = c.string(known["jti"], "jti", 200)
        with self._turn:
            self._forget()
            if jti in self._seen or len(self._seen) >= OPEN_MAX:
                raise Malformed("jti", "was used before")
            self._seen[jti] = expires + SKEW_S

    @property
    def _now(self) -> int:
        return self._clock() // 1000

    def _forget(self) -> None:
        now = self._now
        self._seen = {jti: until for jti, until in self._seen.items() if until > now}
        self._codes = {name: code for name, code in self._codes.items() if code.expires > now}

    def _times(self) -> c.Object:
        return {"exp": self._now + LIFE_S, "iat": self._now}

    def _grant(self, claims: c.Object) -> c.Object:
        body: c.Object = {"aud": self.audience, "iss": self.url, "jti": secrets.token_urlsafe(16), **self._times()}
        token = self._signer.jwt("at+jwt", {**body, **claims})
        return {"access_token": token, "expires_in": LIFE_S, "token_type": "Bearer"}


def _check_redirect(url: str) -> None:
    """Raises: Refused, unless it leads to this machine, with no query to add to."""
    try:
        known = urlsplit(url)
        check_loopback(known.hostname or "")
        sound = known.scheme == "http" and not known.query and not known.fragment
    except ValueError:
        sound = False
    if not sound:
        raise Refused("invalid_request", "redirect_uri must be an http address on loopback, without a query")


_ASSERTED: Final = ("aud", "exp", "iat", "iss", "jti", "sub")


def create_issuer_app(issuer: DevelopmentIssuer) -> FastAPI:
    """The issuer over HTTP: discovery, keys, a page to choose from, and tokens."""
    app = FastAPI(title="Development issuer", docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(Refused)
    def _refused(_request: Request, fault: Refused) -> Response:
        status = 401 if fault.error == "invalid_client" else 400
        return _json({"error": fault.error, "error_description": str(fault)}, status)

    @app.get("/.well-known/openid-configuration")
    def configuration() -> Response:
        return _json(
            {
                "authorization_endpoint": f"{issuer.url}/authorize",
                "code_challenge_methods_supported": ["S256"],
                "grant_types_supported": ["authorization_code", "client_credentials"],
                "id_token_signing_alg_values_supported": ["Ed25519"],
                "issuer": issuer.url,
                "jwks_uri": f"{issuer.url}/jwks",
                "response_types_supported": ["code"],
                "subject_types_supported": ["public"],
                "token_endpoint": f"{issuer.url}/token",
                "token_endpoint_auth_methods_supported": ["private_key_jwt"],
            }
        )

    @app.get("/jwks")
    def jwks() -> Response:
        return Response(issuer.jwks, media_type="application/jwk-set+json")

    @app.get("/authorize")
    def choose(request: Request) -> Response:
        if "person" in request.query_params:
            return RedirectResponse(issuer.authorize(dict(request.query_params)), 303)
        links = "".join(
            f'<li><a href="/authorize?{escape(urlencode({**dict(request.query_params), "person": name}))}">'
            f"{escape(name)}, {escape(person.organisation)} {escape(' '.join(person.roles))}</a></li>"
            for name, person in issuer.people.items()
        )
        page = f"<!doctype html><title>Development issuer</title><h1>Who are you?</h1><ul>{links}</ul>"
        return HTMLResponse(page, headers={"content-security-policy": "default-src 'none'"})

    @app.post("/token")
    async def token(request: Request) -> Response:
        form = await _form(request)
        if form.get("grant_type") == "client_credentials":
            return _json(issuer.client_credentials(form))
        if form.get("grant_type") == "authorization_code":
            return _json(issuer.authorization_code(form))
        raise Refused("unsupported_grant_type", "grant_type must be client_credentials or authorization_code")

    return app


async def _form(request: Request) -> dict[str, str]:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > FORM_BYTES_MAX:
            raise Refused("invalid_request", f"the form has more than {FORM_BYTES_MAX} bytes")
    try:
        fields = parse_qs(body.decode("ascii"), strict_parsing=True, keep_blank_values=True, max_num_fields=32)
    except ValueError:
        raise Refused("invalid_request", "the body must be a form") from None
    if any(len(values) != 1 for values in fields.values()):
        raise Refused("invalid_request", "a field is given twice")
    return {name: values[0] for name, values in fields.items()}


def _json(value: c.Object, status: int = 200) -> Response:
    return Response(c.dump(value), status, {"cache-control": "no-store"}, "application/json")
