"""Requests to the console that no one stands behind: they count against their address, and hold nothing."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
from starlette.types import Message

from api.app import create_app
from api.auth.caller_quotas import CallerQuotas
from api.http.quota_terms import QuotaTerms
from api.server.http_server import LOOPBACK, base_url, listen, serving
from tests.api.console.visitors import PEOPLE, browser, log_in
from tests.factories.service import founded_world

GETS: Final = ("/console/", "/console/runs", "/console/login", "/console/runs/x/frames", "/console/nothing")
POSTS: Final = ("/console/logout", "/console/policy-impact")


def test_each_counts_against_its_address(tmp_path: Path) -> None:
    """Pages, forms, static files and what is not there, until no more is answered; who is logged in goes on."""
    quotas = CallerQuotas(QuotaTerms(anonymous_per_minute=30), clock=lambda: 0.0)
    with (
        founded_world(tmp_path, quotas) as world,
        world.issuing({"tdp": PEOPLE["TDP"]}) as issuer,
        browser(world.url) as person,
        browser(world.url) as http,
    ):
        log_in(person, issuer, "tdp")
        left = [quotas._anonymous.level(LOOPBACK)]  # noqa: SLF001 - what is left of it

        def spent() -> int:
            left.append(quotas._anonymous.level(LOOPBACK))  # noqa: SLF001 - as above
            return int(left[-2].split("=")[1].split(";")[0]) - int(left[-1].split("=")[1].split(";")[0])

        statuses = {}
        for path in GETS:
            statuses[path] = http.get(path).status_code
            assert spent() == 1, path
        for path in POSTS:
            statuses[path] = http.post(path, data={"a": "b"}).status_code
            assert spent() == 1, path
        assert [*statuses.values()] == [303, 303, 200, 401, 404, 303, 303]
        style = "/console/static/console.css"
        assert (http.get(style).status_code, spent()) == (person.get(style).status_code, 1)
        assert [person.get(path).status_code for path in ("/console/", "/console/nothing")] == [200, 404]
        assert spent() == 0
        refused = [http.get("/console/") for _ in range(31)][-1]
        assert (refused.status_code, "retry-after" in refused.headers) == (429, True)
        assert http.post("/console/logout").status_code == 429
        assert person.get("/console/").status_code == 200


@pytest.mark.parametrize("path", ["/console/logout", "/console/policy-impact"])
def test_a_form_that_ends_half_way_is_an_error_of_its_sender(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """400 and one line, whether its sender has a session or not; without one the form is not even waited for."""
    with founded_world(tmp_path) as world, world.issuing({"tdp": PEOPLE["TDP"]}) as issuer:
        door = listen(LOOPBACK, 0)
        url = base_url(door)
        app = create_app(
            world.book, world.keys, url=url, log=world.log, clock=world.clock, issuers=[world.everybody.issuer()]
        )
        with serving(app, door), browser(url) as http:
            log_in(http, issuer, "tdp")
            cookies = "; ".join(f"{name}={value}" for name, value in http.cookies.items())
        caplog.set_level(logging.ERROR)
        found = {}
        for cookie in (cookies, ""):
            arriving: list[Message] = [
                {"type": "http.disconnect"},
                {"type": "http.request", "body": b"form_token=", "more_body": True},
            ]
            sent: list[Message] = []

            async def receive(arriving: list[Message] = arriving) -> Message:
                return arriving.pop()

            async def send(message: Message, sent: list[Message] = sent) -> None:
                sent.append(message)

            scope = {
                "type": "http",
                "http_version": "1.1",
                "method": "POST",
                "path": path,
                "raw_path": path.encode(),
                "root_path": "",
                "query_string": b"",
                "scheme": "http",
                "server": (urlsplit(url).hostname, urlsplit(url).port),
                "client": (LOOPBACK, 1),
                "headers": [(b"host", urlsplit(url).netloc.encode()), (b"cookie", cookie.encode())],
            }
            asyncio.run(app(scope, receive, send))
            found[bool(cookie)] = sent[0]["status"], len(arriving)
    assert found == {True: (400, 0), False: (303, 2)}
    assert [record.getMessage() for record in caplog.records] == []
