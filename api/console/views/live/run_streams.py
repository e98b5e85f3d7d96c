"""Streams of a live run's frames: a frame at most every ten seconds, for as long as the session lasts.

A stream counts among the event streams of its organisation, ends after five minutes or with its session, and drops a
client that does not read. A page without scripts shows the same by reloading it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import Response

from api.auth.authentication import caller_of_token
from api.auth.authorisation import Caller
from api.auth.visibility import get_visible
from api.console.frame import headers
from api.console.session.session import Session
from api.console.views.live.run_frame import frame_event, run_frame
from api.middleware.request_limits_and_log import HEAD
from api.routes.events import LIFE_S, EventStream, Streams
from api.routes.progress import PACE_MS
from api.routes.read_routes import ReadContext
from ledger.book.submitted_command import BookBusy
from ledger.domain.outcomes import ChargeState
from ledger.wire import canonical_json as c

FRAME_S: Final = PACE_MS / 1000
"""Between two frames."""
_OPENING: Final = b"retry: 10000\n\n"
"""How long a browser waits before it connects again, in milliseconds."""
_UNCHANGED: Final = b": unchanged\n\n"
Frame = tuple[bytes, bool]
"""One event, and whether it is the last."""


class RunStreams:
    """The streams of one service's console."""

    def __init__(self, context: ReadContext, streams: Streams, clock: Callable[[], int]) -> None:
        """``streams`` counts them; ``clock`` gives Unix milliseconds."""
        self._context, self._streams, self._clock = context, streams, clock

    def open(self, request: Request, session: Session) -> Response:
        """A stream about the run that the address names. Raises: Problem, Malformed."""
        name = c.name(request.path_params["id"], "id")
        with self._context.snapshots.read() as facts:
            caller = request.state.caller = caller_of_token(session.token, facts)
            caller.check("read_charge")
            get_visible(facts.charges.get(name), caller.sees_charge, facts, f"charge {name}")
        if HEAD in request.scope:
            return Response(headers={**EventStream.HEADERS, **headers.PAGE}, media_type=EventStream.media_type)
        life_s = min(LIFE_S, session.ends_s - self._clock() // 1000)
        self._streams.open(caller.organisation)
        frames = run_events(partial(self._frame, name, caller), life_s, limiter=self._context.snapshots.steps)
        return EventStream(frames, partial(self._streams.close, caller.organisation), headers.PAGE)

    def _frame(self, name: str, caller: Caller) -> Frame | None:
        """The run's newest frame; None where the caller may see it no more."""
        with self._context.snapshots.read() as facts:
            charge = facts.charges.get(name)
            if charge is None or not caller.sees_charge(charge, facts):
                return None
            frame = run_frame(charge, self._context.progress.paced(name), self._context.snapshots.time(facts))
        return frame_event(frame), charge.state is not ChargeState.PENDING


async def run_events(
    read: Callable[[], Frame | None], life_s: float, frame_s: float = FRAME_S, limiter: CapacityLimiter | None = None
) -> AsyncIterator[bytes]:
    """The bytes of one stream: each frame that differs from the one before, every ``frame_s`` seconds at most.

    ``limiter``: how many streams read the book at once.
    """
    clock = asyncio.get_running_loop().time
    ends, sent = clock() + life_s, b""
    yield _OPENING
    while (frame := await run_sync(partial(_unless_busy, read, (sent, False)), limiter=limiter)) is not None:
        event, last = frame
        yield _UNCHANGED if event == sent else event
        sent = event
        if last or clock() >= ends:
            return
        await asyncio.sleep(min(frame_s, max(0.0, ends - clock())))


def _unless_busy(read: Callable[[], Frame | None], last: Frame) -> Frame | None:
    """The newest frame, or the last one again where the database does not answer."""
    try:
        return read()
    except BookBusy:
        return last
