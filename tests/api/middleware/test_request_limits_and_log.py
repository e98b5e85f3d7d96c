"""What is too much, too slow or too many is refused by name, and what was meant well still gets through."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse

from api.auth.caller_quotas import CallerQuotas
from api.http.body import BATCH_BYTES_MAX, bounded
from api.http.problems import Problem
from api.http.snapshots import LONG_MAX, SnapshotProvider
from api.middleware.metrics import Metrics
from api.middleware.request_limits_and_log import Requests
from client.http.endpoints import BATCH
from tests.factories.people import BANK_A, HOSPITAL, SRO
from tests.factories.service import ServedWorld

if TYPE_CHECKING:
    from starlette.types import Message, Receive, Scope, Send

SCOPE: Scope = {"type": "http", "method": "GET", "path": "/slow", "headers": [], "query_string": b""}


def _metrics() -> Metrics:
    return Metrics(lambda: 0, lambda: 0)


class Slow:
    """An application that answers when it is let."""

    def __init__(self) -> None:
        """Nobody asks yet."""
        self.begun, self.let = asyncio.Event(), asyncio.Event()
        self.done = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One answer, once it is let."""
        self.begun.set()
        await self.let.wait()
        await PlainTextResponse("done")(scope, receive, send)
        self.done.set()


class Asked:
    """One request to an application, and what was sent back."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.sent: list[Message] = []
        self.sent_before_return = 0
        self.whole = asyncio.Event()

    async def ask(self, app: Requests) -> None:
        """Ask and wait for the answer."""
        await app(dict(SCOPE), self._receive, self._send)
        self.sent_before_return = len(self.sent)

    async def _receive(self) -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Message) -> None:
        self.sent.append(message)
        if message["type"] == "http.response.body":
            self.whole.set()

    @property
    def told(self) -> tuple[int, str, str]:
        """Status, code and when to ask again."""
        headers = {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}
        body = json.loads(b"".join(one.get("body", b"") for one in self.sent[1:]))
        return self.sent[0]["status"], body["code"], headers["retry-after"]


def test_an_answer_that_takes_too_long_is_a_problem_and_what_was_asked_goes_on() -> None:
    """503 in time, counted once; the work comes to its end, and nothing of it is sent after the problem."""

    async def scene() -> None:
        slow, requested, metrics = Slow(), Asked(), _metrics()
        asking = asyncio.create_task(requested.ask(Requests(slow, metrics, CallerQuotas(), answer_s=0.01)))
        await requested.whole.wait()
        assert requested.told == (503, "unanswered", "5")
        size = len(requested.sent)
        assert not asking.done()
        slow.let.set()
        await asking
        assert slow.done.is_set()
        assert len(requested.sent) == size
        counted = [line for line in metrics.text().decode().splitlines() if line.startswith("epsilon_requests_total")]
        assert counted == ['epsilon_requests_total{operation="none",status="503"} 1.0']

    asyncio.run(scene())


@pytest.mark.parametrize("first", ["the answer", "its time"])
def test_an_answer_in_the_last_moment_is_one_answer(first: str) -> None:
    """Its own or the problem, whole before the server is told that the request is over, and counted once."""

    async def scene() -> None:
        ready = asyncio.get_running_loop().create_future()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await ready
            await PlainTextResponse("done")(scope, receive, send)

        requested, metrics = Asked(), _metrics()
        requests = Requests(app, metrics, CallerQuotas(), answer_s=0.01)
        asking = asyncio.create_task(requested.ask(requests))
        loop = asyncio.get_running_loop()
        # Both fall due while the loop is kept busy, and so in one turn of it.
        loop.call_later(0.009 if first == "the answer" else 0.011, ready.set_result, None)
        loop.call_later(0.005, _hold_up, loop.time() + 0.05)
        await asking
        assert [one["type"] for one in requested.sent] == ["http.response.start", "http.response.body"]
        assert requested.sent_before_return == 2
        status = requested.sent[0]["status"]
        assert status in {200, 503}
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        counted = [line for line in metrics.text().decode().splitlines() if line.startswith("epsilon_requests_total")]
        assert counted == [f'epsilon_requests_total{{operation="none",status="{status}"}} 1.0']
        assert len(requested.sent) == 2

    asyncio.run(scene())


def _hold_up(until: float) -> None:
    """Keep the event loop busy until its own clock says so."""
    while asyncio.get_running_loop().time() < until:
        pass


def test_so_many_are_answered_at_once_and_one_more_is_told_to_wait() -> None:
    """The one too many is refused at once; when the others are done there is room again."""

    async def scene() -> None:
        slow, first, second, third = Slow(), Asked(), Asked(), Asked()
        app = Requests(slow, _metrics(), CallerQuotas(), in_flight_max=1)
        waiting = asyncio.create_task(first.ask(app))
        await slow.begun.wait()
        await second.ask(app)
        assert second.told == (503, "busy", "2")
        slow.let.set()
        await waiting
        await third.ask(app)
        assert [one.sent[0]["status"] for one in (first, third)] == [200, 200]

    asyncio.run(scene())


def _request(receive: Any) -> Request:  # noqa: ANN401 - an ASGI callable
    return Request({**SCOPE, "method": "POST"}, receive)


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    """408 where a body stops half-way, 400 where its caller has gone; where it all comes, it is read."""

    async def halfway() -> Message:
        if not begun:
            begun.append(True)
            return {"type": "http.request", "body": b"{", "more_body": True}
        await asyncio.Event().wait()
        raise AssertionError

    async def whole() -> Message:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def gone() -> Message:
        return {"type": "http.disconnect"}

    begun: list[bool] = []
    with pytest.raises(Problem, match="incomplete"):
        asyncio.run(bounded(_request(gone), 10))
    with pytest.raises(Problem, match="seconds allowed") as caught:
        asyncio.run(bounded(_request(halfway), 10, within_s=0.01))
    assert caught.value.status == 408
    assert asyncio.run(bounded(_request(whole), 10)) == b"{}"


def test_a_batch_has_a_size(quiet: ServedWorld) -> None:
    """A byte more than may be is 413, whether or not its length is told before; of nobody known it is not even read."""
    headers = {**quiet.everybody.shown(BANK_A), "content-type": "application/json"}
    data = b" " * (BATCH_BYTES_MAX + 1)
    for content in (data, iter([data])):
        told = quiet.http.post(BATCH, content=content, headers=headers)
        assert (told.status_code, told.json()["code"]) == (413, "too_large")
    unknown = quiet.http.post(BATCH, content=data, headers={**headers, "authorization": "Bearer nobody"})
    assert unknown.status_code == 401


def test_what_takes_seconds_is_asked_by_so_many_at_once(quiet: ServedWorld) -> None:
    """One more is told to come again; a question about the past waits for the one before it."""
    snapshots = SnapshotProvider(quiet.book, quiet.clock)
    with snapshots.read_long(BANK_A), snapshots.read_long(HOSPITAL), pytest.raises(Problem) as caught:
        snapshots.long.taken(SRO, 0).__enter__()
    assert (caught.value.status, LONG_MAX) == (503, 2)
    with snapshots.read_long(BANK_A), snapshots.read_long(HOSPITAL):
        pass
    with snapshots.read(1, BANK_A), pytest.raises(Problem, match="too many slow requests"):
        snapshots.past.taken(SRO, 0).__enter__()
    with snapshots.read(1, BANK_A) as past:
        assert past.size == 1
