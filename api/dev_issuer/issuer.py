"""The development issuer: an OAuth 2.0 and OpenID Connect server for one machine.

Machines get tokens for a ``private_key_jwt`` assertion (RFC 7523) signed with their registered key, people by
authorization code with PKCE (RFC 7636, S256). To log in is to choose a person from a list: there is no real
authentication, so the issuer is bound to loopback, and a service in production refuses it.

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

Clients are named with the file of their public key as a JWK (``.jwk``) or, where they lie side by side on one machine,
of their private key, of which only the public half is used. Paths are relative to the profile.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import urlencode, urlsplit

from joserfc.jwk import OKPKey
from msgspec import Meta

from api.auth.access_tokens import check_signature
from api.server.http_server import check_loopback
from client.http.access_tokens import ASSERTION
from client.http.jwt_claim_checks import SKEW_S, JwtClaims
from client.keys.signer import Signer
from client.profile.profile import read_table
from ledger.crypto.public_keys import PublicKey
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, Name, between, distinct, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert

LIFE_S: Final = 300
CODE_S: Final = 60
FORM_BYTES_MAX: Final = 16_384
OPEN_MAX: Final = 4_096
JWK_BYTES_MAX: Final = 2_000
NO_PERSON: Final = "-"
"""The choice of none of the people; no person's name begins so."""


_ASSERTED: Final = ("aud", "exp", "iat", "iss", "jti", "sub")
_File = Annotated[str, text(1_000)]


class Person(Record, frozen=True):
    """A person that a browser may log in as."""

    organisation: Annotated[Did, Meta(description="whom the person's tokens name")]
    roles: Annotated[
        tuple[Literal["AUDITOR", "OPERATOR"], ...], distinct(2), Meta(description="what the tokens say the person is")
    ] = ()


class Refused(Exception):  # noqa: N818 - the glossary's word
    """An OAuth error (RFC 6749, section 5.2)."""

    def __init__(self, error: str, description: str) -> None:
        """``error`` is one of the standard's words."""
        super().__init__(description)
        self.error = error


class DevelopmentIssuer:
    """Clients with their keys, people without, and the codes and assertions of the last minutes."""

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
        self.url, self.audience, self.people = url, audience, people
        self._clients, self._clock = dict(clients), clock
        self._signer = signer
        self._lock = threading.Lock()
        self._used: dict[str, int] = {}
        self._codes: dict[str, tuple[int, Mapping[str, str]]] = {}

    def add(self, client: str, key: PublicKey) -> None:
        """Register one more client."""
        self._clients[client] = key

    @property
    def jwks(self) -> bytes:
        """Its public key as a JWK Set."""
        return c.dump({"keys": [{**self._signer.jwk, "kid": self._signer.key_id}]})

    def client_credentials(self, form: Mapping[str, str]) -> c.Object:
        """A token for a machine (RFC 6749, section 4.4). Raises: Refused."""
        client = self._authenticated(form)
        return self._grant({"client_id": client, "sub": client})

    def authorize(self, form: Mapping[str, str]) -> str:
        """The redirect after a person, or none, was chosen (RFC 6749, section 4.1.2). Raises: Refused."""
        _check_redirect(form.get("redirect_uri", ""))
        person = form.get("person", "")
        if person == NO_PERSON:
            return self._redirect(form, {"error": "access_denied", "error_description": "no person was chosen"})
        if person not in self.people:
            raise Refused("access_denied", "choose one of the people on the page")
        if form.get("response_type") != "code" or form.get("code_challenge_method") != "S256":
            raise Refused("invalid_request", "response_type must be 'code' and code_challenge_method 'S256'")
        if len(form.get("code_challenge", "")) != 43:
            raise Refused("invalid_request", "code_challenge must be 43 characters of base64url")
        code = secrets.token_urlsafe(24)
        with self._lock:
            self._forget()
            self._codes[code] = self._now + CODE_S, dict(form)
        return self._redirect(form, {"code": code})

    def authorization_code(self, form: Mapping[str, str]) -> c.Object:
        """A token for a person (RFC 7636, section 4.6); a code works once. Raises: Refused."""
        with self._lock:
            self._forget()
            _, request = self._codes.pop(form.get("code", ""), (0, None))
        verifier = form.get("code_verifier", "")
        if not 43 <= len(verifier) <= 128 or not verifier.isascii():
            raise Refused("invalid_grant", "code_verifier must have 43 to 128 characters")
        made = c.base64url(hashlib.sha256(verifier.encode()).digest())
        if (
            request is None
            or not hmac.compare_digest(made.encode(), request["code_challenge"].encode())
            or any(form.get(name, "") != request.get(name, "") for name in ("client_id", "redirect_uri"))
        ):
            raise Refused("invalid_grant", "the code is unknown, used, expired, or another client's")
        name, client = request["person"], request.get("client_id") or "browser"
        person = self.people[name]
        roles: c.Object = {"roles": [*person.roles]} if person.roles else {}
        answer = self._grant({"client_id": client, "organisation": person.organisation, "sub": name, **roles})
        nonce: c.Object = {"nonce": request["nonce"]} if request.get("nonce") else {}
        identity: c.Object = {"aud": client, "sub": name, **nonce, **self._times()}
        return {**answer, "id_token": self._signer.jwt("JWT", {"iss": self.url, **identity})}

    def _authenticated(self, form: Mapping[str, str]) -> str:
        if form.get("client_assertion_type") != ASSERTION:
            raise Refused("invalid_client", f"client_assertion_type must be '{ASSERTION}'")
        try:
            return self._asserted(form.get("client_assertion", ""))
        except Malformed as error:
            raise Refused("invalid_client", f"the client assertion is refused: {error}") from None

    def _asserted(self, text: str) -> str:
        """Verify a client assertion and give its client (RFC 7523, section 3). Raises: Malformed."""
        parts = text.split(".") if len(text) <= FORM_BYTES_MAX else []
        if len(parts) != 3:
            raise Malformed("client_assertion", "must be a compact JWS")
        claims = c.fields(c.parse(c.unbase64url(parts[1], "claims"), FORM_BYTES_MAX, "claims"), "claims", _ASSERTED)
        client = c.did(claims["sub"], "sub")
        key = self._clients.get(client)
        if key is None or claims["iss"] != client:
            raise Malformed("sub", "is no client that this issuer knows, or not the iss")
        check_signature(text, "Ed25519", [OKPKey.import_key({"crv": key.curve, "kty": "OKP", "x": key.x})])
        required = JwtClaims(self._now, life_s_max=LIFE_S, aud={"values": [self.url, f"{self.url}/token"]})
        required.check(claims)
        jti = c.string(claims["jti"], "jti", 200)
        with self._lock:
            self._forget()
            if jti in self._used or len(self._used) >= OPEN_MAX:
                raise Malformed("jti", "was used before")
            self._used[jti] = claims["exp"] + SKEW_S
        return client

    def _redirect(self, form: Mapping[str, str], answer: Mapping[str, str]) -> str:
        """The redirect URI with an answer, ``iss`` (RFC 9207) and ``state``."""
        query = urlencode({**answer, "iss": self.url, "state": form.get("state", "")})
        return f"{form['redirect_uri']}?{query}"

    @property
    def _now(self) -> int:
        return self._clock() // 1000

    def _forget(self) -> None:
        now = self._now
        self._used = {jti: until for jti, until in self._used.items() if until > now}
        self._codes = {name: code for name, code in self._codes.items() if code[0] > now}

    def _times(self) -> c.Object:
        return {"exp": self._now + LIFE_S, "iat": self._now}

    def _grant(self, claims: c.Object) -> c.Object:
        body: c.Object = {"aud": self.audience, "iss": self.url, "jti": secrets.token_urlsafe(16), **self._times()}
        token = self._signer.jwt("at+jwt", {**body, **claims})
        return {"access_token": token, "expires_in": LIFE_S, "token_type": "Bearer"}


def _check_redirect(url: str) -> None:
    """Raises: Refused, unless it is on this machine and has no query."""
    try:
        parsed = urlsplit(url)
        check_loopback(parsed.hostname or "")
        allowed = parsed.scheme == "http" and not parsed.query and not parsed.fragment
    except ValueError:
        allowed = False
    if not allowed:
        raise Refused("invalid_request", "redirect_uri must be an http address on loopback, without a query")


def _public_key(path: Path) -> PublicKey:
    """Of a public JWK or of a private key. Raises: Malformed, OSError."""
    if path.suffix != ".jwk":
        return Signer.load(path).public
    with path.open("rb") as file:
        jwk = c.parse(file.read(JWK_BYTES_MAX + 1), JWK_BYTES_MAX, str(path))
    return PublicKey.parse(jwk, str(path), "Ed25519")


class IssuerSettings(Record, frozen=True):
    """The table ``[issuer]``."""

    audience: Annotated[str, text(200, description="for which log the tokens are: its origin")]
    clients: Annotated[
        dict[Did, _File], Meta(max_length=256, description="by DID the file of an organisation's JWK or private key")
    ]
    host: Annotated[str, text(1_000, description="the address to listen on: of loopback alone")]
    key: Annotated[_File, Meta(description="the file of the issuer's own private key")]
    port: Annotated[int, between(0, 65_535), Meta(description="the port to listen on; 0 takes a free one")]
    people: Annotated[
        Annotated[dict[Name, Person], Meta(max_length=256)] | None,
        Meta(description="by name, who may log in without authentication"),
    ] = None

    @classmethod
    def load(cls, path: Path) -> IssuerSettings:
        """Read a profile. Raises: Malformed, OSError."""
        return convert(cls, read_table(path, "issuer"), "issuer")

    def issuer(self, folder: Path, url: str, clock: Callable[[], int]) -> DevelopmentIssuer:
        """The issuer at ``url``, with the key files of a profile's folder. Raises: Malformed, OSError."""
        clients = {did: _public_key(folder / file) for did, file in self.clients.items()}
        signer = Signer.load(folder / self.key)
        return DevelopmentIssuer(url, self.audience, signer, clients, self.people or {}, clock)
