"""One connection: how long a request's head may be, how long head and body may take, and how many are open at once.

uvicorn bounds none of these, and answers what it cannot read in plain text. Here whatever is refused before there is a
request leaves as a problem, too, as long as nothing of another answer is on its way: then the connection just ends.

A head is the request line with its header fields; the trailers and the chunk extensions of a body count as one.

A kept connection is closed only while no request is open on it. uvicorn starts its timer when an answer is sent and
stops it when bytes come; here a request that is complete in one packet would not be seen by it, so the timer itself
looks whether an answer is under way. (The loop reads its sockets before it runs its timers, so a process that stood
still learns of what came in the meantime first.)

A deadline that is looked at late says that the process stood still, and perhaps its caller on the same machine too; it
says nothing of the caller's speed. So it is given once more.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, ClassVar, Final

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from api.http.body import BODY_S
from api.http.problems import Problem, ServiceCode
from api.http.quota_terms import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX
from api.http.sender_address import sender_of
from api.server.host_header import host_error

_PIECE: Final = 16_384
"""Bytes that the parser is given at once: what it gathers of one line is looked at after each."""
_LOG: Final = logging.getLogger("api.connections")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one process lets its connections do.

    Attributes:
        url_bytes: of a request's target.
        head_bytes: of a head.
        head_s: from the connection, or from a request's first byte, to the end of its head.
        body_s: from there to the end of the body; a route that reads one gives up before.
        late_s: a deadline looked at so much later is given once more, one time a connection.
        idle_s: how long a connection is kept without a request, which is uvicorn's own setting: well above the 5
            seconds after which clients (httpx) stop using it.
        send_s: how long an answer waits for a caller that does not read it.
        linger_s: how long a refused caller may still send, so that it can read why.
        open: connections that are served.
        refused: further ones, which get a 503; any beyond them are dropped.
        open_by_sender: of those, how many one sender may have, so that its slow sockets leave room for others.
        refused_by_sender: further ones of it, which get a 429; any beyond them are dropped.
        proxies: senders of which each speaks for many, and limits them itself.
    """

    url_bytes: int = 8_192
    head_bytes: int = 32_768
    head_s: float = 10.0
    body_s: float = BODY_S + 5.0
    late_s: float = 0.5
    idle_s: int = 20
    send_s: float = 60.0
    linger_s: float = 2.0
    open: int = CONNECTIONS_MAX
    refused: int = 64
    open_by_sender: int = CONNECTIONS_PER_ADDRESS_MAX
    refused_by_sender: int = 16
    proxies: frozenset[str] = frozenset()


class _Part(Enum):
    """What is to come next on a connection."""

    REQUEST = auto()
    HEAD = auto()
    BODY = auto()


class Connection(HttpToolsProtocol):
    """uvicorn's own, within :class:`Limits`."""

    limits: ClassVar[Limits] = Limits()

    def __init__(self, *args: Any, **named: Any) -> None:  # noqa: ANN401 - uvicorn's own
        """Start before the first request."""
        super().__init__(*args, **named)
        self.sender = ""
        self._part = _Part.REQUEST
        self._watched: _Part | None = _Part.REQUEST
        self._timer: asyncio.TimerHandle | None = None
        self._stood_still = False
        self._unsent: asyncio.TimerHandle | None = None
        self._problem: Problem | None = None
        self._input_over = False
        self._head_bytes = self._unread_bytes = 0
        self._progressed = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        """Accept the connection, or refuse it if too many are open."""
        super().connection_made(transport)
        self.sender = sender_of(self.client[0]) if self.client else ""
        others, own, limits = len(self.connections) - 1, self._others_of_sender(), self.limits
        if others >= limits.open + limits.refused or own >= limits.open_by_sender + limits.refused_by_sender:
            self._input_over = True
            transport.abort()
        elif others >= limits.open:
            self._refuse(Problem(ServiceCode.BUSY, "as many connections are open as the service has room for"))
        elif own >= limits.open_by_sender:
            self._refuse(Problem(ServiceCode.TOO_MANY, "as many connections of your address are open as one may have"))
        else:
            self._set_timer(limits.head_s)

    def _others_of_sender(self) -> int:
        if not self.sender or self.sender in self.limits.proxies:
            return 0
        of_sender = [
            connection
            for connection in self.connections
            if isinstance(connection, Connection) and connection.sender == self.sender
        ]
        return len(of_sender) - 1

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._input_over = True
        self._unset_timer()
        super().connection_lost(exc)
        self._unset_unsent()

    def data_received(self, data: bytes) -> None:
        """Parse the received bytes, within the limits."""
        view = memoryview(data)
        for start in range(0, len(data), _PIECE):
            if self._input_over:
                return
            self._read(view[start : start + _PIECE])
        if not self._input_over:
            self._watch()

    def _read(self, piece: memoryview) -> None:
        self._progressed = False
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            # Nothing else is spoken here: the request is answered as it is, and what follows is none.
            self._input_over = True
            self._unset_timer()
            self.cycle.keep_alive = False
            return
        except httptools.HttpParserError:
            self._refuse(self._problem or Problem(ServiceCode.BAD_REQUEST, "this is no HTTP request"))
            return
        # Bytes without a callback may be part of one long line that the parser buffers.
        self._unread_bytes = 0 if self._progressed else self._unread_bytes + len(piece)
        if self._head_bytes + self._unread_bytes > self.limits.head_bytes:
            self._refuse(self._head_too_large())

    def _watch(self) -> None:
        """Set the deadline of the part that is to come."""
        if self._part is not self._watched:
            self._watched = self._part
            self._unset_timer()
            if self._part is not _Part.REQUEST:
                self._set_timer(self.limits.head_s if self._part is _Part.HEAD else self.limits.body_s)

    def _set_timer(self, seconds: float) -> None:
        self._timer = self.loop.call_later(seconds, self._overdue, seconds)

    def _unset_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _overdue(self, seconds: float) -> None:
        if self._part is _Part.BODY and self.flow.read_paused:
            # It is the service that does not read.
            self._set_timer(seconds)
            return
        assert self._timer is not None
        if self.loop.time() - self._timer.when() > self.limits.late_s and not self._stood_still:
            self._stood_still = True
            self._set_timer(seconds)
            return
        if self._part is _Part.REQUEST:
            self._close()
            return
        what = "body" if self._part is _Part.BODY else "head"
        self._refuse(Problem(ServiceCode.TIMED_OUT, f"the {what} took more than the {seconds:g} seconds allowed"))

    def _head_too_large(self) -> Problem:
        return Problem(
            ServiceCode.HEAD_TOO_LARGE, f"the headers have more than the {self.limits.head_bytes} bytes allowed"
        )

    def _refuse(self, problem: Problem) -> None:
        """Read no more; answer with the problem, unless another answer is under way; and close."""
        self._input_over = True
        self._unset_timer()
        self._unset_keepalive_if_required()
        _LOG.info("refused", extra={"status": problem.status})
        if not self._may_answer():
            self._close()
            return
        response = problem.response({"connection": "close"})
        lines = (b"%s: %s\r\n" % header for header in (*self.server_state.default_headers, *response.raw_headers))
        self.transport.write(b"".join([STATUS_LINE[problem.status], *lines, b"\r\n", bytes(response.body)]))
        self.transport.write_eof()
        self._timer = self.loop.call_later(self.limits.linger_s, self.transport.abort)

    def _close(self) -> None:
        """Close once all is sent, or when it is not read."""
        self.transport.close()
        self._unset_timer()
        self._timer = self.loop.call_later(self.limits.send_s, self.transport.abort)

    def _may_answer(self) -> bool:
        """Whether nothing was sent of an answer that is not whole; that to the very request that is refused is over."""
        if self.transport.is_closing():
            return False
        if self.cycle is None or (self.cycle.response_complete and self._part is not _Part.BODY):
            return True
        if self._part is not _Part.BODY or self.cycle.response_started or self.pipeline:
            return False
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        return True

    def timeout_keep_alive_handler(self) -> None:
        """Close what is idle."""
        # A part of a request has a deadline of its own, and an answer that of its route.
        if self._part is _Part.REQUEST and (self.cycle is None or self.cycle.response_complete):
            self._close()

    def on_response_complete(self) -> None:
        """The end of an answer, and of the connection if it was to be its last."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._close()

    def pause_writing(self) -> None:
        """Start the deadline for a caller that does not read its answer."""
        super().pause_writing()
        if self._unsent is None:
            self._unsent = self.loop.call_later(self.limits.send_s, self.transport.abort)

    def resume_writing(self) -> None:
        """The caller reads again."""
        super().resume_writing()
        self._unset_unsent()

    def _unset_unsent(self) -> None:
        if self._unsent is not None:
            self._unsent.cancel()
            self._unsent = None

    # The parser's callbacks.

    def on_message_begin(self) -> None:
        """A request's first byte."""
        self._part, self._watched = _Part.HEAD, None
        self._head_bytes = self._unread_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Some of its target."""
        super().on_url(url)
        if len(self.url) > self.limits.url_bytes:
            self._problem = Problem(
                ServiceCode.URL_TOO_LONG, f"the URL has more than the {self.limits.url_bytes} bytes allowed"
            )
            raise self._problem
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field; what comes after the body is none of the request's, whose routes never see it."""
        self._count(len(name) + len(value) + len(b": \r\n"))
        if self._part is _Part.HEAD:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The end of the head. Raises: Problem, unless it names one host (RFC 9112, section 3.2)."""
        if rule := host_error(self.headers, self.parser.get_http_version()):
            self._problem = Problem(ServiceCode.BAD_REQUEST, rule, field="host")
            raise self._problem
        super().on_headers_complete()
        self._part, self._watched = _Part.BODY, None

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        self._progressed = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The end of the request."""
        self._part = _Part.REQUEST
        self._progressed = True
        super().on_message_complete()

    def _count(self, size: int) -> None:
        self._progressed = True
        self._head_bytes += size
        if self._head_bytes > self.limits.head_bytes:
            self._problem = self._head_too_large()
            raise self._problem
