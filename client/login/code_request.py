"""One request for an authorization code, and the exchange of the code for tokens (RFC 6749, RFC 7636).

    browser -> issuer    response_type=code, client_id, redirect_uri, scope, resource, state, nonce, code_challenge
    issuer  -> browser   REDIRECT_URI?code=...&state=...&iss=...
    here    -> issuer    grant_type=authorization_code, code, code_verifier, client_id, redirect_uri, resource
    issuer  -> here      access_token, expires_in, id_token

A login that someone else began fails here: its answer lacks our state, its code our verifier, its ID token our nonce.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Self
from urllib.parse import urlencode

import httpx

from client.http.token_endpoint import resource_of
from client.login.discovery import Metadata, error_text, fetch_json, login_failed
from client.login.id_token import subject_of
from client.profile.token_store import TOKEN_LENGTH_MAX
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

LIFE_S_MAX: Final = 86_400
_CODE_LENGTH_MAX: Final = 4_096


class Granted(NamedTuple):
    """What an issuer gave for a code: an access token, its end (Unix seconds), and the person's identifier."""

    access_token: str
    expires_s: int
    subject: str


@dataclass(frozen=True, slots=True)
class CodeRequest:
    """A request for a code.

    Attributes:
        resource: what the access token is to be for; it is sent (RFC 8707) where it is an absolute URI.
        state: random, as ``nonce`` and ``verifier``; the browser that holds all three began this login.
    """

    client_id: str
    redirect_uri: str
    resource: str
    scope: str
    state: str
    nonce: str
    verifier: str

    @classmethod
    def fresh(cls, client_id: str, redirect_uri: str, resource: str, scope: str) -> Self:
        """One with 256 random bits each: the answer, the ID token and the code of another login lack them."""
        return cls(client_id, redirect_uri, resource, scope, *(secrets.token_urlsafe(32) for _ in range(3)))

    def url(self, issuer: Metadata) -> str:
        """Where the browser of the person is sent."""
        request = {
            **self._shared,
            # S256 of the verifier (RFC 7636, section 4.2)
            "code_challenge": c.base64url(hashlib.sha256(self.verifier.encode("ascii")).digest()),
            "code_challenge_method": "S256",
            "nonce": self.nonce,
            "response_type": "code",
            "scope": self.scope,
            "state": self.state,
        }
        # The issuer's own address may have a query (RFC 6749, section 3.1).
        return f"{issuer.authorization}{'&' if '?' in issuer.authorization else '?'}{urlencode(request)}"

    def code_in(self, answer: Mapping[str, str], issuer: Metadata) -> str:
        """The code in an answer to this login, from this issuer. Raises: Refused."""
        if not secrets.compare_digest(answer.get("state", "").encode(), self.state.encode()):
            raise login_failed("the browser returned the answer to another login (state): log in again")
        # Checked before anything else is believed: another issuer's code must not be sent to this one (RFC 9207, 2.4).
        if answer.get("iss", "" if issuer.names_itself else issuer.issuer) != issuer.issuer:
            raise login_failed(f"the browser returned another issuer's answer (iss), not {issuer.issuer}'s")
        if "error" in answer:
            text = error_text(answer["error"], answer.get("error_description"))
            raise login_failed(f"the issuer refused the login: {text}")
        code = answer.get("code", "")
        if not 1 <= len(code) <= _CODE_LENGTH_MAX:
            raise login_failed("the browser returned no code")
        return code

    def exchange(self, http: httpx.Client, issuer: Metadata, code: str, now_s: int) -> Granted:
        """The tokens for a code, verified at ``now_s`` (Unix seconds). Raises: Refused, Unreachable, Malformed."""
        form = {**self._shared, "code": code, "code_verifier": self.verifier, "grant_type": "authorization_code"}
        answer, keys = fetch_json(http, issuer.token, form), fetch_json(http, issuer.keys)
        try:
            return self._granted(issuer, answer, keys, now_s)
        except Malformed as error:
            raise login_failed(f"the issuer's answer is refused: {error}") from None

    def _granted(self, issuer: Metadata, answer: c.Object, keys: c.Object, now_s: int) -> Granted:
        """Verify the answer of the token endpoint and its ID token. Raises: Malformed."""
        if str(answer.get("token_type", "")).lower() != "bearer":
            raise Malformed("token_type", "must be 'Bearer'")
        token = c.string(answer.get("access_token"), "access_token", TOKEN_LENGTH_MAX)
        life_s = c.integer(answer.get("expires_in"), "expires_in", 1, LIFE_S_MAX)
        subject = subject_of(
            c.string(answer.get("id_token"), "id_token", TOKEN_LENGTH_MAX),
            keys,
            issuer=issuer.issuer,
            client_id=self.client_id,
            nonce=self.nonce,
            access_token=token,
            now=now_s,
        )
        # The life counts from the request, so the stored expiry is never later than the token's own.
        return Granted(token, now_s + life_s, subject)

    @property
    def _shared(self) -> dict[str, str]:
        return {"client_id": self.client_id, "redirect_uri": self.redirect_uri, **resource_of(self.resource)}
