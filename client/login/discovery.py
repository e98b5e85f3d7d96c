"""The metadata of an issuer (OpenID Connect Discovery 1.0, section 4), and requests to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import httpx

from client.http.base_url import is_loopback, require_private
from client.http.bounded_answer import read_answer
from client.http.problems import Refused, Unreachable
from client.http.tls_context import tls_context
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 65_536
ANSWER_S: Final = 30.0
"""How long one answer of an issuer may take, from its request to its last byte."""
LOGIN_FAILED: Final = "login_failed"
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_NAMES_ITSELF: Final = "authorization_response_iss_parameter_supported"
_ERROR_LENGTH_MAX: Final = 200


def login_failed(why: str) -> Refused:
    """A login that failed, in a sentence that holds no secret."""
    return Refused(401, {"code": LOGIN_FAILED, "detail": why, "field": "client.issuer"})


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata of an issuer.

    Attributes:
        issuer: its name, a URL, compared letter by letter.
        authorization: where a person's browser is sent.
        token: where a code is exchanged for tokens.
        keys: where its public keys are, a JWK Set.
        names_itself: whether it puts ``iss`` into every authorization response (RFC 9207, section 3).
    """

    issuer: str
    authorization: str
    token: str
    keys: str
    names_itself: bool


def issuer_client(issuer: str) -> httpx.Client:
    """An HTTP client for one login, which follows no redirects. Raises: Malformed, unless https or on this machine."""
    require_private(issuer, "client.issuer")
    headers = {"accept": "application/json"}
    trust_env = not is_loopback(httpx.URL(issuer).host)
    verify = tls_context(trust_env=trust_env)
    return httpx.Client(timeout=TIMEOUT_S, trust_env=trust_env, headers=headers, verify=verify)


def discover(http: httpx.Client, issuer: str) -> Metadata:
    """The metadata of ``issuer``, which must name itself so (section 4.3).

    Raises:
        Malformed: if it has another name, or an endpoint is missing, or neither https nor http on this machine.
        Refused: if it answers with an error.
        Unreachable: if it does not answer.
    """
    document = fetch_json(http, issuer.rstrip("/") + _WELL_KNOWN)
    if document.get("issuer") != issuer:
        raise Malformed("metadata.issuer", f"is not {issuer}, which the profile names")
    authorization, token, keys = (
        require_private(c.string(document.get(name), f"metadata.{name}"), f"metadata.{name}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
    )
    methods = document.get("code_challenge_methods_supported", ["S256"])
    if not isinstance(methods, list) or "S256" not in methods:
        raise Malformed("metadata.code_challenge_methods_supported", "must have S256")
    names_itself = document.get(_NAMES_ITSELF, False)
    return Metadata(issuer, authorization, token, keys, c.boolean(names_itself, f"metadata.{_NAMES_ITSELF}"))


def fetch_json(http: httpx.Client, url: str, form: Mapping[str, str] | None = None) -> c.Object:
    """GET the JSON object at ``url``, or POST a form to it. Raises: Malformed, Refused, Unreachable."""
    try:
        request = http.build_request("GET" if form is None else "POST", url, data=form)
        response = read_answer(http, request, ANSWER_BYTES_MAX, ANSWER_S, "issuer")
    except httpx.RequestError as error:
        raise Unreachable(f"no answer from the issuer at {url.partition('?')[0]} ({type(error).__name__})") from error
    try:
        known = c.parse(response.content, ANSWER_BYTES_MAX, "issuer")
    except Malformed:
        if response.is_success:
            raise
        known = None
    if not response.is_success:
        text = error_text(known.get("error"), known.get("error_description")) if isinstance(known, dict) else ""
        raise login_failed(f"the issuer answers {text or response.status_code}")
    if not isinstance(known, dict):
        raise Malformed("issuer", "must answer with an object")
    return known


def error_text(error: object, description: object) -> str:
    """An OAuth error (RFC 6749, sections 4.1.2.1 and 5.2) for people: short, and without control characters."""
    text = ": ".join(part for part in (error, description) if isinstance(part, str) and part)
    return "".join(letter if letter.isprintable() else "?" for letter in text[:_ERROR_LENGTH_MAX])
