"""OpenID Connect's authorization code flow with PKCE, as a native app uses it (RFC 8252, RFC 7636).

    browser -> issuer    response_type=code, client_id, redirect_uri, scope, resource, state, nonce, code_challenge
    issuer  -> browser   http://127.0.0.1:PORT/callback?code=...&state=...&iss=...
    here    -> issuer    grant_type=authorization_code, code, code_verifier, client_id, redirect_uri, resource
    issuer  -> here      access_token, expires_in, id_token

A login that someone else began fails here: its answer lacks our state, its code our verifier, its ID token our nonce.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlencode

from client.login.discovery import Metadata, discover, error_text, fetch_json, issuer_client, login_failed
from client.login.id_token import subject_of
from client.login.redirect_listener import listening
from client.profile.profile import SCOPE, Person, Profile
from client.profile.token_store import TOKEN_LENGTH_MAX, Login
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

LIFE_S_MAX: Final = 86_400
_CODE_LENGTH_MAX: Final = 4_096


def log_in(  # noqa: PLR0913 - what a login is made of
    profile: Profile,
    show: Callable[[str], object],
    browser: Callable[[str], object] | None = None,
    *,
    wait_s: float,
    port: int = 0,
    clock: Callable[[], float] = time.time,
) -> Login:
    """Have a person log in with a browser, and get their access token.

    Args:
        profile: a person's.
        show: gets the URL that the browser has to open.
        browser: opens it, in a thread of its own; None where a person does.
        wait_s: how long to wait for the browser, in seconds.
        port: the port of 127.0.0.1 that the browser comes back to; 0 takes a free one.
        clock: Unix seconds.

    Raises:
        Malformed: if the profile is an organisation's, or the issuer's metadata are invalid.
        Refused: if the issuer or the person refuses, or an answer does not belong to this login.
        Unreachable: if the issuer does not answer, or the browser does not come back in time.
        OSError: if the port is taken.
    """
    person = profile.person()
    # 256 random bits each: the answer, the ID token and the code of another login lack them.
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    with issuer_client(profile.issuer) as http:
        issuer = discover(http, profile.issuer)
        with listening(port) as redirect:
            shared = {"client_id": person.client_id, "redirect_uri": redirect.url, "resource": profile.log.origin}
            request = {
                **shared,
                # S256 of the verifier (RFC 7636, section 4.2)
                "code_challenge": c.base64url(hashlib.sha256(verifier.encode("ascii")).digest()),
                "code_challenge_method": "S256",
                "nonce": nonce,
                "response_type": "code",
                "scope": person.scope or SCOPE,
                "state": state,
            }
            # The issuer's own address may have a query (RFC 6749, section 3.1).
            url = f"{issuer.authorization}{'&' if '?' in issuer.authorization else '?'}{urlencode(request)}"
            show(url)
            if browser is not None:
                threading.Thread(target=browser, args=(url,), daemon=True).start()
            code = _code(redirect.wait(wait_s), issuer, state)
        requested_s = int(clock())
        exchange = {**shared, "code": code, "code_verifier": verifier, "grant_type": "authorization_code"}
        answer, keys = fetch_json(http, issuer.token, exchange), fetch_json(http, issuer.keys)
    try:
        return _login(person, nonce, answer, keys, requested_s)
    except Malformed as error:
        raise login_failed(f"the issuer's answer is refused: {error}") from None


def _code(answer: Mapping[str, str], issuer: Metadata, state: str) -> str:
    """The code in an answer to this login, from this issuer. Raises: Refused."""
    if not secrets.compare_digest(answer.get("state", "").encode(), state.encode()):
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


def _login(person: Person, nonce: str, answer: c.Object, keys: c.Object, requested_s: int) -> Login:
    """Verify the answer of the token endpoint and its ID token. Raises: Malformed."""
    if str(answer.get("token_type", "")).lower() != "bearer":
        raise Malformed("token_type", "must be 'Bearer'")
    token = c.string(answer.get("access_token"), "access_token", TOKEN_LENGTH_MAX)
    life_s = c.integer(answer.get("expires_in"), "expires_in", 1, LIFE_S_MAX)
    subject = subject_of(
        c.string(answer.get("id_token"), "id_token", TOKEN_LENGTH_MAX),
        keys,
        issuer=person.issuer,
        client_id=person.client_id,
        nonce=nonce,
        access_token=token,
        now=requested_s,
    )
    # The life counts from the request, so the stored expiry is never later than the token's own.
    return Login.project(person, v=1, access_token=token, expires_s=requested_s + life_s, subject=subject)
