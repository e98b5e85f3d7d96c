"""One request, sent until it is answered or its sender's patience ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import httpx

from client.http.access_tokens import Credentials
from client.http.problems import Refused, Unreachable
from client.http.retries import Patience
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

ANSWER_BYTES_MAX: Final = 16 * 2**20
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@dataclass(frozen=True, slots=True)
class Sender:
    """Whoever sends.

    Attributes:
        http: connections to one service.
        credentials: without them only what is public is answered.
        patience: how often.
        clock: Unix seconds.
        recorded: the entries that refusals told, and those that whoever reads answers adds; one list for all callers
            of a service: what a process recorded, it recorded as whoever it was.
    """

    http: httpx.Client
    credentials: Credentials | None
    patience: Patience
    clock: Callable[[], float]
    recorded: list[int] = field(default_factory=list)

    def send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """An answer that is no refusal. Raises: Refused, Unreachable, Malformed."""
        sent = False
        for attempt in count():
            try:
                named = {**(headers or {}), **self._authorization()}
                response = self.http.request(method, path, content=content, headers=named, params=query)
            except httpx.RequestError as fault:
                sent = sent or not isinstance(fault, _NEVER_SENT)
                told = f"no answer from {self.http.base_url} ({type(fault).__name__})"
                failure: Refused | Unreachable = Unreachable(told, sent=sent)
            except Unreachable as fault:
                # No token, so this time nothing was sent.
                raise Unreachable(str(fault), sent=sent) from fault
            else:
                if response.is_success:
                    return response
                sent, failure = True, self._refused(response)
                if not self.patience.takes(response.status_code):
                    raise failure
            pause = self.patience.pause(attempt, failure, self.clock)
            if pause is None:
                raise failure
            time.sleep(pause)
        raise AssertionError

    def _refused(self, response: httpx.Response) -> Refused:
        try:
            found = Refused(response.status_code, object_of(response))
        except Malformed:
            found = Refused(response.status_code, {})
        if found.index is not None:
            self.recorded.append(found.index)
        return found

    def _authorization(self) -> dict[str, str]:
        return {} if self.credentials is None else {"authorization": f"Bearer {self.credentials.token()}"}


def object_of(response: httpx.Response) -> c.Object:
    """The JSON object of an answer. Raises: Malformed."""
    value = c.parse(response.content, ANSWER_BYTES_MAX, "answer")
    if not isinstance(value, dict):
        raise Malformed("answer", "must be an object")
    return value
