"""Over HTTP: one consumer's flood of quotes leaves threads and turns to others, and a batch ends with its quota."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from api.auth.caller_quotas import CallerQuotas
from client.http.endpoints import BATCH, QUOTES
from ledger.book.pricing.pricing_turns import TURNS_MAX
from ledger.domain.facts import Facts
from ledger.domain.gate import Request, Verdict
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.api.auth.test_caller_quotas import Seconds, charge, exceeded
from tests.api.routes.submissions.test_dry_runs_and_batches import batch
from tests.factories.documents import plan
from tests.factories.people import BANK_A, HOSPITAL, CleanRoom
from tests.factories.service import ServedWorld, founded_world

WAIT_S: Final = 60
FLOOD: Final = 8 + 1 + TURNS_MAX
"""Quotes at once: more than a line holds, and more than there are threads that answer requests."""


class WatchedGate:
    """The real gate: it counts what workers price, may hold them, and may use a quota up after some."""

    def __init__(self, most: int = 1_000) -> None:
        self.quotas, self.clock, self.most = CallerQuotas(clock=(clock := Seconds())), clock, most
        self.begun, self.go = threading.Event(), threading.Event()
        self.priced: list[str] = []

    def __call__(self, request: Request, facts: Facts) -> Verdict:
        """The real gate's verdict."""
        if threading.current_thread().name.startswith("book-pricing"):
            self.begun.set()
            assert self.go.wait(WAIT_S)
            if request.command.id not in self.priced:
                self.priced.append(request.command.id)
                self.quotas.count_pricing(BANK_A, 600 if len(self.priced) == self.most else 0)
        return gate(request, facts)


@contextmanager
def served(folder: Path, watched: WatchedGate) -> Iterator[ServedWorld]:
    """A world that decides by this gate, with these quotas."""
    with founded_world(folder, watched.quotas, watched) as world:
        try:
            yield world
        finally:
            watched.go.set()


def requested(world: ServedWorld, path: str, count: int) -> list[tuple[str, c.Object, str]]:
    """So many runs of the bank, each of another price, for one batch."""
    bodies = [
        {**world.charge_body(world.contract, CleanRoom(f"run-{n}")), "plan": plan(1, f"{9 + n}")} for n in range(count)
    ]
    return [(f"run-{number}", body, path) for number, body in enumerate(bodies)]


def test_a_flood_of_quotes_leaves_the_service_to_others(tmp_path: Path) -> None:
    """More quotes than threads: what its line does not hold is refused at once, and others read all the while."""
    watched = WatchedGate()
    with served(tmp_path, watched) as world, ThreadPoolExecutor(FLOOD) as threads:
        flood = [threads.submit(charge, world, f"run-{number}", QUOTES) for number in range(FLOOD)]
        size, done = world.size, as_completed(flood, WAIT_S)
        for refused in (next(done).result() for _ in range(FLOOD - 1 - TURNS_MAX)):
            assert (refused.status_code, refused.json()["code"]) == (429, "too_many")
            assert refused.headers["retry-after"] == "2"
        more = charge(world, "more", noise_multiplier="77")
        assert (more.status_code, more.json()["code"]) == (429, "too_many")
        assert world.http.get("/v1/datasets", headers=world.everybody.shown(HOSPITAL)).status_code == 200
        assert world.size == size
        watched.go.set()
        assert {one.result().status_code for one in done} == {200}
        assert charge(world, "more", noise_multiplier="77").status_code == 201
    assert "more" in watched.priced


@pytest.mark.parametrize("query", ["", "?dry_run=true"])
def test_a_batch_ends_where_the_quota_does(tmp_path: Path, query: str) -> None:
    """What was priced within it has its outcome; the rest is neither priced nor recorded, and says when to send it."""
    watched = WatchedGate(most=2)
    watched.go.set()
    with served(tmp_path, watched) as world:
        size, sent = world.size, requested(world, f"{BATCH}{query}", 5)
        answer = batch(world, *sent, query=query)
        status = 200 if query else 201
        outcomes: list[Any] = answer.json()["outcomes"]
        assert (answer.status_code, [one["status"] for one in outcomes]) == (200, [status] * 2 + [429] * 3)
        problems = [one["problem"] for one in outcomes[2:]]
        assert [(one["code"], one["id"], one["index"]) for one in problems] == [
            ("quota_exceeded", f"run-{number}", None) for number in (2, 3, 4)
        ]
        assert all(one["detail"].endswith(" s") and ": retry in " in one["detail"] for one in problems)
        assert watched.priced == ["run-0", "run-1"]
        assert world.size == size + (0 if query else 2)
        # Nothing of a batch is looked at while the quota is used up.
        assert exceeded(batch(world, *sent, query=query), "pricing")
        assert watched.priced == ["run-0", "run-1"]
        watched.clock.now += 3_600
        again: list[Any] = batch(world, *sent, query=query).json()["outcomes"]
        assert [one["status"] for one in again] == ([200] * 5 if query else [200, 200, 201, 201, 201])
        assert world.size == size + (0 if query else 5)


class Answered(logging.Handler):
    """Waits for the end of the request of an operation."""

    def __init__(self, operation: str) -> None:
        super().__init__()
        self.operation, self.is_over = operation, threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        """Note the record of a request that is over."""
        if getattr(record, "operation", "") == self.operation:
            self.is_over.set()


def test_a_dry_batch_ends_when_its_caller_is_gone(tmp_path: Path) -> None:
    """The charge that is being priced then is the last one."""
    watched, log, handler = WatchedGate(), logging.getLogger("api.requests"), Answered("charge_batch")
    log.addHandler(handler)
    level, query = log.level, "?dry_run=true"
    log.setLevel(logging.INFO)
    try:
        with served(tmp_path, watched) as world:
            items: list[c.Json] = []
            for name, body, path in requested(world, f"{BATCH}{query}", 5):
                raw = world.command_bytes(world.bank, BANK_A, "charge", body, name)
                items.append({"command": c.parse(raw, len(raw)), "signature": world.sign(world.bank, path, raw, name)})
            content, split = c.dump({"charges": items}), urlsplit(world.url)
            shown = world.everybody.shown(BANK_A)["authorization"]
            with socket.create_connection((str(split.hostname), int(split.port or 0)), WAIT_S) as caller:
                lines = (
                    f"POST {BATCH}{query} HTTP/1.1",
                    f"host: {split.netloc}",
                    f"authorization: {shown}",
                    "content-type: application/json",
                    f"content-length: {len(content)}",
                )
                caller.sendall("\r\n".join((*lines, "", "")).encode() + content)
                assert watched.begun.wait(WAIT_S)
            # The service has read that its caller is gone when it answers one that came later.
            assert world.http.get("/v1/datasets", headers=world.everybody.shown(HOSPITAL)).status_code == 200
            watched.go.set()
            assert handler.is_over.wait(WAIT_S)
            assert watched.priced == ["run-0"]
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
