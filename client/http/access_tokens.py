"""Access tokens for the client: by client credentials from an issuer, or a clean room's own.

OAuth 2.0 client credentials (RFC 6749, section 4.4) with ``private_key_jwt`` (RFC 7523, section 2.2): the client proves
itself with its signing key, so there is no shared secret. A token lives minutes, is cached in memory, and is renewed
shortly before it expires.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from client.http.problems import Refused
from client.http.token_endpoint import ANSWER_BYTES_MAX, TokenEndpoint, fetch_answer, resource_of, token_endpoint
from client.keys.signer import Signer
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c

LIFE_S: Final = 300
EARLY_S: Final = 30
ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"


class Credentials(Protocol):
    """A source of access tokens."""

    def token(self) -> str:
        """A token that is still valid. Raises: Refused, Unreachable, Malformed."""


class ClientCredentials:
    """An organisation's own: a token from its issuer."""

    def __init__(
        self, issuer: str, client: str, signer: Signer, audience: str, clock: Callable[[], float] = time.time
    ) -> None:
        """Request tokens for ``audience`` from ``issuer`` (a URL) as ``client`` (a DID); ``clock`` in Unix seconds."""
        self._clock = clock
        self._issuer, self._client, self._signer, self._audience = issuer.rstrip("/"), client, signer, audience
        self._turn = threading.Lock()
        self._token, self._until = "", 0.0
        self._endpoint: TokenEndpoint | None = None

    def token(self) -> str:
        """The token of before, or a new one. Raises: Refused, Unreachable, Malformed."""
        with self._turn:
            if self._clock() >= self._until:
                self._token, life = self._request()
                self._until = self._clock() + life - EARLY_S
            return self._token

    def _request(self) -> tuple[str, int]:
        if self._endpoint is None:
            self._endpoint = token_endpoint(self._issuer)
        url, audience, algorithm = self._endpoint
        form = {
            "client_assertion": self._signer.jwt("JWT", _claims(self._client, audience, self._clock()), algorithm),
            "client_assertion_type": ASSERTION,
            "client_id": self._client,
            "grant_type": "client_credentials",
            **resource_of(self._audience),
        }
        response = fetch_answer(self._issuer, form, url)
        document = c.parse(response.content, ANSWER_BYTES_MAX, "token answer")
        if not isinstance(document, dict) or not response.is_success:
            reason = document.get("error_description") if isinstance(document, dict) else None
            detail = f"the issuer gave {self._client} no token: {str(reason or response.status_code)[:200]}"
            raise Refused(401, {"code": Code.NOT_AUTHORISED.word, "detail": detail, "field": "issuer"})
        return c.string(document.get("access_token"), "access_token", 8_192), c.integer(
            document.get("expires_in"), "expires_in", 1, 86_400
        )


class CleanRoomCredentials:
    """A clean room's own: signed with the key that its charge names, believed as soon as the charge is on record."""

    def __init__(self, signer: Signer, audience: str, clock: Callable[[], float] = time.time) -> None:
        """Sign with ``signer`` for ``audience``; ``clock`` gives Unix seconds."""
        self._signer, self._audience, self._clock = signer, audience, clock

    def token(self) -> str:
        """A fresh token of five minutes."""
        key_id = self._signer.key_id
        claims = {**_claims(key_id, self._audience, self._clock()), "client_id": key_id}
        return self._signer.jwt("at+jwt", claims)


def _claims(party: str, audience: str, now: float) -> c.Object:
    """The claims of a fresh token that a party signs for itself, for one audience."""
    return {
        "aud": audience,
        "exp": int(now) + LIFE_S,
        "iat": int(now),
        "iss": party,
        "jti": secrets.token_urlsafe(16),
        "sub": party,
    }
