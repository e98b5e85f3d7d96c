"""Connections within bounds: a head too long or too slow, a body too slow, one connection too many, and no HTTP at all.

Over real sockets. Whoever is refused is told by a problem, and others go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from api.http.quota_terms import CONNECTIONS_PER_ADDRESS_MAX
from api.http.sender_address import sender_of
from tests.api.server.raw_http import GET, PATIENCE_S, POST, connect, heard, problem_of, sent, served, works

QUICK: Final = 0.2


@pytest.fixture(scope="module")
def door() -> Iterator[tuple[str, int]]:
    """A service with the limits that it has."""
    with served() as found:
        yield found


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00", 400, "bad_request"),
        (b"GET /size HTTP/9.9\r\n\r\n", 400, "bad_request"),
        (b"GET /size HTTP/1.1\r\nhost: here\r\nno field\r\n\r\n", 400, "bad_request"),
        (b"CONNECT here:80 HTTP/1.1\r\nhost: here\r\n\r\n", 400, "bad_request"),
        (b"GET /\xff HTTP/1.1\r\nhost: here\r\n\r\n", 400, "bad_request"),
        (POST + b"content-length: 1x\r\n\r\n", 400, "bad_request"),
        (POST + b"content-length: -1\r\n\r\n", 400, "bad_request"),
        (POST + b"content-length: 3\r\ncontent-length: 4\r\n\r\nabcd", 400, "bad_request"),
        (
            POST + b"content-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "bad_request",
        ),
        (POST + b"transfer-encoding: chunked\r\n\r\nzz\r\n", 400, "bad_request"),
        (b"GET /size?" + b"a" * 8_200 + b" HTTP/1.1\r\n\r\n", 414, "url_too_long"),
        (GET + b"x: " + b"a" * 32_768 + b"\r\n\r\n", 431, "head_too_large"),
        (GET + b"x: y\r\n" * 6_000 + b"\r\n", 431, "head_too_large"),
        (
            POST + b"transfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 9_000,
            431,
            "head_too_large",
        ),
        (b"\r\n" * 40_000, 431, "head_too_large"),
        (b"GET /size HTTP/1.1\r\n\r\n", 400, "bad_request"),
        (GET + b"host: here\r\n\r\n", 400, "bad_request"),
        (GET + b"HOST: there\r\n\r\n", 400, "bad_request"),
        (b"GET /size HTTP/1.1\r\nhost:\r\n\r\n", 400, "bad_request"),
        (b"GET /size HTTP/1.1\r\nhost: here, there\r\n\r\n", 400, "bad_request"),
        (b"GET /size HTTP/1.1\r\nhost: a@b/c\r\n\r\n", 400, "bad_request"),
        (b"GET /size HTTP/1.0\r\nhost: here\r\nhost: here\r\n\r\n", 400, "bad_request"),
    ],
)
def test_what_cannot_be_read_is_a_problem_and_the_last(
    door: tuple[str, int], raw: bytes, status: int, code: str
) -> None:
    """Its status and code, whether it comes at once or in two pieces."""
    assert problem_of(sent(door, raw)) == (status, code)
    assert problem_of(sent(door, raw[: len(raw) // 2], raw[len(raw) // 2 :])) == (status, code)


@pytest.mark.parametrize("host", [b"here", b"here:80", b"[::1]:8000", b"127.0.0.1:", b"xn--a.example"])
def test_one_host_is_read_however_it_is_written(door: tuple[str, int], host: bytes) -> None:
    """A name, an address, a port; HTTP/1.0 needs none."""
    assert b" 200 OK\r\n" in sent(door, b"GET /size HTTP/1.1\r\nconnection: close\r\nhost: " + host + b"\r\n\r\n")
    assert b" 200 OK\r\n" in sent(door, b"GET /size HTTP/1.0\r\n\r\n")


def test_a_header_without_end_is_refused_before_it_is_kept(door: tuple[str, int]) -> None:
    """No more than some pieces of it are taken; 431 comes while the caller is still sending."""
    with connect(door) as connection:
        connection.sendall(GET + b"x: ")
        size = 0
        try:
            while size < 1 << 26:
                connection.sendall(b"a" * 65_536)
                size += 65_536
        except (BrokenPipeError, ConnectionResetError, TimeoutError):
            pass
        told = heard(connection)
    assert told.startswith(b"HTTP/1.1 431 ")
    assert works(door)


def test_a_head_as_long_as_may_be_is_read(door: tuple[str, int]) -> None:
    """A header of 32,000 bytes passes, and what follows it on the connection."""
    value = b"a" * 32_000
    raw = GET + b"x: " + value + b"\r\n\r\n"
    answers = sent(door, raw, raw, GET + b"connection: close\r\n\r\n")
    assert answers.count(b"HTTP/1.1 200 OK\r\n") == 3
    assert answers.count(b"%d 0" % (len("hosthere") + len("x") + len(value))) == 2


def test_trailers_are_none_of_the_headers(door: tuple[str, int]) -> None:
    """A field after the body is not merged into those before it."""
    raw = POST + b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r\n0\r\n%s\r\n"
    bare, with_trailer = (sent(door, raw % trailer).partition(b"\r\n\r\n")[2] for trailer in (b"", b"x: y\r\n"))
    assert bare == with_trailer != b""


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"", None),
        (b"\r\n", None),
        (b"G", (408, "timed_out")),
        (GET, (408, "timed_out")),
        (POST + b"content-length: 3\r\n\r\nab", (408, "timed_out")),
        (POST + b"transfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", (408, "timed_out")),
    ],
)
def test_what_does_not_come_is_not_waited_for(raw: bytes, told: tuple[int, str] | None) -> None:
    """Half a head, half a body: 408 and the end; of nothing at all just the end."""
    with served(head_s=QUICK, body_s=QUICK) as door:
        answer = sent(door, raw)
        assert problem_of(answer) == told if told else answer == b""


def test_what_comes_by_drops_has_no_more_time() -> None:
    """A byte now and then moves no deadline: neither of the head nor of the body."""
    for begun, drop in ((GET, b"x: y\r\n"), (POST + b"content-length: 99999999\r\n\r\n", b"a")):
        with served(head_s=QUICK, body_s=QUICK) as door, connect(door) as connection:
            connection.sendall(begun)
            connection.settimeout(QUICK / 20)
            answer = b""
            for _ in range(1_000):
                try:
                    answer = connection.recv(65_536)
                    break
                except TimeoutError:
                    connection.sendall(drop)
            assert problem_of(answer) == (408, "timed_out")


def test_a_body_that_nobody_reads_is_not_waited_for_either() -> None:
    """The answer comes at once; a body that goes on for ever is cut off."""
    with served(body_s=QUICK) as door, connect(door) as connection:
        connection.sendall(b"POST /deaf HTTP/1.1\r\nhost: here\r\ncontent-length: 9999999999\r\n\r\n")
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200 OK")
        with pytest.raises(OSError, match=r"[Bb]roken pipe|reset"):
            connection.sendall(b"a" * (1 << 30))


def test_a_stream_outlives_every_deadline_of_its_request() -> None:
    """It goes on after a connection of the same age, on which nothing was asked, was closed."""
    with served(head_s=QUICK, body_s=QUICK) as door, connect(door) as connection, connect(door) as idle:
        connection.sendall(b"GET /stream HTTP/1.1\r\nhost: here\r\n\r\n")
        assert heard(idle) == b""
        size = 0
        while size < 1 << 24:
            size += len(connection.recv(1 << 20))


def test_an_answer_that_nobody_reads_is_dropped() -> None:
    """The connection ends in the midst of it."""
    with served(head_s=QUICK, send_s=QUICK / 10) as door, connect(door) as connection:
        connection.sendall(b"GET /stream HTTP/1.1\r\nhost: here\r\n\r\n")
        connection.recv(10)
        with connect(door) as idle:
            assert heard(idle) == b""
        assert not heard(connection).endswith(b"\r\n0\r\n\r\n")


def test_one_connection_too_many_is_told_so_and_there_is_room_again() -> None:
    """503 with a time to come back; beyond some of those, no answer; once others leave, 200."""
    with served(open=3, refused=2, linger_s=PATIENCE_S) as door, ExitStack() as stack:
        kept = [stack.enter_context(connect(door)) for _ in range(3)]
        for one in kept:
            one.sendall(GET + b"\r\n")
            assert one.recv(65_536).startswith(b"HTTP/1.1 200 OK")
        refused = [stack.enter_context(connect(door)) for _ in range(2)]
        for one in refused:
            answer = heard(one)
            assert problem_of(answer) == (503, "busy")
            assert b"retry-after: 2" in answer
        assert sent(door, GET + b"\r\n") == b""
        for one in (*kept, *refused):
            one.close()
        for _ in range(1_000):
            if works(door):
                break
        assert works(door)


SLOW: Final = "127.0.0.2"


def test_slow_sockets_of_one_address_leave_room_for_others() -> None:
    """They hold their share, get 429 beyond it and then no answer; another address is served all the while."""
    with (
        served(open=12, refused=2, open_by_sender=4, refused_by_sender=2, linger_s=PATIENCE_S) as door,
        ExitStack() as stack,
    ):
        slow = [stack.enter_context(connect(door, SLOW)) for _ in range(4)]
        for one in slow:
            one.sendall(GET)
        refused = [stack.enter_context(connect(door, SLOW)) for _ in range(2)]
        for one in refused:
            answer = heard(one)
            assert problem_of(answer) == (429, "too_many")
            assert b"retry-after: 30" in answer
        for _ in range(20):
            with connect(door, SLOW) as dropped:
                assert heard(dropped) == b""
            assert works(door)
        slow[0].sendall(b"\r\n")
        assert slow[0].recv(65_536).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("begun", [GET, POST + b"content-length: 3\r\n\r\na"])
def test_no_address_can_take_what_a_service_has_as_it_is_shipped(begun: bytes) -> None:
    """Of 300 half requests of one address so many are held as one may have; each honest request is answered."""
    with served() as door, ExitStack() as stack:
        slow = [stack.enter_context(connect(door, SLOW)) for _ in range(300)]
        for one in slow:
            with suppress(BrokenPipeError, ConnectionResetError):
                one.sendall(begun)
        for one in slow[CONNECTIONS_PER_ADDRESS_MAX:]:
            assert heard(one)[:12] in {b"HTTP/1.1 429", b""}
            assert works(door)
        for one in slow[:CONNECTIONS_PER_ADDRESS_MAX]:
            one.sendall(b"\r\n" if begun is GET else b"bc")
            assert one.recv(65_536).startswith(b"HTTP/1.1 200 OK")


def test_a_proxy_s_connections_are_those_of_many() -> None:
    """Its address is not counted; the process's own bound holds."""
    with served(open=6, open_by_sender=1, proxies=frozenset({SLOW})) as door, ExitStack() as stack:
        for _ in range(5):
            one = stack.enter_context(connect(door, SLOW))
            one.sendall(GET + b"\r\n")
            assert one.recv(65_536).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("testclient", "testclient", True),
    ],
)
def test_a_sender_is_an_address_or_its_network(one: str, other: str, same: bool) -> None:  # noqa: FBT001 - a table's column
    """One machine may have all of a /64."""
    assert (sender_of(one) == sender_of(other)) is same


def test_nothing_is_put_among_the_bytes_of_another_answer(door: tuple[str, int]) -> None:
    """Rubbish behind a request whose answer is on its way ends the connection, and adds nothing to it."""
    with connect(door) as connection:
        connection.sendall(b"GET /stream HTTP/1.1\r\nhost: here\r\n\r\n")
        connection.recv(10)
        connection.sendall(b"rubbish\r\n\r\n")
        assert b"HTTP/1.1" not in heard(connection)
    assert works(door)


def test_requests_on_one_connection_are_answered_in_order(door: tuple[str, int]) -> None:
    """Sent at once, cut anywhere: each gets its own answer."""
    raw = b"".join(POST + b"content-length: %d\r\n\r\n%s" % (n, b"a" * n) for n in range(5))
    raw += GET + b"connection: close\r\n\r\n"

    @settings(max_examples=10, deadline=None)
    @given(st.integers(0, len(raw)), st.integers(0, len(raw)))
    def cut(first: int, second: int) -> None:
        first, second = sorted((first, second))
        answers = sent(door, raw[:first], raw[first:second], raw[second:]).split(b"HTTP/1.1 200 OK\r\n")[1:]
        sizes = [one.rpartition(b"\r\n\r\n")[2].split()[1] for one in answers]
        assert sizes == [b"0", b"1", b"2", b"3", b"4", b"0"]

    cut()


def test_an_upgrade_is_not_followed(door: tuple[str, int]) -> None:
    """The request is answered as it is, once, and what comes behind it is not taken for another."""
    asked = GET + b"connection: upgrade\r\nupgrade: websocket\r\n\r\n"
    answer = sent(door, asked, GET + b"\r\n")
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 1
    assert answer.count(b"HTTP/1.1") == 1
