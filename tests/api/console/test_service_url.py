"""The console where its service is: below a path of a proxy, on PostgreSQL, by a wrong clock."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from api.app import create_app
from api.console.frame.headers import POLICY
from api.server.http_server import LOOPBACK, base_url, listen, serving
from tests.api.console.visitors import PEOPLE, browser, log_in
from tests.factories.people import HOSPITAL
from tests.factories.service import ServedWorld, founded_world, open_world
from tests.postgres import new_book

PREFIX: Final = "/privacy/ledger"
PAGES: Final = ("/", "/datasets", f"/partitions/{HOSPITAL}/digits/2026-q4", "/decisions", "/log", "/models", "/lineage")


class Stripping:
    """A proxy's part: it takes a path away from requests; one beside the path is none of the application's."""

    def __init__(self, app: ASGIApp) -> None:
        """Before ``app``."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] == "http":
            path = scope["path"]
            scope = {**scope, "path": path.removeprefix(PREFIX) if path.startswith(PREFIX) else "/elsewhere"}
        await self._app(scope, receive, send)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServedWorld]:
    """A founded one."""
    with founded_world(tmp_path) as found:
        yield found


def test_below_a_proxy_s_path_every_address_begins_with_it(world: ServedWorld) -> None:
    """From the service's own address over the log-in to each page, its style, its rows and its way out."""
    door = listen(LOOPBACK, 0)
    url = base_url(door) + PREFIX
    app = create_app(
        world.book, world.keys, url=url, log=world.log, clock=world.clock, issuers=[world.everybody.issuer()]
    )
    app.add_middleware(Stripping)
    with serving(app, door), world.issuing({"tdp": PEOPLE["TDP"]}) as issuer, browser(url) as http:
        assert http.get("/").headers["location"] == f"{PREFIX}/console/"
        assert http.get("/console/datasets").headers["location"].startswith(f"{PREFIX}/console/login?next=%2Fprivacy")
        answer = log_in(http, issuer, "tdp", f"{PREFIX}/console/datasets")
        assert answer.headers["location"] == f"{PREFIX}/console/datasets"
        for page in PAGES:
            text = http.get(f"/console{page}").raise_for_status().text
            local = re.findall(r'(?:href|src|action|data-[a-z]+)="(/[^"]*)"', text)
            assert local
            assert [one for one in local if not one.startswith(f"{PREFIX}/")] == [], page
            assert 'aria-current="page"' in text or page.startswith("/partitions")
        style = next(one for one in local if one.endswith(".css"))
        assert http.get(style.removeprefix(PREFIX)).status_code == 200
        missing = http.get("/console/nothing")
        assert (missing.status_code, f'href="{PREFIX}/console/' in missing.text) == (404, True)


def test_a_service_that_is_busy_says_so_on_a_page(world: ServedWorld) -> None:
    """With when to ask again, as the API says it in JSON; a page is never blank, and never for programs."""
    door = listen(LOOPBACK, 0)
    url, trusted = base_url(door), [world.everybody.issuer()]
    app = create_app(world.book, world.keys, url=url, log=world.log, clock=world.clock, issuers=trusted)
    (requests,) = [one for one in app.user_middleware if "in_flight_max" in signature(one.cls).parameters]
    requests.kwargs["in_flight_max"] = 0
    with serving(app, door), browser(url) as http:
        for path in ("/console/", "/console/datasets", "/console/login"):
            page = http.get(path)
            assert (page.status_code, page.headers["retry-after"]) == (503, "2")
            assert page.headers["content-type"].startswith("text/html")
            assert "too many requests are being answered" in page.text
            assert page.headers["content-security-policy"] == POLICY
        assert http.get("/v1/checkpoint").json()["code"] == "busy"


def test_a_session_is_of_every_process_with_the_same_secret(world: ServedWorld) -> None:
    """And of no other."""
    terms: dict[str, Any] = {"log": world.log, "clock": world.clock, "issuers": [world.everybody.issuer()]}
    doors = [listen(LOOPBACK, 0) for _ in range(3)]
    secrets = (b"s" * 32, b"s" * 32, b"t" * 32)
    urls = [base_url(door) for door in doors]
    with ExitStack() as stack:
        for door, url, secret in zip(doors, urls, secrets, strict=True):
            app = create_app(world.book, world.keys, url=url, secret=secret, **terms)
            stack.enter_context(serving(app, door))
        issuer = stack.enter_context(world.issuing({"tdp": PEOPLE["TDP"]}))
        first = stack.enter_context(browser(urls[0]))
        log_in(first, issuer, "tdp")
        cookies = "; ".join(f"{name}={value}" for name, value in first.cookies.items())
        found = [httpx.get(f"{url}/console/", headers={"cookie": cookies}, trust_env=False) for url in urls]
    assert [answer.status_code for answer in found] == [200, 200, 401]
    assert "hospital.example" in found[1].text


def test_pages_are_the_same_on_postgresql(tmp_path: Path) -> None:
    """Each that asks the book something of its own: overviews, histories, the lineage, the register."""
    with (
        new_book() as database,
        open_world(tmp_path, database=database.url, volatile=True) as found,
        found.issuing({"sro": PEOPLE["SRO"], "tdp": PEOPLE["TDP"]}) as issuer,
    ):
        found.contract = found.found_service()
        for person in ("sro", "tdp"):
            with browser(found.url) as http:
                log_in(http, issuer, person)
                for page in (
                    *PAGES,
                    "/runs",
                    "/runs?state=pending",
                    "/log/checkpoints",
                    f"/knowledge/{HOSPITAL}/digits",
                    "/register",
                ):
                    assert http.get(f"/console{page}").status_code == 200, (person, page)
        with found.book.read() as facts:
            assert facts.stored_bytes > 10**6
        shown = found.everybody.shown(HOSPITAL)
        for path in ("inbox", "alerts", "lineage", "key-releases", "register", "decisions?newest=true"):
            assert found.http.get(f"/v1/{path}", headers=shown).status_code == 200, path


@pytest.mark.parametrize("ahead_ms", [-901_000, 901_000, 10 * 366 * 86_400_000])
def test_a_clock_that_is_off_lengthens_no_session(world: ServedWorld, ahead_ms: int) -> None:
    """Set back, a session would last longer than one may; ahead, it is over. What is public stays open."""
    with world.issuing({"tdp": PEOPLE["TDP"]}) as issuer, browser(world.url) as http:
        log_in(http, issuer, "tdp")
        now = world.clock.now
        try:
            world.clock.now = now + ahead_ms
            answer = http.get("/console/")
            assert (answer.status_code, "Your session has ended" in answer.text) == (401, True)
            assert http.get("/console/register").status_code == 200
        finally:
            world.clock.now = now
