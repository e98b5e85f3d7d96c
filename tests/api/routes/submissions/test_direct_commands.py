"""A command is answered without the framework as the framework would have answered it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import httpx
import pytest
from fastapi import FastAPI

from api.app import create_app
from api.auth.access_tokens import Issuer
from api.auth.caller_quotas import CallerQuotas
from api.http.quota_terms import QuotaTerms
from api.middleware.request_limits_and_log import REQUEST_ID
from client.http.endpoints import JSON_TYPE, SIGNATURE_HEADER
from ledger.commands.registry import PATHS
from ledger.domain.command import COMMAND_BYTES_MAX
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import ServedWorld

CHARGES = PATHS["charge"]


class Sent(NamedTuple):
    """One request."""

    path: str
    headers: list[tuple[str, str]]
    body: bytes
    method: str = "POST"


class Answered(NamedTuple):
    """Its answer, without what differs from request to request."""

    status: int
    headers: frozenset[str]
    fixed: tuple[str | None, ...]
    body: bytes


def _app(world: ServedWorld, *, direct: bool, issuers: Callable[[], Iterable[Issuer]] | None = None) -> FastAPI:
    """A service over the world's book; without the middleware under test, the framework alone."""
    app = create_app(
        world.book,
        world.keys,
        url=world.url,
        log=world.log,
        clock=world.clock,
        issuers=issuers or [world.everybody.issuer()],
        quotas=CallerQuotas(QuotaTerms(commands_per_minute=60), clock=lambda: 0.0),
    )
    others = [one for one in app.user_middleware if "authenticator" not in one.kwargs]
    assert len(others) == len(app.user_middleware) - 1
    if not direct:
        app.user_middleware = others
    return app


async def _answers(app: FastAPI, requests: Iterable[Sent]) -> list[Answered]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service", timeout=60) as http:
        got = [await http.request(one.method, one.path, headers=one.headers, content=one.body) for one in requests]
    fixed = ("content-type", "cache-control", "www-authenticate", "vary", "ratelimit-policy", "allow")
    return [
        Answered(one.status_code, frozenset(one.headers), tuple(map(one.headers.get, fixed)), one.content)
        for one in got
    ]


def _charge(world: ServedWorld, name: str) -> tuple[bytes, str]:
    raw = world.command_bytes(world.bank, BANK_A, "charge", world.charge_body(world.contract, CleanRoom()), name)
    return raw, world.sign(world.bank, CHARGES, raw, name)


def _requests(world: ServedWorld) -> dict[str, Sent]:
    """Requests that end in each way that a request to such a path can end."""
    (raw, signed), token = _charge(world, "run-1"), ("authorization", world.everybody.shown(BANK_A)["authorization"])
    other = ("authorization", world.everybody.shown(HOSPITAL)["authorization"])
    kind, jws = ("content-type", JSON_TYPE), (SIGNATURE_HEADER, signed)
    whole = [token, kind, jws]
    return {
        "recorded before": Sent(CHARGES, whole, raw),
        "no token": Sent(CHARGES, [kind, jws], raw),
        "a bad token": Sent(CHARGES, [("authorization", "Bearer nobody"), kind, jws], raw),
        "two tokens": Sent(CHARGES, [token, *whole], raw),
        "another's token": Sent(CHARGES, [other, kind, jws], raw),
        "a role that charges nothing": Sent(PATHS["partition"], whole, raw),
        "no signature": Sent(CHARGES, [token, kind], raw),
        "two signatures": Sent(CHARGES, [*whole, jws], raw),
        "a signature of another body": Sent(CHARGES, whole, raw.replace(b"run-1", b"run-2")),
        "another media type": Sent(CHARGES, [token, jws, ("content-type", "text/plain")], raw),
        "no media type": Sent(CHARGES, [token, jws], raw),
        "too many bytes": Sent(CHARGES, whole, b" " * (COMMAND_BYTES_MAX + 1)),
        "no JSON": Sent(CHARGES, whole, b"{"),
        "another kind's path": Sent(PATHS["step_lease"], whole, raw),
        "a query": Sent(f"{CHARGES}?dry_run=true", whole, raw),
        "an unknown parameter": Sent(f"{CHARGES}?dryrun=true", whole, raw),
        "a slash more": Sent(f"{CHARGES}/", whole, raw),
        "another method": Sent(CHARGES, whole, raw, "PUT"),
        "a read": Sent(CHARGES, [token], b"", "GET"),
        "a head": Sent(CHARGES, [token], b"", "HEAD"),
        "a version": Sent(PATHS["policy"], whole, raw),
        "an id of the caller's": Sent(CHARGES, [*whole, (REQUEST_ID, "mine")], raw),
    }


def test_every_answer_is_that_of_the_framework(world: ServedWorld) -> None:
    """Status, body and names of headers alike, whatever is wrong with the request."""
    raw, signed = _charge(world, "run-1")
    assert world.post(CHARGES, raw, signed).status_code == 201
    requests = _requests(world)
    asked = {**requests, "recorded before": Sent(CHARGES, requests["recorded before"].headers, raw)}
    direct, framework = (asyncio.run(_answers(_app(world, direct=one), asked.values())) for one in (True, False))
    assert dict(zip(asked, direct, strict=True)) == dict(zip(asked, framework, strict=True))
    assert {one.status for one in direct} >= {200, 401, 403, 404, 405, 409, 413, 415, 422}


@pytest.mark.parametrize("direct", [True, False])
def test_a_quota_is_counted_on_either_way(world: ServedWorld, *, direct: bool) -> None:
    """The sixty-first command is one too many while the clock of quotas stands."""
    raw, signed = _charge(world, "run-1")
    whole = [("authorization", world.everybody.shown(BANK_A)["authorization"])]
    whole += [("content-type", JSON_TYPE), (SIGNATURE_HEADER, signed)]
    found = asyncio.run(_answers(_app(world, direct=direct), [Sent(CHARGES, whole, raw)] * 61))
    assert [one.status for one in found] == [201, *[200] * 59, 429]


def test_an_error_of_the_service_is_a_problem_without_a_word_of_it(world: ServedWorld) -> None:
    """500 on either way, and nothing is recorded."""

    def issuers() -> tuple[Issuer, ...]:
        if is_open:
            raise RuntimeError("hunter2")
        return ()

    raw, signed = _charge(world, "run-1")
    whole = [("authorization", world.everybody.shown(BANK_A)["authorization"])]
    whole += [("content-type", JSON_TYPE), (SIGNATURE_HEADER, signed)]
    size = world.size
    for direct in (True, False):
        is_open = False
        app = _app(world, direct=direct, issuers=issuers)
        is_open = True
        (found,) = asyncio.run(_answers(app, [Sent(CHARGES, whole, raw)]))
        assert found.status == 500
        assert b"hunter2" not in found.body
    assert world.size == size
