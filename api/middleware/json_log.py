"""The service's own log: one JSON object a line, for programs, and never a secret.

    {"duration_ms":12,"level":"info","logger":"api.requests","message":"answered","operation":"submit_charge",
     "organisation":"did:web:bank-a.example","request_id":"9f3c...","status":201,"time":"2026-11-21T16:00:00.123Z"}

A record names the operation of a request, and never a header, a query or a body. Of an exception it has the type and
the stack frames, since its message may quote the request.
"""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final, TextIO

FIELDS: Final = (
    "charge",
    "duration_ms",
    "key_release",
    "operation",
    "organisation",
    "reason",
    "request_id",
    "status",
)
_FRAMES_MAX: Final = 20
_encode: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


class JsonLines(logging.Formatter):
    """A record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Its message and :data:`FIELDS`, and no other attribute."""
        fields: dict[str, object] = {
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
        }
        fields |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info and record.exc_info[1] is not None:
            fields["fault"] = type(record.exc_info[1]).__name__
            frames = traceback.extract_tb(record.exc_info[2])[-_FRAMES_MAX:]
            fields["frames"] = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        return _encode(fields)


class LogLines(logging.StreamHandler[TextIO]):
    """Writes the lines of one turn of an event loop together: at each write other threads take the interpreter.

    A warning, and what another thread logs, is written at once, after the lines before it.
    """

    def __init__(self, stream: TextIO) -> None:
        """Write to ``stream``."""
        super().__init__(stream)
        self._lines: list[str] = []
        self._last: logging.LogRecord | None = None
        self._writes_next: asyncio.AbstractEventLoop | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or have it written by the event loop that runs in this thread. Raises: nothing."""
        try:
            self._lines.append(self.format(record) + self.terminator)
        except Exception:  # noqa: BLE001 - a record that cannot be formatted is reported as such
            self.handleError(record)
            return
        self._last = record
        loop = None
        if record.levelno < logging.WARNING:
            with suppress(RuntimeError):
                loop = asyncio.get_running_loop()
        if loop is None:
            self.flush()
        elif loop is not self._writes_next:
            self._writes_next = loop
            loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what waits. Raises: nothing; lines that cannot be written are reported and lost."""
        self.acquire()
        lines, self._lines, self._writes_next = "".join(self._lines), [], None
        try:
            if lines:
                self.stream.write(lines)
            super().flush()
        except Exception:  # noqa: BLE001 - as the library's own handler has it
            if self._last is not None:
                self.handleError(self._last)
        finally:
            self.release()


def log_to(stream: TextIO, level: int = logging.INFO) -> logging.Handler:
    """Log everything of this process so; returns the handler, so that a caller can remove it."""
    handler = LogLines(stream)
    handler.setFormatter(JsonLines())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level)
    # A client of ours inside the process would log URLs with their queries.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    return handler
