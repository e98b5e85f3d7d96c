"""Where an issuer gives tokens to machines, and by which name of the algorithm it takes their assertions.

An issuer says so in its metadata (OpenID Connect Discovery 1.0, section 4; RFC 8414). Of one that publishes none the
endpoint is ``/token`` under its name.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import httpx

from client.http.base_url import base_of, is_loopback, require_private
from client.http.bounded_answer import read_answer
from client.http.problems import Unreachable
from client.http.tls_context import tls_context
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

TIMEOUT_S: Final = 10.0
ANSWER_S: Final = 30.0
"""How long one answer of an issuer may take, from its request to its last byte."""
ANSWER_BYTES_MAX: Final = 65_536
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_ALGORITHMS: Final = "token_endpoint_auth_signing_alg_values_supported"
_NAMES: Final = ("Ed25519", "EdDSA")
"""The name of RFC 9864, and the one of RFC 8037 that most issuers know."""


class TokenEndpoint(NamedTuple):
    """Where assertions are sent, the audience that they name, and their ``alg``."""

    url: str
    audience: str
    algorithm: str = _NAMES[0]


def token_endpoint(issuer: str) -> TokenEndpoint:
    """The endpoint of ``issuer``, a URL without a slash at its end.

    Raises:
        Malformed: if it is no such URL, it or the endpoint is one that anyone on the way can read, or its metadata has
            another name or cannot be read.
        Unreachable: if it does not answer.
    """
    require_private(base_of(issuer, "issuer"), "issuer")
    response = fetch_answer(issuer, None)
    if response.status_code == httpx.codes.NOT_FOUND:
        return TokenEndpoint(f"{issuer}/token", f"{issuer}/token")
    document = c.parse(response.content, ANSWER_BYTES_MAX, "metadata")
    if not isinstance(document, dict) or str(document.get("issuer")).rstrip("/") != issuer:
        raise Malformed("metadata.issuer", f"is not {issuer}, which the profile names")
    url = require_private(
        c.string(document.get("token_endpoint"), "metadata.token_endpoint"), "metadata.token_endpoint"
    )
    listed = document.get(_ALGORITHMS)
    taken = [name for name in _NAMES if name in listed] if isinstance(listed, list) else []
    return TokenEndpoint(url, str(document["issuer"]), (taken or _NAMES)[0])


def fetch_answer(issuer: str, form: dict[str, str] | None, url: str = "") -> httpx.Response:
    """The answer to a form that is posted to ``url``, or without one the issuer's metadata.

    Raises:
        Unreachable: if it does not answer. Malformed: with more than ``ANSWER_BYTES_MAX``.
    """
    trust_env = not is_loopback(httpx.URL(issuer).host)
    with httpx.Client(timeout=TIMEOUT_S, trust_env=trust_env, verify=tls_context(trust_env=trust_env)) as http:
        try:
            place = ("GET", issuer + _WELL_KNOWN) if form is None else ("POST", url)
            return read_answer(http, http.build_request(*place, data=form), ANSWER_BYTES_MAX, ANSWER_S)
        except httpx.RequestError as error:
            message = f"no answer from the issuer {issuer} ({type(error).__name__}; is it running?)"
            raise Unreachable(message, sent=False) from error


def resource_of(audience: str) -> dict[str, str]:
    """The audience as a resource (RFC 8707), which has to be an absolute URI; a log's origin need not be one."""
    return {"resource": audience} if ":" in audience.partition("/")[0] else {}
