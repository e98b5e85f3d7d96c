"""Charges and key releases over HTTP with requests signed beforehand, beside the same charges to a book in process."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, islice
from pathlib import Path
from typing import Final

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from client.http.endpoints import JSON_TYPE, SIGNATURE_HEADER
from client.keys.signer import Signer, load_private
from ledger.book.book import Submission
from ledger.book.wall_clock import unix_ms
from ledger.commands.registry import PATHS
from ledger.wire import canonical_json as c
from tests.api.server.processes import Served, write_profile
from tests.bench.compare import LINES, Side, compare
from tests.bench.wire import Heard, request, send_all
from tests.factories.people import BANK_A, CleanRoom, Clock
from tests.factories.service import PLAN, ServedWorld, machine_clock, open_world

pytestmark = pytest.mark.bench

CLIENTS: Final = 32
EACH: Final = 16
"""Requests of one client in one round."""
RELEASES: Final = 2 * CLIENTS
"""In one round; each needs a charge, a challenge and evidence first, which is not timed."""
TINY: Final[c.Object] = {**PLAN, "noise_multiplier": "1000", "steps": 1}
"""A run of which tens of thousands fit."""
Plans = list[list[bytes]]


def today() -> Clock:
    """A clock that stands at what time it is."""
    clock = machine_clock()
    clock.now = unix_ms()
    return clock


@contextmanager
def served(folder: Path) -> Iterator[tuple[ServedWorld, Served]]:
    """A world whose service is a process of its own, as anybody would start it."""
    log_key = Signer.generate()
    log_key.save(folder / "key.pem")
    with open_world(folder, clock=today(), log_key=load_private(folder / "key.pem")) as world:
        world.contract = world.found_service(runs_max=1_000_000)
    options = 'keys = "keys"\nkept = "kept"\nquotas = {commands_per_minute = 1000000, pricing_s_per_hour = 1000000}'
    profile = write_profile(folder, str(folder / "book.sqlite"), log_key, world.everybody, options)
    server = Served(profile, "--first-start")
    try:
        world.call(server.url)
        yield world, server
    finally:
        world.service.close()
        world.http.close()
        server.end()


def charge(world: ServedWorld, name: str, room: CleanRoom) -> tuple[bytes, str]:
    """A tiny charge and the signature over it."""
    body: c.Object = {**world.charge_body(world.contract, room), "plan": TINY}
    raw = world.command_bytes(world.bank, BANK_A, "charge", body, name)
    return raw, world.sign(world.bank, PATHS["charge"], raw, name)


def packed(world: ServedWorld, kind: str, raw: bytes, signature: str, token: dict[str, str]) -> bytes:
    """A command as it goes over the wire."""
    return request(world.url, PATHS[kind], {**token, "content-type": JSON_TYPE, SIGNATURE_HEADER: signature}, raw)


def test_charges_over_http(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Signed charges of 32 clients to a server, against as many of 32 threads to a book in this process."""
    for name in ("far", "near"):
        (tmp_path / name).mkdir()
    with (
        served(tmp_path / "far") as (far, server),
        open_world(tmp_path / "near", clock=today()) as near,
        ThreadPoolExecutor(CLIENTS) as threads,
    ):
        near.contract = near.found_service(runs_max=1_000_000)
        names = (f"charge-{number}" for number in count())
        rounds: list[Heard] = []

        def requests() -> Plans:
            token = far.everybody.shown(BANK_A)
            made = (packed(far, "charge", *charge(far, next(names), CleanRoom()), token) for _ in range(CLIENTS * EACH))
            return [list(row) for row in zip(*[made] * EACH, strict=True)]

        def submissions() -> list[Submission]:
            return [Submission(*charge(near, next(names), CleanRoom())) for _ in range(CLIENTS * EACH)]

        def send(plans: Plans) -> None:
            rounds.append(send_all(server.url, plans))
            assert rounds[-1].statuses == {201: CLIENTS * EACH}

        def submit(given: list[Submission]) -> None:
            answered = threads.map(lambda one: near.book.submit([one])[0].code.word, given)
            assert set(answered) == {"pending"}

        compare(
            benchmark,
            Side(f"charge over HTTP, {CLIENTS} clients", CLIENTS * EACH, requests, send),
            Side(f"charge in process, {CLIENTS} threads", CLIENTS * EACH, submissions, submit),
        )
        _tell(benchmark, "charge over HTTP", rounds[1:])


def test_key_releases_over_http(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Signed key releases, each with its own attested clean room and nonce, against charges to the same server."""
    with served(tmp_path) as (world, server):
        names = (f"run-{number}" for number in count())
        rounds: list[Heard] = []

        def charges() -> Plans:
            token = world.everybody.shown(BANK_A)
            made = (packed(world, "charge", *charge(world, next(names), CleanRoom()), token) for _ in range(RELEASES))
            return [list(row) for row in zip(*[made] * (RELEASES // CLIENTS), strict=True)]

        def releases() -> Plans:
            made = (_release(world, name, CleanRoom()) for name in islice(names, RELEASES))
            return [list(row) for row in zip(*[made] * (RELEASES // CLIENTS), strict=True)]

        def send(plans: Plans) -> None:
            assert send_all(server.url, plans).statuses == {201: RELEASES}

        def release(plans: Plans) -> None:
            rounds.append(send_all(server.url, plans))
            assert rounds[-1].statuses == {201: RELEASES}

        compare(
            benchmark,
            Side(f"key release over HTTP, {CLIENTS} clients", RELEASES, releases, release),
            Side(f"charge over HTTP, {CLIENTS} clients", RELEASES, charges, send),
            rounds=3,
        )
        _tell(benchmark, "key release over HTTP", rounds[1:])


def _release(world: ServedWorld, name: str, room: CleanRoom) -> bytes:
    """A charge that is pending, its challenge and its evidence; and the release, which is not sent yet."""
    raw, signature = charge(world, name, room)
    assert world.post(PATHS["charge"], raw, signature).status_code == 201
    nonce = world.service.challenge(name)
    evidence = world.attest(room, name, nonce, c.digest(c.dump(TINY)))
    body: c.Object = {"charge": name, "evidence": evidence, "nonce": nonce}
    requested = world.command_bytes(room.signer, BANK_A, "key_release", body, f"key-of-{name}")
    signed = world.sign(room.signer, PATHS["key_release"], requested, f"key-of-{name}")
    return packed(world, "key_release", requested, signed, world.everybody.shown_by(room.signer))


def _tell(benchmark: BenchmarkFixture, what: str, rounds: list[Heard]) -> None:
    took = [second for one in rounds for second in one.seconds]
    median, last = statistics.median(took), statistics.quantiles(took, n=100)[98]
    benchmark.extra_info |= {"p50_s": median, "p99_s": last}
    LINES.append(f"{what}: p50 {median * 1000:.1f} ms, p99 {last * 1000:.1f} ms")
