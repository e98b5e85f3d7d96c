"""Server-sent events: the log as it grows, one event an entry, as far as the caller may see it.

    id: 57
    event: charge
    data: {"actor":"did:web:bank-a.example","id":"run-1","index":57,"kind":"charge","outcome":"pending","time":...}

Ids are indices in the log, so a stream is resumed after any of them (Last-Event-ID). A budget alert comes before the
entry that crossed the threshold, and has its id only where the entry itself may not be seen: a stream that breaks
between the two tells it again.
Between events come comments, with the place so far, so that what may not be seen is not looked at twice.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from api.auth.authentication import Calling
from api.auth.authorisation import Caller, sees_entry
from api.http.field_types import PLACE_PATTERN
from api.http.head import asks_head
from api.http.problems import Fault, Problem
from api.wire.responses import shows_text
from ledger.domain.entries import Entry
from ledger.domain.facts import Facts
from ledger.wire import canonical_json as c

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from api.http.snapshots import Moments

PER_ORGANISATION_MAX: Final = 8
STREAMS_MAX: Final = 128
LIFE_S: Final = 300
"""How long one stream lives, since a token does not live longer; the client comes back with Last-Event-ID."""
POLL_S: Final = 0.25
PING_S: Final = 15.0
BATCH: Final = 100
"""Entries that are looked at in one go."""

_STREAM: Final = shows_text(401, 403, 422, 429, description="A stream of events", media_type="text/event-stream")


class Streams:
    """How many are open, of whom."""

    def __init__(self) -> None:
        """None yet."""
        self._lock = threading.Lock()
        self._open: Counter[str] = Counter()

    def __len__(self) -> int:
        return self._open.total()

    def take(self, organisation: str) -> None:
        """Open one. Raises: Problem, if there are as many as may be."""
        with self._lock:
            if self._open[organisation] >= PER_ORGANISATION_MAX:
                raise Problem(Fault.TOO_MANY, f"{organisation} has {PER_ORGANISATION_MAX} streams open")
            if self._open.total() >= STREAMS_MAX:
                raise Problem(Fault.BUSY, "as many streams are open as the service has room for")
            self._open[organisation] += 1

    def give_back(self, organisation: str) -> None:
        """Close one."""
        with self._lock:
            self._open[organisation] -= 1
            self._open += Counter()


class EventStream(StreamingResponse):
    """An answer that gives its place back at its end, whether or not a single event was sent."""

    media_type = "text/event-stream"
    HEADERS: Final = {"cache-control": "no-store", "x-accel-buffering": "no"}

    def __init__(self, content: AsyncIterator[bytes], end: Callable[[], None]) -> None:
        """``end`` is called once."""
        super().__init__(content, headers=self.HEADERS)
        self._end = end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._end()


def event_router(moments: Moments, streams: Streams) -> APIRouter:
    """GET /v1/events."""
    router = APIRouter(tags=["events"])

    @router.get("/v1/events", operation_id="stream_events", response_class=Response, responses=_STREAM)
    def stream_events(
        request: Request,
        caller: Calling,
        last_event_id: Annotated[
            str | None, Header(pattern=PLACE_PATTERN, description="go on after this index")
        ] = None,
        after: Annotated[str | None, Query(pattern=PLACE_PATTERN, description="the same, for the first time")] = None,
    ) -> Response:
        told = last_event_id if last_event_id is not None else after
        with moments.read() as facts:
            start = facts.size if told is None else min(int(told) + 1, facts.size)
        if asks_head(request.scope):
            return StreamingResponse((), media_type=EventStream.media_type, headers=EventStream.HEADERS)
        streams.take(caller.organisation)
        return EventStream(events(moments, caller, start), partial(streams.give_back, caller.organisation))

    return router


async def events(
    moments: Moments, caller: Caller, start: int, life_s: float = LIFE_S, ping_s: float = PING_S
) -> AsyncIterator[bytes]:
    """What one stream sends: entries from ``start`` on, and a comment where there was none for ``ping_s``."""
    clock = asyncio.get_running_loop().time
    ends, pinged, place = clock() + life_s, clock(), start
    yield b": open\n\n"
    while clock() < ends:
        lines, after = await run_sync(_next, moments, caller, place)
        if lines:
            yield lines
            pinged = clock()
        elif clock() - pinged >= ping_s:
            yield f": ping\nid: {after - 1}\n\n".encode() if after else b": ping\n\n"
            pinged = clock()
        if after == place:
            await asyncio.sleep(POLL_S)
        place = after


def _next(moments: Moments, caller: Caller, place: int) -> tuple[bytes, int]:
    """What the caller sees of the next entries, and where to go on."""
    with moments.read() as facts:
        stored = facts.entries(place, place + BATCH)
        told = (_told(caller, Entry.parse(data), index, facts) for index, data in enumerate(stored, place))
        return b"".join(told), place + len(stored)


def _told(caller: Caller, entry: Entry, index: int, facts: Facts) -> bytes:
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
    crossed = entry.body.get("alerts")
    for one in crossed if isinstance(crossed, list) else []:
        if not isinstance(one, dict):
            continue
        partition = facts.partitions.get(str(one.get("partition")))
        if partition is None or caller.charge or not caller.sees_partition(partition, facts):
            continue
        if caller.sees_account(partition, str(one.get("holder")), facts):
            yield {**one, "index": index, "time": entry.time}


def _written(name: str, data: c.Object, index: int | None) -> bytes:
    head = "" if index is None else f"id: {index}\n"
    return f"{head}event: {name}\ndata: ".encode() + c.dump(data) + b"\n\n"
