"""How often a request without an answer is sent again: a number of attempts, or until a deadline, with backoff."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential

from client.http.problems import Refused, Unreachable

PAUSE_MAX_S: Final = 30.0
REPORT_AT: Final = 4
"""The outage is reported after this many attempts."""


def _silent(_line: str) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Exponential backoff. Sending again is safe: a command's id is its idempotency key.

    Attributes:
        attempts: the most attempts, where there is no ``until`` or it has passed.
        backoff_s: seconds before the second attempt, doubled before each further one, half a minute at most.
        until: a deadline in Unix seconds; before it attempts are not counted, and a busy service (429) is retried.
        report: gets one line, once, when no answer comes before ``until``.
    """

    attempts: int
    backoff_s: float = 0.2
    until: float | None = None
    report: Callable[[str], None] = _silent

    def is_transient(self, error: BaseException) -> bool:
        """Whether the next attempt may succeed: no answer came, the server failed, or it is busy."""
        if not isinstance(error, Refused):
            return isinstance(error, Unreachable)
        busy = self.until is not None and error.status == HTTPStatus.TOO_MANY_REQUESTS
        return busy or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR

    def retrying(self, clock: Callable[[], float], sleep: Callable[[float], None] = time.sleep) -> Retrying:
        """Call a function until it succeeds, fails for good, or attempts and time are used up; then raise its error."""
        backoff = wait_exponential(multiplier=self.backoff_s, max=PAUSE_MAX_S)

        def remaining_s() -> float:
            return 0.0 if self.until is None else max(0.0, self.until - clock())

        def requested_s(state: RetryCallState) -> float:
            """The seconds after which a quota has room again: an earlier attempt would be refused."""
            error = state.outcome.exception() if state.outcome is not None else None
            is_quota = isinstance(error, Refused) and error.status == HTTPStatus.TOO_MANY_REQUESTS
            return getattr(error, "retry_s", 0) if is_quota else 0

        def report(state: RetryCallState) -> None:
            if state.attempt_number == REPORT_AT and (left := remaining_s()):
                error = state.outcome.exception() if state.outcome is not None else None
                self.report(f"{error}; retrying for up to {left:.0f} s")

        return Retrying(
            sleep=sleep,
            retry=retry_if_exception(self.is_transient),
            stop=lambda state: state.attempt_number >= self.attempts and not remaining_s(),
            wait=lambda state: min(max(backoff(state), requested_s(state)), remaining_s() or PAUSE_MAX_S),
            before_sleep=report,
            reraise=True,
        )
