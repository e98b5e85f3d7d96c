"""A PostgreSQL server that is killed: callers of the book and of the service see that it is busy."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy.exc import OperationalError

from ledger.book.book import BookBusy
from tests.factories import service
from tests.factories.documents import SMALL
from tests.factories.people import BANK_A, CleanRoom
from tests.factories.stored import StoredWorld
from tests.postgres import Databases, Server


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[Server, Iterator[str]]]:
    """A server of its own, and the URLs of fresh books on it."""
    found = Server()
    databases = Databases(found.dsn)
    urls = [databases.make(book=True).url for _ in range(2)]
    databases.let_go()
    yield found, iter(urls)
    found.close()


def _read(world: StoredWorld) -> None:
    with world.book.read() as facts:
        assert facts.size


def _read_past(world: StoredWorld) -> None:
    with world.book.read_past(3) as facts:
        assert facts.size


def _kill_while_reading(world: StoredWorld, postgres: Server) -> None:
    with world.book.read() as facts:
        postgres.stop(signal.SIGQUIT)
        assert facts.charges["before"]


CALLS: Final[dict[str, Callable[[StoredWorld], object]]] = {
    "read": _read,
    "read_past": _read_past,
    "put_document": lambda world: world.book.put_document(b"{}"),
    "quote": lambda world: world.book.quote(world.charge("quoted", run=SMALL)),
    "submit": lambda world: world.submit(world.charge("after", run=SMALL)),
    "submit again": lambda world: world.submit(world.charge("after", run=SMALL)),
}


def test_no_caller_of_a_book_sees_the_drivers_error(server: tuple[Server, Iterator[str]], tmp_path: Path) -> None:
    """Whatever is called, and in the midst of a reader's block; the book goes on when the server is back."""
    postgres, urls = server
    world = StoredWorld(tmp_path, next(urls))
    world.submit(*world.founding())
    world.submit(world.charge("before", run=SMALL))
    with pytest.raises(BookBusy, match="the database does not answer now: try again") as midst:
        _kill_while_reading(world, postgres)
    assert isinstance(midst.value.__cause__, OperationalError)
    for call in CALLS.values():
        with pytest.raises(BookBusy):
            call(world)
    postgres.start()
    _read(world)
    assert world.submit(world.charge("before", run=SMALL))[0].repeated
    assert world.submit(world.charge("after", run=SMALL))[0].code.word == "pending"
    world.book.close()


def test_the_service_says_that_it_is_not_available(server: tuple[Server, Iterator[str]], tmp_path: Path) -> None:
    """Status 503 as a problem, for what reads, what stores and what is recorded; never 500."""
    postgres, urls = server
    with service.open_world(tmp_path, database=next(urls)) as world:
        contract = world.found_service()
        room = CleanRoom()
        raw = world.command_bytes(world.bank, BANK_A, "charge", world.charge_body(contract, room), "run-1")
        paths = ("/readyz", "/v1/partitions", "/v1/checkpoint", "/v1/entries/0", f"/v1/contracts/{contract}")
        before = {path: world.http.get(path).status_code for path in paths}
        assert set(before.values()) == {200}, before
        postgres.stop(signal.SIGQUIT)
        answers = [world.http.get(path) for path in paths]
        answers.append(world.post("/v1/charges", raw, world.sign(world.bank, "/v1/charges", raw, "run-1")))
        found = {(one.status_code, one.headers["content-type"], one.json()["code"]) for one in answers}
        assert {status for status, *_ in found} == {503}, found
        assert {kind for _, kind, _ in found} == {"application/problem+json"}
        postgres.start()
