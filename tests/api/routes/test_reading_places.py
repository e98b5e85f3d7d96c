"""Readers of a service: one caller has a part of the places, and a book without a free connection is busy."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from typing import Final

import httpx
import pytest

from api.auth.authorisation import Caller
from api.auth.caller_quotas import CallerQuotas
from api.http.caller_places import READERS_WAITING_EACH_MAX, READING_EACH_MAX, READING_MAX
from api.http.snapshots import SnapshotProvider
from api.routes.events import events
from ledger.book.opening_checks import READERS_MAX
from ledger.store import engine
from tests.factories.people import BANK_A, HOSPITAL, SRO
from tests.factories.service import ServedWorld, founded_world

THREADS: Final = 40
"""In which the server runs what is no coroutine."""
WAIT_S: Final = 60.0
DECISIONS: Final = "/v1/decisions?limit=200"


@contextmanager
def reading(quotas: CallerQuotas, *callers: Caller) -> Iterator[None]:
    """Each of these callers has one request more that reads, while the block runs."""
    with asyncio.Runner() as loop:
        stack = AsyncExitStack()
        for caller in callers:
            loop.run(stack.enter_async_context(quotas.reading(caller, {})))
        try:
            yield
        finally:
            loop.run(stack.aclose())


def _get(world: ServedWorld, path: str, caller: str = "") -> httpx.Response:
    headers = world.everybody.shown(caller) if caller else {}
    return httpx.get(f"{world.url}{path}", headers=headers, timeout=WAIT_S, trust_env=False)


def test_a_caller_that_reads_with_many_requests_keeps_no_other_from_reading(tmp_path: Path) -> None:
    """More wait than the server has threads, one more is refused at once; all that wait are answered in the end."""
    quotas, most = CallerQuotas(), READERS_WAITING_EACH_MAX
    quotas.place_wait_s = WAIT_S
    assert READING_EACH_MAX < READING_MAX < THREADS < most
    with founded_world(tmp_path, quotas) as world, ThreadPoolExecutor(most) as threads:
        with reading(quotas, *[Caller(BANK_A, ("TDC",))] * READING_EACH_MAX):
            waiting = [threads.submit(_get, world, DECISIONS, BANK_A) for _ in range(most)]
            while quotas.readers_waiting < most:
                pass
            more = _get(world, DECISIONS, BANK_A)
            assert (more.status_code, more.json()["code"], more.headers["retry-after"]) == (429, "too_many", "2")
            for path, other in ((DECISIONS, HOSPITAL), ("/v1/log", ""), ("/readyz", ""), ("/console/login", "")):
                assert _get(world, path, other).status_code == 200, path
            assert not [one for one in waiting if one.done()]
        assert {one.result(WAIT_S).status_code for one in waiting} == {200}


def test_addresses_and_clean_rooms_have_places_of_their_own(tmp_path: Path) -> None:
    """All clean rooms of an organisation together have as many as the organisation itself."""
    quotas = CallerQuotas()
    rooms = [Caller(BANK_A, ("CCR",), f"run-{number}") for number in range(READING_EACH_MAX)]
    with founded_world(tmp_path, quotas) as world, reading(quotas, *rooms, *[Caller("", ())] * READING_EACH_MAX):
        assert _get(world, DECISIONS, BANK_A).status_code == 200
        assert _get(world, "/v1/log").status_code == 200
        assert quotas.readers_waiting == 0


def test_a_stream_goes_on_when_there_is_a_connection_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is recorded meanwhile is sent then."""
    monkeypatch.setattr(engine, "CONNECT_S", 0.05)
    with founded_world(tmp_path) as world, ExitStack() as held:
        sro = Caller(SRO, ("SRO",))
        snapshots, start = SnapshotProvider(world.book, world.clock), world.size - 1

        async def read() -> bytes:
            told = events(snapshots, lambda _facts: sro, start, ping_s=0)
            assert await anext(told) == b": open\n\n"
            for _ in range(READERS_MAX):
                held.enter_context(world.book.read()).size  # noqa: B018 - the first read takes the connection
            # Where nothing can be read it pings.
            assert await anext(told) == f": ping\nid: {start - 1}\n\n".encode()
            held.close()
            return await anext(told)

        assert asyncio.run(read()).startswith(f"id: {start}\n".encode())


def test_without_a_free_connection_the_book_is_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For readers alone, and for a while: it is not stopped, and no answer is an internal error."""
    monkeypatch.setattr(engine, "CONNECT_S", 0.05)
    with founded_world(tmp_path) as world:
        with ExitStack() as held:
            for _ in range(READERS_MAX):
                assert held.enter_context(world.book.read()).size
            for path, caller in ((DECISIONS, BANK_A), ("/v1/log", ""), ("/readyz", "")):
                found = _get(world, path, caller)
                assert (found.status_code, found.json()["code"]) == (503, "busy"), path
            assert world.book.stopped is None
        assert _get(world, DECISIONS, BANK_A).status_code == 200
