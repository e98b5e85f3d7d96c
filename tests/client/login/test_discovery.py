"""Issuers that say something wrong in one place, and what a login with each of them ends with."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fastapi import Request, Response

from api.dev_issuer.issuer import LIFE_S, DevelopmentIssuer, Person
from api.dev_issuer.routes import create_issuer_app
from api.server.http_server import LOOPBACK, base_url, listen, serving
from client.http.problems import Refused, Unreachable
from client.keys.signer import Signer
from client.login.authorization_code import log_in
from client.login.discovery import ANSWER_BYTES_MAX
from client.profile.profile import Profile
from client.profile.token_store import Login, LoginFile
from ledger.book.wall_clock import unix_ms
from ledger.verifier import LogKey
from ledger.wire.malformed import Malformed
from tests.factories.browser import CALLBACK, Browser, with_query

ORIGIN: Final = "epsilon.example/ledger"
CONFIGURATION: Final = "/.well-known/openid-configuration"
Change = Callable[[bytes], bytes | Response]


@contextmanager
def _place(folder: Path, path: str = "", change: Change | None = None) -> Iterator[Profile]:
    """A person's profile for an issuer whose answer at one path is changed."""
    listener = listen(LOOPBACK, 0)
    url = base_url(listener)
    people = {"asha": Person("did:web:council.example", ("AUDITOR",))}
    app = create_issuer_app(DevelopmentIssuer(url, ORIGIN, Signer.generate(), {}, people, unix_ms))

    @app.middleware("http")
    async def _changed(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        answer: Any = await call_next(request)
        if change is None or request.url.path != path:
            return answer  # type: ignore[no-any-return] # a Response
        said = change(b"".join([part async for part in answer.body_iterator]))
        return said if isinstance(said, Response) else Response(said, answer.status_code)

    log = LogKey(ORIGIN, Ed25519PrivateKey.generate().public_key().public_bytes_raw())
    profile = folder / "auditor.toml"
    lines = ("v = 1", "[client]", 'service = "http://127.0.0.1:9"', f'log = "{log.vkey}"', f'issuer = "{url}"')
    profile.write_text("\n".join((*lines, 'client_id = "epsilon"', 'scope = "openid ledger.read"')))
    with serving(app, listener):
        yield Profile.load(profile)


def _log_in(profile: Profile, said: list[str] | None = None, browser: Browser | None = None) -> Login:
    reported: list[str] = [] if said is None else said
    return log_in(profile, reported.append, browser or Browser("asha"), wait_s=30)


def _no_one(_url: str) -> None:
    """The browser is here."""


def _with(name: str, value: object) -> Change:
    """The same object with another member; None takes it away."""

    def change(data: bytes) -> bytes:
        known = {**json.loads(data), name: value}
        return json.dumps({key: one for key, one in known.items() if one is not None}).encode()

    return change


def _is(data: bytes) -> Change:
    return lambda _: data


def _answers(status: int, data: bytes = b"", **headers: str) -> Change:
    return lambda _: Response(data, status, headers)


def test_the_request_to_the_issuer_is_what_the_profile_says(tmp_path: Path) -> None:
    """A code for this client, these scopes and this log, back to this machine, bound by S256 (RFC 7636)."""
    said: list[str] = []
    with _place(tmp_path) as profile:
        _log_in(profile, said)
    (url,) = said
    requested = dict(parse_qsl(urlsplit(url).query, strict_parsing=True))
    fresh = [requested.pop(name) for name in ("state", "nonce", "code_challenge")]
    assert len(set(fresh)) == 3
    assert {len(one) for one in fresh} == {43}
    back = urlsplit(requested.pop("redirect_uri"))
    assert (back.scheme, back.hostname, back.path) == ("http", "127.0.0.1", "/callback")
    assert requested == {
        "client_id": "epsilon",
        "code_challenge_method": "S256",
        "response_type": "code",
        "scope": "openid ledger.read",
    }


def test_a_login_holds_no_longer_than_its_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from before it was asked for; at its last second it holds, and after it no more."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    now = unix_ms() // 1000
    with _place(tmp_path) as profile:
        login = log_in(profile, _no_one, Browser("asha"), wait_s=30, clock=lambda: now + 0.9)
    file = LoginFile(profile.path)
    file.write(login)
    assert file.read(profile.person(), now + LIFE_S - 0.1) == login
    with pytest.raises(Refused, match="has expired"):
        file.read(profile.person(), now + LIFE_S)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_with("issuer", "https://other.example"), "metadata.issuer"),
        (_with("issuer", None), "metadata.issuer"),
        (_with("authorization_endpoint", "http://login.example/authorize"), "metadata.authorization_endpoint"),
        (_with("token_endpoint", "http://login.example/token"), "metadata.token_endpoint"),
        (_with("token_endpoint", "file:///etc/passwd"), "metadata.token_endpoint"),
        (_with("token_endpoint", None), "metadata.token_endpoint"),
        (_with("jwks_uri", 7), "metadata.jwks_uri"),
        (_with("code_challenge_methods_supported", ["plain"]), "metadata.code_challenge_methods_supported"),
        (_with("authorization_response_iss_parameter_supported", "yes"), "metadata.authorization_response_iss"),
        (_is(b"[]"), "issuer"),
        (_is(b"<html>"), "issuer"),
        (_is(b'{"issuer":' + b" " * ANSWER_BYTES_MAX + b"1}"), "issuer"),
        (_is(b"[" * 20_000), "issuer"),
    ],
)
def test_what_is_wrong_in_its_metadata_is_named(tmp_path: Path, change: Change, says: str) -> None:
    """No browser is sent anywhere."""
    said: list[str] = []
    with _place(tmp_path, CONFIGURATION, change) as profile, pytest.raises(Malformed) as caught:
        _log_in(profile, said)
    assert caught.value.field.startswith(says)
    assert said == []


@pytest.mark.parametrize(
    ("path", "change", "says"),
    [
        (CONFIGURATION, _answers(404), "the issuer answers 404"),
        (CONFIGURATION, _answers(302, location="https://other.example"), "the issuer answers 302"),
        ("/token", _answers(500, b"\xff"), "the issuer answers 500"),
        ("/token", _answers(400, b'{"error":"no\\u001b[2J"}'), "the issuer answers no?[2J"),
        ("/token", _answers(400, b'{"error":["no"]}'), "the issuer answers 400"),
        ("/token", _with("token_type", "mac"), "token_type"),
        ("/token", _with("token_type", None), "token_type"),
        ("/token", _with("access_token", None), "access_token"),
        ("/token", _with("access_token", "a" * 8_193), "access_token"),
        ("/token", _with("expires_in", None), "expires_in"),
        ("/token", _with("expires_in", "300"), "expires_in"),
        ("/token", _with("expires_in", 0), "expires_in"),
        ("/token", _with("id_token", None), "id_token"),
        ("/token", _with("id_token", "a.b.c"), "id_token"),
        ("/jwks", _with("keys", []), "id_token"),
        ("/jwks", _with("keys", [{**Signer.generate().jwk, "kid": "another"}]), "id_token"),
    ],
)
def test_what_is_wrong_in_its_answer_lets_nobody_in(tmp_path: Path, path: str, change: Change, says: str) -> None:
    """One sentence, with no control characters of somebody else's in it."""
    with _place(tmp_path, path, change) as profile, pytest.raises(Refused) as caught:
        _log_in(profile)
    assert caught.value.code == "login_failed"
    assert says in caught.value.detail
    assert caught.value.detail.isprintable()


def test_an_issuer_that_does_not_name_itself_need_not(tmp_path: Path) -> None:
    """Without RFC 9207 in its metadata an answer without `iss` is taken; and its token type may be spelled anyhow."""
    quiet = _with("authorization_response_iss_parameter_supported", None)
    unnamed = Browser("asha", lambda url: with_query(url, iss=None) if urlsplit(url).path == CALLBACK else url)
    with _place(tmp_path, CONFIGURATION, quiet) as profile:
        assert _log_in(profile, browser=unnamed).subject == "asha"
    with _place(tmp_path, "/token", _with("token_type", "bEARER")) as profile:
        assert _log_in(profile).subject == "asha"


def test_an_issuer_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    """Exit code 75: it may be there in a moment."""
    with _place(tmp_path) as profile:
        pass
    with pytest.raises(Unreachable, match="no answer from the issuer"):
        _log_in(profile)
