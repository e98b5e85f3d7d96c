"""Callers that hold, flood and use up what they can, over real sockets; an honest one is served all the while."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest

from api.auth.caller_quotas import CallerQuotas
from api.http.quota_terms import CONNECTIONS_PER_ADDRESS_MAX, QuotaTerms
from client.http.endpoints import JSON_TYPE, QUOTES
from ledger.wire import canonical_json as c
from tests.api.auth.test_caller_quotas import CLOCK, bounded, charge, exceeded, left
from tests.api.server.raw_http import connect, heard, problem_of
from tests.factories.documents import PARTITION
from tests.factories.people import BANK_A, HOSPITAL
from tests.factories.service import ServedWorld, founded_world

SLOW: Final = "127.0.0.2"
LOUD: Final = "127.0.0.3"
ANONYMOUS: Final = 40
HOST: Final = b"host: here\r\n"
BEGUN: Final = (
    b"",
    b"G",
    b"GET /v1/charges HTTP/1.1\r\n" + HOST,
    b"GET /v1/checkpoint HTTP/1.1\r\n" + HOST + b"x: ",
    b"POST /v1/charges HTTP/1.1\r\n" + HOST + b"content-length: 9999\r\n\r\n{",
    b"POST /v1/plans HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\nff\r\n{",
)
"""What slow sockets send, and no more."""
READERS: Final = 8
"""Sockets that send a request for a long answer, and read nothing of it."""
LONG: Final = b"GET /docs/swagger-ui-bundle.js HTTP/1.1\r\n" + HOST + b"\r\n"
BAD: Final = b"GET /v1/charges HTTP/1.1\r\n" + HOST + b"authorization: Bearer nobody\r\n"


def _door(world: ServedWorld) -> tuple[str, int]:
    split = urlsplit(world.url)
    return str(split.hostname), int(split.port or 0)


@contextmanager
def _besieged(world: ServedWorld) -> Iterator[None]:
    """One address holds as many connections as it may; of one more it is told so."""
    door = _door(world)
    with ExitStack() as stack:
        for number in range(CONNECTIONS_PER_ADDRESS_MAX):
            one = stack.enter_context(connect(door, SLOW))
            one.sendall(LONG if number < READERS else BEGUN[number % len(BEGUN)])
        with connect(door, SLOW) as refused:
            answer = heard(refused)
        assert problem_of(answer) == (429, "too_many")
        assert re.search(rb"\r\nretry-after: [1-9][0-9]*\r\n", answer)
        yield


def _flooded(world: ServedWorld, requests: int) -> tuple[list[int], bytes]:
    """The statuses of so many requests with a bad token, sent at once on one connection of an address; all bytes."""
    with connect(_door(world), LOUD) as connection:
        connection.sendall((BAD + b"\r\n") * (requests - 1) + BAD + b"connection: close\r\n\r\n")
        answers = heard(connection)
    return [int(one) for one in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", answers)], answers


def _next_event(lines: Iterator[str], name: str) -> dict[str, Any]:
    for line in lines:
        if line.startswith("data: ") and json.loads(line.removeprefix("data: "))["id"] == name:
            return dict(json.loads(line.removeprefix("data: ")))
    raise AssertionError(name)


def test_an_honest_caller_is_served_beside_hostile_addresses(tmp_path: Path) -> None:
    """Slow sockets, unread answers and a flood of bad tokens from two addresses; a third reads, charges and listens."""
    with bounded(tmp_path, anonymous_per_minute=ANONYMOUS) as world:
        headers = world.everybody.shown(BANK_A)
        with _besieged(world), world.http.stream("GET", "/v1/events", headers=headers) as stream:
            lines = stream.iter_lines()
            assert next(lines) == ": open"
            statuses, answers = _flooded(world, 2 * ANONYMOUS)
            assert statuses == [401] * ANONYMOUS + [429] * ANONYMOUS
            assert answers.count(b"\r\nretry-after: ") == ANONYMOUS
            assert answers.count(b'"anonymous";r=0;') == ANONYMOUS + 1
            assert charge(world, "run-1").status_code == 201
            assert _next_event(lines, "run-1")["outcome"] == "pending"
            # Its own address has used nothing of its quota.
            assert left(world.http.get("/v1/checkpoint"), "anonymous") == ANONYMOUS - 1
            with connect(_door(world), LOUD) as connection:
                token = f"authorization: {headers['authorization']}\r\nconnection: close\r\n\r\n".encode()
                connection.sendall(b"GET /v1/charges/run-1 HTTP/1.1\r\n" + HOST + token)
                assert heard(connection).startswith(b"HTTP/1.1 200 OK\r\n")


Call = Callable[[ServedWorld, str], httpx.Response]


def _question(world: ServedWorld, name: str) -> httpx.Response:
    return charge(world, name, QUOTES)


def _refused_charge(world: ServedWorld, name: str) -> httpx.Response:
    return charge(world, name, steps=400)


def _command(world: ServedWorld, name: str) -> httpx.Response:
    headers = {**world.everybody.shown(BANK_A), "content-type": JSON_TYPE}
    return world.http.post("/v1/challenges", content=c.dump({"charge": name}), headers=headers)


def _past_state(world: ServedWorld, _: str) -> httpx.Response:
    query = {"partition": PARTITION, "as_of": "1"}
    return world.http.get("/v1/accounts", params=query, headers=world.everybody.shown(BANK_A))


def _public_read(world: ServedWorld, _: str) -> httpx.Response:
    return world.http.get("/v1/checkpoint")


@pytest.mark.parametrize(
    ("quota", "send", "terms"),
    [
        ("questions", _question, {"questions_per_hour": 2}),
        ("refusals", _refused_charge, {"refusals_per_hour": 2}),
        ("commands", _command, {"commands_per_minute": 2}),
        ("pricing", _past_state, {}),
        ("anonymous", _public_read, {"anonymous_per_minute": 2}),
    ],
)
def test_a_caller_that_waits_as_long_as_reported_is_served_and_not_a_second_before(
    tmp_path: Path, quota: str, send: Call, terms: dict[str, int]
) -> None:
    """Of every quota: what goes beyond leaves no entry, and leaves another organisation's alone."""
    quotas = CallerQuotas(QuotaTerms(**terms), (), CLOCK)
    with founded_world(tmp_path, quotas) as world:
        quotas.count_pricing(BANK_A, 600 if quota == "pricing" else 0)
        answers = [send(world, f"run-{number}") for number in range(3)]
        size = world.size
        seconds = exceeded(send(world, "beyond"), quota)
        assert (world.size, [one.status_code for one in answers].count(429)) == (size, 3 if quota == "pricing" else 1)
        assert world.service.put_document(world.hospital, b"mine").document == c.digest(b"mine")
        hospital = world.everybody.shown(HOSPITAL)
        assert world.http.get("/v1/charges", headers=hospital).status_code == 200
        CLOCK.now += seconds - 1
        assert exceeded(send(world, "early"), quota) == 1
        CLOCK.now += 1
        assert send(world, "in-time").status_code != 429
        assert world.size >= size
