"""What a search may take: it ends when no caller waits for its answer, and when the time of its caller is used up."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from anyio import from_thread
from fastapi import Request

from api.auth.authorisation import Caller
from api.auth.caller_quotas import CallerQuotas
from api.http.problems import Problem, ServiceCode
from api.http.wanted_answers import is_wanted

SEARCH_S: Final = 60.0
"""Seconds of a processor that one search may take: no request is answered later than that."""
LOOK_S: Final = 0.25
"""Seconds of a processor after which a search looks again at the quota of its caller, and whether it is waited for."""


class SearchBudget:
    """Called by a search before each step, in the thread that was begun for its request."""

    def __init__(
        self,
        request: Request,
        caller: Caller,
        quotas: CallerQuotas,
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Begin now; ``clock`` gives the seconds of a processor that the thread took."""
        self._request, self._caller, self._quotas, self._clock = request, caller, quotas, clock
        self._begun = self._looked = clock()

    def __call__(self) -> None:
        """Go on with the search.

        Raises:
            Problem (429): if the caller has used up its seconds of pricing.
            Problem (503): if the search has taken too long, or no caller waits for its answer.
        """
        now = self._clock()
        if now - self._looked < LOOK_S:
            return
        self._looked, used_s = now, now - self._begun
        self._quotas.check_pricing(self._caller, used_s)
        if used_s > SEARCH_S:
            detail = f"the search takes more than {SEARCH_S:.0f} seconds of a processor: send it without one"
            raise Problem(ServiceCode.UNANSWERED, detail)
        if not from_thread.run(is_wanted, self._request):
            raise Problem(ServiceCode.UNANSWERED, "no caller waits for the answer")
