"""Quotas: how much one organisation, one clean room or one address may use of a service, and how an answer shows it.

A clean room counts apart from the organisation that made its charge, so that no other client of it keeps a run from
leasing its steps and posting. A request beyond a quota is refused with 429 and ``Retry-After`` before anything is done
for it. Every answer shows the caller's quotas (draft-ietf-httpapi-ratelimit-headers-10):

    ratelimit-policy: "commands";q=6000;w=60, "questions";q=600;w=3600, ...
    ratelimit: "commands";r=5999;t=1, "questions";r=600;t=0, ...

``q`` units in ``w`` seconds; ``r`` of them are left, and all of them are back in ``t`` seconds.
"""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar

from anyio.to_thread import run_sync

from api.auth.authorisation import Caller
from api.auth.bad_signatures import BadSignatures
from api.http.caller_places import PLACE_WAIT_S, READING, READING_MAX, CallerPlaces
from api.http.problems import Problem, ServiceCode
from api.http.quota_terms import QuotaTerms
from api.http.refilling_buckets import RefillingBuckets
from api.http.sender_address import Senders

_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
Headers = list[tuple[bytes, bytes]]
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota: its name, what it counts in words, the unit where it is not a request, and the buckets of callers."""

    name: str
    counts: str
    buckets: RefillingBuckets
    unit: str = ""

    @property
    def policy(self) -> str:
        """Its item of ``ratelimit-policy``."""
        unit = f';qu="{self.unit}"' if self.unit else ""
        return f'"{self.name}";q={self.buckets.amount}{unit};w={self.buckets.window_s}'

    def level(self, key: Hashable) -> str:
        """Its item of ``ratelimit`` for one caller."""
        level = self.buckets.level(key)
        return f'"{self.name}";r={level.left};t={level.full_s}'

    def admit(self, key: Hashable, cost: int = 1) -> None:
        """Take so many units. Raises: Problem (429), if fewer are left; then none is taken."""
        self._refuse(self.buckets.take(key, cost))

    def check(self, key: Hashable, uncounted: float = 0.0) -> None:
        """Raises: Problem (429), if less than a unit is left once ``uncounted`` units are taken."""
        self._refuse(self.buckets.wait_s(key, uncounted))

    def _refuse(self, wait_s: float) -> None:
        if not wait_s:
            return
        retry_s = math.ceil(wait_s)
        per = "a minute" if self.buckets.window_s == _MINUTE_S else "an hour"
        detail = f"the quota of {self.buckets.amount} {self.counts} {per} is used up: retry in {retry_s} s"
        raise Problem(ServiceCode.QUOTA_EXCEEDED, detail, retry_s=retry_s)


class CallerQuotas:
    """The quotas of one process, used from any thread.

    Attributes:
        place_wait_s: seconds that a request waits for a place to read the book.
    """

    def __init__(
        self,
        terms: QuotaTerms | None = None,
        proxies: Iterable[str] = (),
        clock: Callable[[], float] = time.monotonic,
        forwarded: str = "",
    ) -> None:
        """Each of several processes admits its share of every quota.

        Args:
            proxies: addresses that speak for many callers.
            clock: seconds.
            forwarded: the header field in which proxies name their callers; without one they are not counted.
        """
        self.terms = terms = terms or QuotaTerms()

        def buckets(amount: int, window_s: int) -> RefillingBuckets:
            return RefillingBuckets(terms.share(amount), window_s, clock)

        self._senders = Senders(proxies, forwarded)
        self._commands = Quota("commands", "requests other than reads", buckets(terms.commands_per_minute, _MINUTE_S))
        self._questions = Quota(
            "questions", "quotes, dry runs and what-if questions", buckets(terms.questions_per_hour, _HOUR_S)
        )
        self._refusals = Quota("refusals", "recorded refusals", buckets(terms.refusals_per_hour, _HOUR_S))
        self._pricing = Quota(
            "pricing", "seconds of pricing", buckets(terms.pricing_s_per_hour, _HOUR_S), unit="seconds"
        )
        self._anonymous = Quota(
            "anonymous", "requests without a valid token", buckets(terms.anonymous_per_minute, _MINUTE_S)
        )
        self._of_caller = self._commands, self._questions, self._refusals, self._pricing
        self._readers = CallerPlaces(READING_MAX, READING)
        self.place_wait_s = PLACE_WAIT_S
        self._caller_policy = ", ".join(key.policy for key in self._of_caller).encode()
        self._anonymous_policy = self._anonymous.policy.encode()

    def admit_anonymous(self, scope: Mapping[str, Any]) -> None:
        """Count a request (an ASGI scope) of an address without a valid token. Raises: Problem (429)."""
        if sender := self._senders.of(scope):
            self._anonymous.admit(sender)

    def admit_commands(self, caller: Caller, count: int = 1) -> None:
        """Count requests that may change something. Raises: Problem (429)."""
        self._commands.admit(_key(caller), count)

    def admit_questions(self, caller: Caller, count: int = 1) -> None:
        """Count quotes, dry runs or what-if questions. Raises: Problem (429)."""
        self._questions.admit(_key(caller), count)

    def check_refusals(self, caller: Caller) -> None:
        """Raises: Problem (429), if no more refusals of a caller may be recorded."""
        self._refusals.check(_key(caller))

    def count_refusals(self, caller: Caller, count: int) -> None:
        """Count refusals that were recorded."""
        if count:
            self._refusals.buckets.charge(_key(caller), count)

    def check_pricing(self, caller: Caller, uncounted_s: float = 0.0) -> None:
        """Raises: Problem (429), if a caller has used up its seconds of pricing, those not counted yet among them."""
        self._pricing.check(_key(caller), uncounted_s)

    def pricing_wait_s(self, organisation: str) -> float:
        """Seconds until an organisation has some of its seconds of pricing again; 0 if it has."""
        return self._pricing.buckets.wait_s((organisation, ""))

    def count_pricing(self, organisation: str, seconds: float) -> None:
        """Count seconds of a processor that a price took which an organisation needed."""
        self._pricing.buckets.charge((organisation, ""), seconds)

    def reading(self, caller: Caller, scope: Mapping[str, Any]) -> AbstractAsyncContextManager[None]:
        """A place among the requests that read the book, which a coroutine waits for. Raises: Problem (429, 503).

        An organisation has its places, all its clean rooms together have theirs, and so has an address without a token;
        those whose address is unknown have theirs together.
        """
        if caller.organisation:
            return self._readers.awaited((caller.organisation, bool(caller.charge)), self.place_wait_s)
        return self._readers.awaited(self._senders.of(scope), self.place_wait_s)

    @property
    def readers_waiting(self) -> int:
        """How many requests wait at this moment to read the book."""
        return self._readers.waiting

    def in_turn(self, endpoint: Callable[P, T]) -> Callable[P, Awaitable[T]]:
        """An endpoint with a ``caller`` as a coroutine: it runs in a thread once its caller has a place to read."""

        @wraps(endpoint)
        async def run(*positional: P.args, **named: P.kwargs) -> T:
            caller = named["caller"]
            assert isinstance(caller, Caller)
            async with self.reading(caller, {}):
                return await run_sync(partial(endpoint, *positional, **named))

        return run

    @contextmanager
    def metered(self, caller: Caller) -> Iterator[None]:
        """Count the processor time of this thread during the block as the caller's pricing."""
        begun = time.thread_time()
        try:
            yield
        finally:
            self._pricing.buckets.charge(_key(caller), time.thread_time() - begun)

    def headers(self, caller: Caller | None, scope: Mapping[str, Any]) -> Headers:
        """The header fields of an answer: the quotas of a known caller, else that of its address if it is counted."""
        if caller is not None:
            key = _key(caller)
            levels = ", ".join(quota.level(key) for quota in self._of_caller)
            return [(b"ratelimit-policy", self._caller_policy), (b"ratelimit", levels.encode())]
        if not (sender := self._senders.of(scope)):
            return []
        level = self._anonymous.level(sender)
        return [(b"ratelimit-policy", self._anonymous_policy), (b"ratelimit", level.encode())]


class CallerLimits(NamedTuple):
    """What bounds the callers of commands."""

    signatures: BadSignatures
    quotas: CallerQuotas


def _key(caller: Caller) -> tuple[str, str]:
    return caller.organisation, caller.charge
