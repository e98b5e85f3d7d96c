"""Logging in with a browser: only a login that this browser began ends in a session, and only for its time."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest

from api.console.frame.addresses import local_path
from api.console.session.login import LoginTerms
from api.console.session.sealed_cookies import SealedCookies
from ledger.wire.malformed import Malformed
from tests.api.console.visitors import PEOPLE, browser, log_in
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.factories.browser import with_query
from tests.factories.service import ServedWorld, founded_world


class Door(NamedTuple):
    """A service, and the issuer at which its people log in."""

    world: ServedWorld
    issuer: str


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    """One that is founded, with a person of each role."""
    with founded_world(tmp_path) as world, world.issuing({"tdc": PEOPLE["TDC"], "sro": PEOPLE["SRO"]}) as issuer:
        yield Door(world, issuer)


def _begin(http: httpx.Client, door: Door, following: str = "/console/") -> str:
    return http.get("/console/login", params={"issuer": door.issuer, "next": following}).headers["location"]


def _answered(url: str, person: str = "tdc") -> str:
    """Where the issuer sends a browser back to."""
    return httpx.get(with_query(url, person=person), trust_env=False).headers["location"]


def test_a_request_is_one_of_pkce_with_state_and_nonce(door: Door) -> None:
    """For a code that is sent back here, with a cookie that no script reads."""
    with browser(door.world.url) as http:
        answer = http.get("/console/login", params={"issuer": door.issuer})
    sent = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
    assert {name: sent[name] for name in ("response_type", "code_challenge_method", "redirect_uri")} == {
        "code_challenge_method": "S256",
        "redirect_uri": f"{door.world.url}/console/callback",
        "response_type": "code",
    }
    assert all(len(sent[name]) >= 43 for name in ("state", "nonce", "code_challenge"))
    assert re.search(
        r"^epsilon-login=[\w-]+; Path=/; HttpOnly; SameSite=Lax; Max-Age=600$", answer.headers["set-cookie"]
    )


def test_a_session_ends_with_its_token_and_says_so(door: Door) -> None:
    """The page after it is a log-in that leads back, and the cookie is taken away."""
    with browser(door.world.url) as http:
        answer = log_in(http, door.issuer, "tdc", "/console/datasets?cursor=")
        assert answer.headers["location"] == "/console/datasets?cursor="
        assert http.get("/console/").status_code == 200
        door.world.clock.now += 301_000
        ended = http.get("/console/datasets?a=1&b=2")
        assert (ended.status_code, "Your session has ended" in ended.text) == (401, True)
        assert "/console/login?next=%2Fconsole%2Fdatasets%3Fa%3D1%26b%3D2" in ended.text
        assert "epsilon-session=;" in ended.headers["set-cookie"]


def test_without_a_session_a_page_leads_to_the_login(door: Door) -> None:
    """And from the service's own address to the first page."""
    with browser(door.world.url) as http:
        assert http.get("/").headers["location"] == "/console/"
        assert http.get("/console").headers["location"] == "/console/"
        assert http.get("/console/datasets").headers["location"] == "/console/login?next=%2Fconsole%2Fdatasets"


@pytest.mark.parametrize("changed", ["state", "iss", "code"])
def test_an_answer_that_was_changed_logs_nobody_in(door: Door, changed: str) -> None:
    """Another state, another issuer's name, another code."""
    with browser(door.world.url) as http:
        back = with_query(_answered(_begin(http, door)), **{changed: "https://other.example"})
        answer = http.get(back)
        assert (400 <= answer.status_code < 500, "The login failed" in answer.text) == (True, True)
        assert http.get("/console/").status_code == 303


def test_an_answer_to_another_browsers_login_logs_nobody_in(door: Door) -> None:
    """Whoever sends somebody a link with a code of their own makes nobody act as them."""
    with browser(door.world.url) as mine, browser(door.world.url) as others:
        back = _answered(_begin(others, door))
        assert mine.get(back).status_code == 401
        _begin(mine, door)
        assert mine.get(back).status_code == 401
        assert mine.get("/console/").status_code == 303


def test_a_code_works_once(door: Door) -> None:
    """A back button logs nobody in again."""
    with browser(door.world.url) as http:
        back = _answered(_begin(http, door))
        assert http.get(back).status_code == 303
        assert http.get(back).status_code == 401


def test_who_chose_nobody_reads_why(door: Door) -> None:
    """The issuer's refusal is a page."""
    with browser(door.world.url) as http:
        answer = http.get(_answered(_begin(http, door), "-"))
        assert (answer.status_code, "no person was chosen" in answer.text) == (401, True)


def test_an_issuer_that_the_service_does_not_trust_is_asked_nothing(door: Door) -> None:
    """No address of a request is ever opened."""
    with browser(door.world.url) as http:
        answer = http.get("/console/login", params={"issuer": "http://127.0.0.1:9"})
        assert (answer.status_code, "set-cookie" in answer.headers) == (422, False)


def test_a_cookie_that_was_changed_is_no_session(door: Door) -> None:
    """Each byte of it counts, and one of another purpose is none."""
    with browser(door.world.url) as http:
        log_in(http, door.issuer, "tdc")
        whole = http.cookies["epsilon-session"]
        for place in (0, len(whole) // 2, len(whole) - 2):
            forged = whole[:place] + ("A" if whole[place] != "A" else "B") + whole[place + 1 :]
            answer = httpx.get(f"{door.world.url}/console/", headers={"cookie": f"epsilon-session={forged}"})
            assert (answer.status_code, "session has ended" in answer.text) == (401, True)
        _begin(http, door)
        other = http.cookies["epsilon-login"]
        swapped = httpx.get(f"{door.world.url}/console/", headers={"cookie": f"epsilon-session={other}"})
        assert swapped.status_code == 401


def test_who_logs_out_has_no_session(door: Door) -> None:
    """And only a form of the session's own page logs out."""
    with browser(door.world.url) as http:
        log_in(http, door.issuer, "tdc")
        token = re.search(r'name="form_token" value="([\w-]+)"', http.get("/console/").text)
        assert token is not None
        forged = [
            http.post("/console/logout", data={"form_token": "A" * 22}),
            http.post("/console/logout", data={"form_token": token[1]}, headers={"origin": "https://other.example"}),
            http.post("/console/logout", data={"form_token": token[1]}, headers={"sec-fetch-site": "cross-site"}),
        ]
        assert [one.status_code for one in forged] == [403, 403, 403]
        assert http.get("/console/").status_code == 200
        assert http.post("/console/logout", data={"form_token": token[1]}).status_code == 303
        assert http.get("/console/").status_code == 303


@pytest.mark.parametrize(
    "there",
    [
        "https://other.example/",
        "//other.example/console/",
        "/console/\\other.example",
        "/console//other.example",
        "/console/../v1/log",
        "/v1/log",
        "/console/\t/other",
        "/consoles/",
        "javascript:alert(1)",
        "/console/" + "a" * 3_000,
        "",
    ],
)
def test_only_pages_of_the_console_come_after_a_login(there: str) -> None:
    """For anything else, the first page."""
    assert local_path(there) == "/console/"


def test_a_page_of_the_console_comes_after_a_login() -> None:
    """With its query, in which an address may be."""
    for there in ("/console/", "/console/partitions/did:web:a.example/b/c?cursor=x", "/console/runs?q=//x"):
        assert local_path(there) == there


def test_the_page_s_profile_is_read() -> None:
    """The block of ``console.md``, and the terms without it; an issuer that is not trusted is no place to log in."""
    page = next(one for one in blocks(ROOT / "docs" / "console.md") if one.language == "toml")
    value = tomllib.loads(page.text)["serve"]["console"]
    trusted = ("https://login.example", "https://other.example")
    assert LoginTerms.parse(value, "serve.console", trusted) == LoginTerms(issuers=trusted[:1])
    assert LoginTerms.parse({}, "serve.console", trusted) == LoginTerms("epsilon-console", "openid", ())
    for wrong in ({"issuers": ["https://a.example"]}, {"scope": "profile"}, {"client_id": ""}, {"redirect": "x"}):
        with pytest.raises(Malformed, match=r"^serve\.console"):
            LoginTerms.parse(wrong, "serve.console", trusted)


def test_over_tls_the_cookie_is_of_this_host_alone() -> None:
    """By its name, a browser takes it over TLS and from this host alone (RFC 6265bis, 4.1.3.2)."""
    secure = SealedCookies(bytes(32), secure=True)
    sealed = secure.seal("session", {"a": 1})
    header = secure.set("session", sealed, 900)
    assert re.fullmatch(r"__Host-epsilon-session=[\w-]+; Path=/; HttpOnly; SameSite=Lax; Max-Age=900; Secure", header)
    assert secure.open("session", f"__Host-epsilon-session={sealed}") == {"a": 1}
    assert SealedCookies(bytes(31) + b"1", secure=True).open("session", f"__Host-epsilon-session={sealed}") is None
    assert SealedCookies(bytes(32), secure=False).open("session", f"epsilon-session={sealed}") is None
