"""One request to the service, retried until it is answered or its retry policy gives up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx

from client.http.access_tokens import Credentials
from client.http.bounded_answer import read_answer
from client.http.problems import Refused, Unreachable
from client.http.retry_policy import RetryPolicy
from ledger.verifier import ACCOUNT_BYTES_MAX
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

ANSWER_BYTES_MAX: Final = 16 * 2**20
"""Of an answer that is one JSON object; no answer is longer than the proof of an account may be."""
ANSWER_S: Final = 300.0
"""How long one answer may take, from its request to its last byte."""
_NEVER_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)


@dataclass(frozen=True, slots=True)
class Sender:
    """The connections to one service, as one caller.

    Attributes:
        http: the connections.
        credentials: the caller's; without them the service answers public requests only.
        retry_policy: how often a request is sent.
        clock: Unix seconds.
        recorded: indices of the entries that answers named, refusals among them; one list for all callers of a
            process.
    """

    http: httpx.Client
    credentials: Credentials | None
    retry_policy: RetryPolicy
    clock: Callable[[], float]
    recorded: list[int] = field(default_factory=list)

    def send(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        headers: Callable[[], Mapping[str, str]] = dict,
        query: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        """Send a request and give its successful answer; ``headers`` are made anew at each attempt.

        Raises:
            Refused, Unreachable, Malformed.
        """
        sent = False

        def attempt() -> httpx.Response:
            nonlocal sent
            try:
                named = {**headers(), **self._authorization()}
                request = self.http.build_request(method, path, content=content, headers=named, params=query)
                response = read_answer(self.http, request, ACCOUNT_BYTES_MAX, ANSWER_S)
            except httpx.RequestError as error:
                sent = sent or not isinstance(error, _NEVER_SENT)
                running = "; is the service running?" if isinstance(error, _NEVER_SENT) else ""
                message = f"no answer from {self.http.base_url} ({type(error).__name__}{running})"
                raise Unreachable(message, sent=sent) from error
            except Unreachable as error:
                # There is no token, so this attempt sent nothing.
                raise Unreachable(str(error), sent=sent) from error
            sent = True
            if response.is_success:
                return response
            raise self._refused(response)

        return self.retry_policy.retrying(self.clock)(attempt)

    def _refused(self, response: httpx.Response) -> Refused:
        try:
            refused = Refused(response.status_code, object_of(response), _retry_s(response))
        except Malformed:
            refused = Refused(response.status_code, {}, _retry_s(response))
        if refused.index is not None:
            self.recorded.append(refused.index)
        return refused

    def _authorization(self) -> dict[str, str]:
        return {} if self.credentials is None else {"authorization": f"Bearer {self.credentials.token()}"}


def _retry_s(response: httpx.Response) -> int:
    """Seconds by ``retry-after`` (RFC 9110, section 10.2.3); 0 without, or where it is a date."""
    header = response.headers.get("retry-after", "")
    return int(header) if len(header) < 9 and header.isascii() and header.isdigit() else 0


def objects_of(items: c.Json) -> list[c.Object]:
    """The objects of a list; of anything else none."""
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def object_of(response: httpx.Response) -> c.Object:
    """The JSON object of an answer. Raises: Malformed."""
    value = c.parse(response.content, ANSWER_BYTES_MAX, "answer")
    if not isinstance(value, dict):
        raise Malformed("answer", "must be an object")
    return value
