"""OpenID Connect's authorization code flow with PKCE, as a native app uses it (RFC 8252, RFC 7636).

The request, its answer and the exchange are :mod:`client.login.code_request`'s.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from client.login.code_request import CodeRequest
from client.login.discovery import discover, issuer_client
from client.login.redirect_listener import listening
from client.profile.profile import SCOPE, Profile
from client.profile.token_store import Login


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
    with issuer_client(profile.issuer) as http:
        issuer = discover(http, profile.issuer)
        with listening(port) as redirect:
            request = CodeRequest.fresh(person.client_id, redirect.url, profile.log.origin, person.scope or SCOPE)
            redirect.expect(request.state)
            url = request.url(issuer)
            show(url)
            if browser is not None:
                threading.Thread(target=browser, args=(url,), daemon=True).start()
            code = request.code_in(redirect.wait(wait_s), issuer)
        granted = request.exchange(http, issuer, code, int(clock()))
    return Login.project(
        person, v=1, access_token=granted.access_token, expires_s=granted.expires_s, subject=granted.subject
    )
