"""What an issuer says of itself (OpenID Connect Discovery 1.0, section 4), and how it is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import httpx

from client.http.base_url import is_loopback, sealed
from client.http.problems import Refused, Unreachable
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

TIMEOUT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 65_536
LOGIN_FAILED: Final = "login_failed"
_WELL_KNOWN: Final = "/.well-known/openid-configuration"
_NAMES_ITSELF: Final = "authorization_response_iss_parameter_supported"
_TOLD_MAX: Final = 200


def failed(why: str) -> Refused:
    """A login that came to nothing, in a sentence that holds no secret."""
    return Refused(401, {"code": LOGIN_FAILED, "detail": why, "field": "client.issuer"})


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a login needs to know of an issuer.

    Attributes:
        issuer: its name, a URL, compared letter by letter.
        authorization: where a person's browser is sent.
        token: where a code becomes tokens.
        keys: where its public keys are, a JWK Set.
        names_itself: whether it puts ``iss`` into every answer that comes by the browser (RFC 9207, section 3).
    """

    issuer: str
    authorization: str
    token: str
    keys: str
    names_itself: bool


@contextmanager
def asking(issuer: str) -> Iterator[httpx.Client]:
    """A client for the questions of one login. Raises: Malformed, if ``issuer`` is neither https nor on this machine.

    Redirects are not followed: what an issuer says is at the address that it is known by.
    """
    sealed(issuer, "client.issuer")
    headers = {"accept": "application/json"}
    with httpx.Client(timeout=TIMEOUT_S, trust_env=not is_loopback(httpx.URL(issuer).host), headers=headers) as http:
        yield http


def discover(http: httpx.Client, issuer: str) -> Metadata:
    """The metadata of ``issuer``, which has to call itself by that very name (section 4.3).

    Raises:
        Malformed: if it has another name, or an endpoint is not told, or neither https nor http on this machine.
        Refused: if it answers with an error.
        Unreachable: if it does not answer.
    """
    known = ask(http, issuer.rstrip("/") + _WELL_KNOWN)
    if known.get("issuer") != issuer:
        raise Malformed("metadata.issuer", f"is not {issuer}, which the profile names")
    authorization, token, keys = (
        sealed(c.string(known.get(name), f"metadata.{name}"), f"metadata.{name}")
        for name in ("authorization_endpoint", "token_endpoint", "jwks_uri")
    )
    methods = known.get("code_challenge_methods_supported", ["S256"])
    if not isinstance(methods, list) or "S256" not in methods:
        raise Malformed("metadata.code_challenge_methods_supported", "must have S256")
    names_itself = known.get(_NAMES_ITSELF, False)
    return Metadata(issuer, authorization, token, keys, c.boolean(names_itself, f"metadata.{_NAMES_ITSELF}"))


def ask(http: httpx.Client, url: str, form: Mapping[str, str] | None = None) -> c.Object:
    """The JSON object at ``url``, or what it answers to a form. Raises: Malformed, Refused, Unreachable."""
    body = bytearray()
    try:
        with http.stream("GET" if form is None else "POST", url, data=form) as response:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > ANSWER_BYTES_MAX:
                    raise Malformed("issuer", f"answers with more than {ANSWER_BYTES_MAX} bytes")
    except httpx.RequestError as fault:
        raise Unreachable(f"no answer from the issuer at {url.partition('?')[0]} ({type(fault).__name__})") from fault
    if not response.is_success:
        raise failed(f"the issuer answers {_error_in(bytes(body)) or response.status_code}")
    known = c.parse(bytes(body), ANSWER_BYTES_MAX, "issuer")
    if not isinstance(known, dict):
        raise Malformed("issuer", "must answer with an object")
    return known


def error_told(error: object, description: object) -> str:
    """An OAuth error (RFC 6749, sections 4.1.2.1 and 5.2) for people: short, and without control characters."""
    told = ": ".join(one for one in (error, description) if isinstance(one, str) and one)
    return "".join(one if one.isprintable() else "?" for one in told[:_TOLD_MAX])


def _error_in(body: bytes) -> str:
    try:
        known = c.parse(body, ANSWER_BYTES_MAX)
    except Malformed:
        return ""
    return error_told(known.get("error"), known.get("error_description")) if isinstance(known, dict) else ""
