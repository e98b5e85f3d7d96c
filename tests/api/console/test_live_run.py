"""A live run: frames that everybody who may see it gets alike, at most every ten seconds, to clients that read them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Scope

from api.console.views.live.run_frame import coarse_steps
from api.console.views.live.run_streams import run_events
from api.http.quota_terms import STREAMS_PER_ORGANISATION_MAX
from api.routes.events import EventStream
from api.routes.progress import Progress
from ledger.book.submitted_command import BookBusy
from tests.api.console.conftest import Looked
from tests.api.console.visitors import ANYONE, PEOPLE, browser, log_in
from tests.factories.people import BANK_A, Clock
from tests.factories.service import founded_world

FRAMES = "/console/runs/run-1/frames"


def _first(http: httpx.Client, address: str = FRAMES) -> dict[str, str]:
    """The first frame of a stream."""
    with http.stream("GET", address) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        assert "connect-src 'self'" in answer.headers["content-security-policy"]
        data = next(line for line in answer.iter_lines() if line.startswith("data: "))
    frame: dict[str, str] = json.loads(data.removeprefix("data: "))
    return frame


def test_all_who_may_see_a_run_get_the_same_frame(looked: Looked) -> None:
    """Which has the texts of the page, and nothing else; nobody else gets any."""
    frames = {role: _first(looked.browsers[role]) for role in ("SRO", "TDP", "TDC", "AUDITOR")}
    assert len({json.dumps(frame) for frame in frames.values()}) == 1
    frame = frames["TDC"]
    assert frame.keys() == {"age", "deadline", "done", "key", "leased", "over", "percent", "state"}
    page = looked.browsers["TDC"].get("/console/runs/run-1/live").text
    for name in ("age", "deadline", "done", "key", "leased", "state"):
        assert f'data-frame="{name}">{frame[name]}</dd>' in page
    for role, status in (("TSO", 403), ("OPERATOR", 403), ("", 403), (ANYONE, 401)):
        assert looked.browsers[role].get(FRAMES).status_code == status, role


def test_another_s_run_has_no_stream(looked: Looked) -> None:
    """As one that never was: 404, and in the same words."""
    http = looked.browsers["TDC"]
    hidden, missing = (http.get(f"/console/runs/{name}/frames") for name in ("run-2", "run-9"))
    assert (hidden.status_code, missing.status_code) == (404, 404)
    assert hidden.text.replace("run-2", "run-9") == missing.text
    assert http.get("/console/runs/run-2/live").status_code == 404


def test_a_settled_run_s_stream_ends_by_itself(looked: Looked) -> None:
    """After one frame that says so."""
    answer = looked.browsers["TDC"].get("/console/runs/run-3/frames")
    frames = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert [(frame["state"], frame["done"], frame["over"]) for frame in frames] == [("posted", "100 of 100", "yes")]


def test_a_report_is_shown_for_ten_seconds_whatever_comes_after_it() -> None:
    """Reloading a page faster shows no more than a frame does."""
    clock = Clock(1_000_000)
    progress = Progress(clock)
    assert progress.paced("run-1") is None
    progress.report("run-1", 10)
    assert progress.paced("run-1") is None
    clock.now += 10_000
    shown = progress.paced("run-1")
    assert shown is not None
    progress.report("run-1", 11)
    clock.now += 9_999
    assert progress.paced("run-1") is shown
    clock.now += 1
    later = progress.paced("run-1")
    assert later is not None
    assert (shown.steps, later.steps) == (10, 11)


@given(st.integers(0, 10**6), st.integers(1, 10**6))
def test_steps_are_shown_in_hundredths_and_never_more_than_were_done(done: int, charged: int) -> None:
    """At most about a hundred different numbers; all of them where all are done."""
    shown = coarse_steps(min(done, charged), charged)
    assert shown <= min(done, charged)
    assert min(done, charged) - shown < max(1, charged / 100)
    assert shown == charged or charged < 200 or shown % (charged // 100) == 0
    assert coarse_steps(charged, charged) == charged


def test_a_frame_is_sent_once_and_the_last_one_ends_the_stream() -> None:
    """In between, a comment keeps the connection; a run that is hidden meanwhile ends it, too."""

    def stream(*frames: tuple[bytes, bool] | None) -> list[bytes]:
        given_ = iter(frames)

        async def read() -> list[bytes]:
            return [event async for event in run_events(lambda: next(given_), life_s=60, frame_s=0)]

        return asyncio.run(read())

    opening, *events = stream((b"a", False), (b"a", False), (b"b", False), (b"c", True))
    assert opening == b"retry: 10000\n\n"
    assert events == [b"a", b": unchanged\n\n", b"b", b"c"]
    assert stream((b"a", False), None)[1:] == [b"a"]


def test_a_stream_goes_on_when_the_database_answers_again() -> None:
    """Meanwhile nothing has changed, from its first frame on."""
    answers = iter([None, (b"a", False), None, (b"b", True)])

    def frame() -> tuple[bytes, bool]:
        if (answer := next(answers)) is None:
            raise BookBusy
        return answer

    async def read() -> list[bytes]:
        return [event async for event in run_events(frame, life_s=60, frame_s=0)]

    unchanged = b": unchanged\n\n"
    assert asyncio.run(read())[1:] == [unchanged, b"a", unchanged, b"b"]


def test_a_stream_ends_with_its_life() -> None:
    """Not before its first frame."""

    async def read() -> list[bytes]:
        return [event async for event in run_events(lambda: (b"a", False), life_s=0)]

    assert asyncio.run(read())[1:] == [b"a"]


def test_a_client_that_sleeps_is_dropped() -> None:
    """It takes no part of the stream: after its time the stream is closed, and its place is free."""
    ended = []

    async def endless() -> Any:  # noqa: ANN401 - an iterator of bytes
        while True:
            yield b": x\n\n"

    async def never(_: Message) -> None:
        await asyncio.Event().wait()

    async def receive() -> Message:
        await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    scope: Scope = {"type": "http", "asgi": {"spec_version": "2.3", "version": "3.0"}}
    for version in ("2.3", "2.4"):
        scope["asgi"] = {"spec_version": version, "version": "3.0"}
        stream = EventStream(endless(), lambda: ended.append("closed"), send_s=0.01)
        asyncio.run(asyncio.wait_for(stream(scope, receive, never), 10))
    assert ended == ["closed", "closed"]


@pytest.fixture
def quiet_browser(tmp_path: Path) -> Iterator[tuple[Any, httpx.Client]]:
    """A world with one pending run, and the bank's browser."""
    with (
        founded_world(tmp_path) as world,
        world.issuing({"tdc": PEOPLE["TDC"]}) as issuer,
        browser(world.url) as http,
    ):
        from tests.factories.people import CleanRoom

        world.service.submit(world.bank, BANK_A, "charge", world.charge_body(world.contract, CleanRoom()), "run-1")
        log_in(http, issuer, "tdc")
        yield world, http


def test_streams_are_few_and_end_with_the_session(quiet_browser: tuple[Any, httpx.Client]) -> None:
    """So many of one organisation; one more is refused with a page, and without a session there is none."""
    world, http = quiet_browser
    held = [http.stream("GET", FRAMES) for _ in range(STREAMS_PER_ORGANISATION_MAX)]
    for one in held:
        assert one.__enter__().status_code == 200
    try:
        refused = http.get(FRAMES)
        assert (refused.status_code, "streams open" in refused.text) == (429, True)
        assert http.head(FRAMES).status_code == 200
    finally:
        for one in held:
            one.__exit__(None, None, None)
    world.clock.now += 301_000
    ended = http.get(FRAMES)
    assert (ended.status_code, "Your session has ended" in ended.text) == (401, True)
