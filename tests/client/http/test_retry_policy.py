"""How often a command is sent that gets no answer, and whether it may have arrived."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

import pytest

from client.http.problems import Refused, Unreachable
from client.http.retry_policy import PAUSE_MAX_S, REPORT_AT, RetryPolicy
from client.service.service import Service

FAULT = Unreachable("no answer")


def _pauses(policy: RetryPolicy, attempts: int, clock: Callable[[], float] = lambda: 100.0) -> list[float]:
    """Seconds slept between attempts that all fail, at most so many of them."""
    pauses: list[float] = []
    made = 0

    def fail() -> None:
        nonlocal made
        made += 1
        raise FAULT if made <= attempts else KeyError

    with pytest.raises((Unreachable, KeyError)):
        policy.retrying(clock, pauses.append)(fail)
    return pauses


def test_without_a_moment_attempts_are_counted() -> None:
    """Four trials, three pauses, each twice the one before."""
    policy = RetryPolicy(4)
    assert _pauses(policy, 9) == [0.2, 0.4, 0.8]
    reported = [policy.is_transient(Refused(status, {})) for status in (404, 409, 429, 500, 503)]
    assert reported == [False, False, False, True, True]


def test_until_a_moment_it_goes_on_and_says_so_once() -> None:
    """Half a minute apart at most, never beyond the moment; and a caller who is one of too many waits as well."""
    reported: list[str] = []
    policy = RetryPolicy(2, until=145.0, report=reported.append)
    pauses = _pauses(policy, 2_000)
    assert (len(pauses), pauses[:4]) == (2_000, [0.2, 0.4, 0.8, 1.6])
    assert set(pauses[8:]) == {PAUSE_MAX_S}
    assert _pauses(RetryPolicy(2, until=101.0), 9)[-1] == 1.0
    assert reported == ["no answer; retrying for up to 45 s"]
    assert REPORT_AT < 5
    assert policy.is_transient(Refused(429, {}))


def test_a_quota_is_waited_for() -> None:
    """As long as the service says, and never beyond the deadline."""
    pauses: list[float] = []

    def fail() -> None:
        raise Refused(429, {"code": "quota_exceeded"}, retry_s=40)

    with pytest.raises(Refused):
        RetryPolicy(2, until=150.0).retrying(lambda: 100.0 + sum(pauses), pauses.append)(fail)
    assert pauses == [40, 10]


def test_after_the_moment_attempts_are_counted_again() -> None:
    """What is asked after a deadline is asked as usual."""
    assert _pauses(RetryPolicy(3, until=99.0), 9) == [0.2, 0.4]


def test_it_is_known_whether_bytes_may_have_arrived() -> None:
    """Where nobody listens nothing arrived; where somebody hangs up nobody knows, also if nobody listens afterwards."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        url = f"http://127.0.0.1:{door.getsockname()[1]}"

        def hang_up() -> None:
            caller, _ = door.accept()
            caller.recv(1)
            caller.close()
            door.close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with Service(url, attempts=3, backoff_s=0.01) as service, pytest.raises(Unreachable) as unknown:
            service.log()
        thread.join()
    with Service(url, attempts=2, backoff_s=0.01) as service, pytest.raises(Unreachable) as unsent:
        service.log()
    assert (unknown.value.sent, unsent.value.sent) == (True, False)
