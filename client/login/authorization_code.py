"""Logging in: OpenID Connect's authorization code flow with PKCE, as a native app does it (RFC 8252, RFC 7636).

    browser -> issuer    response_type=code, client_id, redirect_uri, scope, resource, state, nonce, code_challenge
    issuer  -> browser   http://127.0.0.1:PORT/callback?code=...&state=...&iss=...
    here    -> issuer    grant_type=authorization_code, code, code_verifier, client_id, redirect_uri, resource
    issuer  -> here      access_token, expires_in, id_token

A login that somebody else began ends here: its answer lacks our state, its code our verifier, its ID token our nonce.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Final
from urllib.parse import urlencode

from client.login.discovery import Metadata, ask, asking, discover, error_told, failed
from client.login.id_token import subject_of
from client.login.redirect_listener import Redirect, listening
from client.profile.profile import Profile
from client.profile.token_store import TOKEN_LENGTH_MAX, Login
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

LIFE_S_MAX: Final = 86_400
_CODE_LENGTH_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class Secrets:
    """What one login is recognised by; 256 random bits each."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def fresh(cls) -> Secrets:
        """From the operating system's generator."""
        return cls(secrets.token_urlsafe(32), secrets.token_urlsafe(32), secrets.token_urlsafe(32))

    @property
    def challenge(self) -> str:
        """S256 of the verifier (RFC 7636, section 4.2)."""
        return c.base64url(hashlib.sha256(self.verifier.encode("ascii")).digest())


def log_in(  # noqa: PLR0913 - what a login is made of
    profile: Profile,
    tell: Callable[[str], object],
    browser: Callable[[str], object] | None = None,
    *,
    wait_s: float,
    port: int = 0,
    clock: Callable[[], float] = time.time,
) -> Login:
    """Have somebody log in with a browser, and get their access token.

    Args:
        profile: a person's.
        tell: gets the URL that the browser has to open.
        browser: opens it, in a thread of its own; None where somebody else does.
        wait_s: for how long the browser is waited for, in seconds.
        port: of 127.0.0.1, where the browser comes back to; 0 takes a free one.
        clock: Unix seconds.

    Raises:
        Malformed: if the profile is an organisation's, or what the issuer says is not what it must be.
        Refused: if the issuer or the person says no, or an answer is not the one to this login.
        Unreachable: if the issuer does not answer, or nobody comes back in time.
        OSError: if the port is taken.
    """
    profile.person()
    with asking(profile.issuer) as http:
        issuer, ours = discover(http, profile.issuer), Secrets.fresh()
        with listening(port) as redirect:
            url = _request(profile, issuer, ours, redirect)
            tell(url)
            if browser is not None:
                threading.Thread(target=browser, args=(url,), daemon=True).start()
            code = _code(redirect.wait(wait_s), issuer, ours)
        asked_s = int(clock())
        answer = ask(http, issuer.token, _exchange(profile, ours, redirect, code))
        keys = ask(http, issuer.keys)
    try:
        return _login(profile, issuer, ours, answer, keys, asked_s)
    except Malformed as fault:
        raise failed(f"what the issuer gave is refused: {fault}") from None


def _request(profile: Profile, issuer: Metadata, ours: Secrets, redirect: Redirect) -> str:
    """Where the browser goes first; the issuer's own address may have a query (RFC 6749, section 3.1)."""
    person = profile.person()
    query = urlencode(
        {
            "client_id": person.client_id,
            "code_challenge": ours.challenge,
            "code_challenge_method": "S256",
            "nonce": ours.nonce,
            "redirect_uri": redirect.url,
            "resource": profile.log.origin,
            "response_type": "code",
            "scope": person.scope,
            "state": ours.state,
        }
    )
    return f"{issuer.authorization}{'&' if '?' in issuer.authorization else '?'}{query}"


def _code(answer: Mapping[str, str], issuer: Metadata, ours: Secrets) -> str:
    """The code in an answer that is the one to this login, of this issuer. Raises: Refused."""
    if not secrets.compare_digest(answer.get("state", "").encode(), ours.state.encode()):
        raise failed("the browser came back with the answer to another login (state): log in again")
    # Before anything else is believed: another issuer's code must not be sent to this one (RFC 9207, section 2.4).
    if answer.get("iss", "" if issuer.names_itself else issuer.issuer) != issuer.issuer:
        raise failed(f"the browser came back with another issuer's answer (iss), not {issuer.issuer}'s")
    if "error" in answer:
        told = error_told(answer["error"], answer.get("error_description"))
        raise failed(f"the issuer let nobody in: {told}")
    code = answer.get("code", "")
    if not 1 <= len(code) <= _CODE_LENGTH_MAX:
        raise failed("the browser came back without a code")
    return code


def _exchange(profile: Profile, ours: Secrets, redirect: Redirect, code: str) -> dict[str, str]:
    """What the token endpoint is asked (RFC 7636, section 4.5)."""
    return {
        "client_id": profile.person().client_id,
        "code": code,
        "code_verifier": ours.verifier,
        "grant_type": "authorization_code",
        "redirect_uri": redirect.url,
        "resource": profile.log.origin,
    }


def _login(  # noqa: PLR0913, PLR0917 - what is held against what
    profile: Profile, issuer: Metadata, ours: Secrets, answer: c.Object, keys: c.Object, asked_s: int
) -> Login:
    """What the token endpoint gave, once its ID token is believed. Raises: Malformed."""
    if str(answer.get("token_type", "")).lower() != "bearer":
        raise Malformed("token_type", "must be 'Bearer'")
    token = c.string(answer.get("access_token"), "access_token", TOKEN_LENGTH_MAX)
    life_s = c.integer(answer.get("expires_in"), "expires_in", 1, LIFE_S_MAX)
    subject = subject_of(
        c.string(answer.get("id_token"), "id_token", TOKEN_LENGTH_MAX),
        keys,
        issuer=issuer.issuer,
        client_id=profile.person().client_id,
        nonce=ours.nonce,
        access_token=token,
        now=asked_s,
    )
    # Counted from when it was asked for, so that it is never thought to hold longer than it does.
    return Login(**asdict(profile.purpose()), access_token=token, expires_s=asked_s + life_s, subject=subject)
