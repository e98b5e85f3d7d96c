"""Progress reports: a thread of its own sends the steps that are done to the ledger, so that training never waits.

Reports are cumulative, so only the newest is sent: in order, one at a time, at most one each ``pace_s``, and the same
one twice does no harm. A report that does not arrive is retried with a growing pause; training goes on, because the
charge stays whether or not a report arrives. A service that answers that the charge is over ends the run; whether it
is, and whether the contract was revoked, is also checked once in ten reports.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from client.http.problems import Refused, Unreachable
from ledger.wire.malformed import Malformed

PACE_S: Final = 1.0
LOOK_EVERY: Final = 10
BACK_OFF_MAX_S: Final = 60.0
FAREWELL_S: Final = 2.0
_SERVER_ERROR: Final = 500


class ProgressReporter:
    """Reports of one run."""

    def __init__(self, send: Callable[[int], None], over: Callable[[], str], pace_s: float = PACE_S) -> None:
        """Nothing is sent before the first :meth:`report`.

        Args:
            send: sends one report, once. Raises: Refused, Unreachable.
            over: reads whether the charge is over: why, or nothing. Raises: Refused, Unreachable.
            pace_s: seconds between two reports, and before the first trial of a report again.
        """
        self._send, self._over, self._pace_s = send, over, pace_s
        self._newest = self._reported = self._sent = 0
        self._ended = ""
        self._looking, self._looks = False, 0
        self._news, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        self._thread.start()

    def report(self, steps: int) -> None:
        """So many steps are done; returns at once."""
        self._newest = steps
        self._news.set()

    def look(self) -> None:
        """Check now and then whether the charge is over, though no report may leave yet; returns at once."""
        if not self._looking:
            self._looking = True
            self._news.set()

    def ended(self) -> str:
        """Why the run has to end, or nothing; returns at once."""
        return self._ended

    def close(self) -> None:
        """Send what is left if that works at once, and end the thread."""
        self._closing.set()
        self._news.set()
        self._thread.join(FAREWELL_S)

    def _run(self) -> None:
        wait = self._pace_s
        while not self._ended:
            self._news.wait()
            self._news.clear()
            arrived = self._report(self._newest)
            if self._closing.is_set():
                return
            wait = self._pace_s if arrived else min(2 * wait, BACK_OFF_MAX_S)
            if not arrived:
                self._news.set()
            self._closing.wait(wait)

    def _report(self, steps: int) -> bool:
        """Whether the service answered."""
        looking, self._looking = self._looking, False
        try:
            if steps == self._reported:
                self._looks += looking
                if looking and self._looks % LOOK_EVERY == 2:
                    self._ended = self._over()
                return True
            if self._is_accepted(steps):
                self._reported = steps
                self._sent += 1
            # The first look comes with the second report, so that a run hears early of what ended before it began.
            if self._reported != steps or self._sent % LOOK_EVERY == 2:
                self._ended = self._over()
        except (Refused, Unreachable, Malformed):
            return False
        return True

    def _is_accepted(self, steps: int) -> bool:
        """Whether the service took the report. Raises: Refused, if it failed itself; Unreachable."""
        try:
            self._send(steps)
        except Refused as refused:
            if refused.status >= _SERVER_ERROR:
                raise
            return False
        return True
