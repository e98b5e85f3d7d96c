"""Every read of the service through a shared cache: what one caller was shown, the cache gives to no other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import httpx
import pytest

from api.auth.authorisation import PUBLIC
from tests.api.auth.read_addresses import address
from tests.api.http.shared_cache import cached, direct
from tests.api.two_of_each import TwoOfEach
from tests.api.wire.conforming import UNBOUNDED
from tests.factories.people import BANK_B
from tests.factories.service import open_world
from tests.factories.statements import state_now

COUNTING: Final = frozenset({"read_metrics"})
"""Reads whose answer counts the requests before it."""
Read = tuple[str, str, dict[str, str]]
"""The operation, its address and its query."""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoOfEach]:
    """Two of everything, which no read changes."""
    with open_world(tmp_path_factory.mktemp("pairs")) as world:
        world.contract = world.found_service()
        pairs = TwoOfEach(world)
        state_now(world.book)
        yield pairs


@pytest.fixture(scope="module")
def reads(pairs: TwoOfEach) -> list[Read]:
    """Every operation of the document that is a GET, about what is one bank's and what is the other's."""
    paths = pairs.world.http.get("/v1/openapi.json").json()["paths"]
    named = [(methods["get"]["operationId"], path) for path, methods in paths.items() if "get" in methods]
    found = [
        (operation, *address(pairs, operation, path, ownership))
        for operation, path in named
        if operation not in UNBOUNDED
        for ownership in ("own", "foreign")
    ]
    assert len(found) > 100
    return found


def test_no_read_is_answered_by_what_another_caller_was_shown(pairs: TwoOfEach, reads: list[Read]) -> None:
    """The SRO and an auditor read everything first; then both banks and a caller without a token get their own."""
    people = pairs.people
    with cached(pairs.world.url) as (_, through), direct(pairs.world.url) as right:
        shown = 0
        for role in ("SRO", "AUDITOR"):
            answers = [through.get(url, params=query, headers=people[role].shown) for _, url, query in reads]
            shown += sum(one.is_success for one in answers)
        refused = 0
        for headers in (people["TDC"].shown, pairs.world.everybody.shown(BANK_B), {}):
            for operation, url, query in reads:
                got, expected = (one.get(url, params=query, headers=headers) for one in (through, right))
                assert got.status_code == expected.status_code, (operation, url)
                if operation not in COUNTING:
                    assert got.content == expected.content, (operation, url)
                refused += not expected.is_success
    assert shown > len(reads)
    assert refused > len(reads)


def test_what_needs_a_token_says_so_to_every_cache(pairs: TwoOfEach, reads: list[Read]) -> None:
    """Answers, refusals, and answers to a tag that still holds: private or not stored, and varying with the token."""
    shown = pairs.people["AUDITOR"].shown
    with direct(pairs.world.url) as client:
        for operation, url, query in reads:
            if operation in PUBLIC:
                continue
            whole = client.get(url, params=query, headers=shown)
            answers = [whole, client.get(url, params=query), client.head(url, params=query, headers=shown)]
            if "etag" in whole.headers:
                again = client.get(url, params=query, headers={**shown, "if-none-match": whole.headers["etag"]})
                assert again.status_code == httpx.codes.NOT_MODIFIED
                answers.append(again)
            for one in answers:
                assert one.headers["cache-control"].startswith(("private", "no-store")), (operation, one.status_code)
                assert one.headers["vary"] == "authorization", (operation, one.status_code)
