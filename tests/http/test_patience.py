"""How often a command is sent that gets no answer, and whether it may have arrived."""

from __future__ import annotations

import socket
import threading

import pytest

from client.http.problems import Unreachable
from client.http.retries import PAUSE_MAX_S, TOLD_AT, Patience
from client.service.service import Service

FAULT = Unreachable("no answer")


def _clock() -> float:
    return 100.0


def test_without_a_moment_attempts_are_counted() -> None:
    """Four trials, three pauses, each twice the one before."""
    patience = Patience(4)
    assert [patience.pause(one, FAULT, _clock) for one in range(4)] == [0.2, 0.4, 0.8, None]
    assert [patience.takes(status) for status in (404, 409, 429, 500, 503)] == [False, False, False, True, True]


def test_until_a_moment_it_goes_on_and_says_so_once() -> None:
    """Half a minute apart at most, never beyond the moment; and a caller who is one of too many waits as well."""
    told: list[str] = []
    patience = Patience(2, until=145.0, tell=told.append)
    pauses = [patience.pause(one, FAULT, _clock) for one in range(2_000)]
    assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]
    assert set(pauses[8:]) == {PAUSE_MAX_S}
    assert Patience(2, until=101.0).pause(9, FAULT, _clock) == 1.0
    assert told == ["no answer; it is sent again and again, for 45 s at most"]
    assert TOLD_AT < 4
    assert patience.takes(429)


def test_after_the_moment_attempts_are_counted_again() -> None:
    """What is asked after a deadline is asked as usual."""
    patience = Patience(3, until=99.0)
    assert [patience.pause(one, FAULT, _clock) for one in range(3)] == [0.2, 0.4, None]


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
