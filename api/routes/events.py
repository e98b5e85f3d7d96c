"""Server-sent events (SSE): one event for each new entry of the log that the caller may see.

    id: 57
    event: charge
    data: {"actor":"did:web:bank-a.example","id":"run-1","index":57,"kind":"charge","outcome":"pending","time":...}

Ids are indices in the log, so a client resumes a stream after any of them (Last-Event-ID). A budget alert comes before
the entry that crossed the threshold, and has its id only where the caller may not see the entry itself: after a stream
that breaks between the two, the alert is sent again. Comments between events carry the position, so that hidden
entries are read once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from typing import Annotated, Final

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from api.auth.authentication import Calling, DeferredCaller
from api.auth.authorisation import Caller, sees_entry
from api.http.problems import Problem, ServiceCode
from api.http.query_parameters import Place
from api.http.quota_terms import STREAMS_PER_ORGANISATION_MAX
from api.http.snapshots import SnapshotProvider
from api.middleware.request_limits_and_log import HEAD
from api.routes.overviews.alerts import visible_alerts
from api.wire.responses import shows_text
from ledger.book.submitted_command import BookBusy
from ledger.commands.entry import Entry
from ledger.domain.facts import Facts
from ledger.wire import canonical_json as c

STREAMS_MAX: Final = 128
LIFE_S: Final = 300
"""How long one stream lives, and no longer than its token; the client reconnects with Last-Event-ID."""
POLL_S: Final = 0.25
PING_S: Final = 15.0
SEND_S: Final = 30.0
"""How long a client may take to read one part of a stream."""
BATCH: Final = 100
"""Entries that are read at once."""

_LOG: Final = logging.getLogger("api.streams")
_STREAM: Final = shows_text(401, 403, 422, 429, description="A stream of events", media_type="text/event-stream")


class Streams:
    """Counts the open streams of each organisation."""

    def __init__(self, per_organisation: int = STREAMS_PER_ORGANISATION_MAX) -> None:
        """No stream is open."""
        self._per_organisation = per_organisation
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def open(self, organisation: str) -> None:
        """Open a stream. Raises: Problem, if too many are open."""
        with self._lock:
            if self._open[organisation] >= self._per_organisation:
                raise Problem(ServiceCode.TOO_MANY, f"{organisation} has {self._per_organisation} streams open")
            if self._open.total() >= STREAMS_MAX:
                raise Problem(ServiceCode.BUSY, "too many streams are open; retry later")
            self._open[organisation] += 1

    def close(self, organisation: str) -> None:
        """Close a stream."""
        with self._lock:
            self._open[organisation] -= 1
            self._open += Counter()


class EventStream(StreamingResponse):
    """A response that calls back when it ends, whether or not an event was sent."""

    media_type = "text/event-stream"
    HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}

    def __init__(
        self,
        content: AsyncIterator[bytes],
        end: Callable[[], None],
        headers: Mapping[str, str] | None = None,
        send_s: float = SEND_S,
    ) -> None:
        """``end`` is called once; a client that does not take a part within ``send_s`` is dropped."""
        super().__init__(content, headers={**self.HEADERS, **(headers or {})})
        self._end, self._send_s = end, send_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""

        async def within_time(message: Message) -> None:
            async with asyncio.timeout(self._send_s):
                await send(message)

        try:
            await super().__call__(scope, receive, within_time)
        except (ClientDisconnect, TimeoutError):
            _LOG.info("a stream's client does not read: it is dropped")
        finally:
            self._end()


def event_router(snapshots: SnapshotProvider, streams: Streams) -> APIRouter:
    """GET /v1/events."""
    router = APIRouter(tags=["events"])

    @router.get("/v1/events", operation_id="stream_events", responses=_STREAM)
    def stream_events(
        request: Request,
        caller: Calling,
        requested: DeferredCaller,
        last_event_id: Annotated[Place | None, Header(description="resume after this index")] = None,
        after: Annotated[Place | None, Query(description="the same, for a first request")] = None,
    ) -> Response:
        resumed = last_event_id if last_event_id is not None else after
        with snapshots.read() as facts:
            start = facts.size if resumed is None else min(resumed + 1, facts.size)
        if HEAD in request.scope:
            return StreamingResponse((), media_type=EventStream.media_type, headers=EventStream.HEADERS)
        streams.open(caller.organisation)
        return EventStream(
            events(snapshots, requested.authenticate, start), partial(streams.close, caller.organisation)
        )

    return router


async def events(
    snapshots: SnapshotProvider,
    authenticate: Callable[[Facts], Caller],
    start: int,
    life_s: float = LIFE_S,
    ping_s: float = PING_S,
) -> AsyncIterator[bytes]:
    """The bytes of one stream: entries from index ``start`` on, and a comment after ``ping_s`` without one.

    The caller is authenticated anew before each read: the stream ends when its token has expired, when its issuer's key
    or its clean room's is no longer accepted, or when its organisation has lost the role.
    """
    clock = asyncio.get_running_loop().time
    ends, pinged, place = clock() + life_s, clock(), start
    yield b": open\n\n"
    while clock() < ends:
        try:
            lines, after = await run_sync(_next, snapshots, authenticate, place, limiter=snapshots.steps)
        except Problem:
            return
        except BookBusy:
            # The stream is read on when the database answers.
            lines, after = b"", place
        if lines:
            yield lines
            pinged = clock()
        elif clock() - pinged >= ping_s:
            yield f": ping\nid: {after - 1}\n\n".encode() if after else b": ping\n\n"
            pinged = clock()
        if after == place:
            await asyncio.sleep(POLL_S)
        place = after


def _next(snapshots: SnapshotProvider, authenticate: Callable[[Facts], Caller], place: int) -> tuple[bytes, int]:
    """The events of the next entries that the caller may see, and the index after them. Raises: Problem."""
    with snapshots.read() as facts:
        caller = authenticate(facts)
        stored = facts.entries(place, place + BATCH)
        written = (_entry_events(caller, Entry.parse(data), index, facts) for index, data in enumerate(stored, place))
        return b"".join(written), place + len(stored)


def _entry_events(caller: Caller, entry: Entry, index: int, facts: Facts) -> bytes:
    events = [("alert", alert) for alert in _alerts(caller, entry, index, facts)]
    if sees_entry(caller, entry, facts):
        events.append((entry.kind, _event(entry, index)))
    last = len(events) - 1
    return b"".join(_written(name, data, index if at == last else None) for at, (name, data) in enumerate(events))


def _event(entry: Entry, index: int) -> c.Object:
    return {
        "actor": entry.actor,
        "id": entry.id,
        "index": index,
        "kind": entry.kind,
        "outcome": entry.code.word,
        "time": entry.time,
    }


def _alerts(caller: Caller, entry: Entry, index: int, facts: Facts) -> Iterator[c.Object]:
    """The thresholds that a charge crossed, on accounts that the caller may see."""
    for alert in visible_alerts(caller, entry, facts):
        yield {**alert.to_json(), "index": index, "time": entry.time}


def _written(name: str, data: c.Object, index: int | None) -> bytes:
    head = "" if index is None else f"id: {index}\n"
    return f"{head}event: {name}\ndata: ".encode() + c.dump(data) + b"\n\n"
