"""Two real servers on one PostgreSQL, and 64 clients that race for the last of a budget."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from threading import Lock

import pytest

from tests.api.server.processes import Servers
from tests.api.server.racing import CLIENTS, Heard, check_race, race, signed
from tests.factories.documents import PARTITION
from tests.postgres import Databases, Server

KILLED_AFTER = 5
BUSY = 8


@pytest.fixture(scope="module")
def book() -> Iterator[str]:
    """One on a PostgreSQL that waits for its disk, as a server of ours asks of it."""
    server = Server()
    databases = Databases(server.dsn)
    try:
        yield databases.make(book=True).url
    finally:
        databases.let_go()
        server.close()


@pytest.fixture(scope="module")
def servers(book: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Processes on that book, and all that a charge needs but a partition with room."""
    servers = Servers(tmp_path_factory.mktemp("servers"), book)
    try:
        servers.world.contract = servers.world.found_service(runs_max=1_000)
        yield servers
    finally:
        said = servers.close()
    assert not said


@pytest.fixture
def busy_loops() -> Iterator[None]:
    """Eight processes that do nothing but use processors, as long as the test runs."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        yield
        assert [one.poll() for one in loops] == [None] * BUSY
    finally:
        for one in loops:
            one.kill()
            one.wait()


def race_for_the_last(servers: Servers, name: str, ref: str) -> None:
    """Every client has a charge of its own and one that it shares with the next, who sends it to the other server."""
    world, both = servers.world, servers.running(2)
    own = signed(world, both, [f"{name}-own-{client}" for client in range(CLIENTS)], ref)
    shared = signed(world, both, [f"{name}-shared-{pair}" for pair in range(CLIENTS // 2)], ref)
    urls = [both[client % 2].url for client in range(CLIENTS)]
    # Half send what they share first: it races itself at the start, and at the end.
    plans = [
        [(urls[client], charge) for charge in ((shared[client // 2], own[client])[:: 1 if client % 4 < 2 else -1])]
        for client in range(CLIENTS)
    ]
    heard = race(plans)
    assert len(heard) == 2 * CLIENTS
    fits = check_race(world, servers.book, ref, heard, {one.id for one in (*own, *shared)})
    assert 0 < fits < len(own) + len(shared)
    assert {one.server for one in heard if one.admitted} == set(urls)


def test_the_last_of_a_budget_goes_to_as_many_as_fit(servers: Servers) -> None:
    """Two servers, 64 clients, all at once."""
    race_for_the_last(servers, "first", PARTITION)
    assert servers.world.size > CLIENTS


@pytest.mark.soak
@pytest.mark.parametrize("number", range(5))
def test_the_race_ends_so_on_a_loaded_machine_too(servers: Servers, busy_loops: None, number: int) -> None:
    """Beside eight busy loops, five times: every client is answered, by as many admissions as fit."""
    del busy_loops
    race_for_the_last(servers, f"loaded-{number}", servers.world.open_partition(f"2028-q{number}"))
    assert servers.world.size > CLIENTS


def test_a_server_killed_in_the_race_loses_nothing(servers: Servers) -> None:
    """Killed after a few answers; its clients go to the other with the same charges, and what was told still holds."""
    world, (other, doomed) = servers.world, servers.running(2)
    ref = world.open_partition("2027-q1")
    charges = signed(world, (other, doomed), [f"run-{number}" for number in range(2 * CLIENTS)], ref)
    urls = [(doomed.url, other.url)[client % 2] for client in range(CLIENTS)]
    plans = [[(url, charge) for charge in charges[client::CLIENTS]] for client, url in enumerate(urls)]
    answers, turn = count(1), Lock()

    def heard_of(one: Heard) -> None:
        # Nobody whom it answered asks anything more until it is dead.
        with turn:
            if one.server == doomed.url and next(answers) == KILLED_AFTER:
                doomed.kill()

    heard = race(plans, elsewhere=other.url, heard=heard_of)
    check_race(world, servers.book, ref, heard, {one.id for one in charges})
    told = [one for one in heard if one.server == doomed.url]
    assert KILLED_AFTER <= len(told) < len(charges) // 2
    # What the dead one told is what the other tells.
    before = {one.id: (one.admitted, one.told["index"]) for one in told}
    again = race([[(other.url, one) for one in charges if one.id in before]])
    assert {one.id: (one.admitted, one.told["index"]) for one in again} == before
    assert {one.status for one in again} <= {200, 409}
