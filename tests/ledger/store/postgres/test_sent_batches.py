"""A batch that is sent in one pipeline: all of it arrives however slow the link, and a commit is known to be one."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from sqlalchemy import Connection, Engine, event, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError

from ledger.book.submitted_command import BookStopped, Submission
from ledger.store.engine import engine_of, run_plainly
from ledger.store.postgres.pipeline import committed_together
from tests.factories.documents import DIGITS, PARTITION, plan
from tests.factories.stored import StoredWorld
from tests.postgres import Databases, Server, new_book

BUFFER_BYTES: Final = 4_096
WAIT_S: Final = 60.0
"""A guard: what is asserted takes a second, or for ever."""
CHARGES, PARTITIONS = 40, 16
TINY = plan(5, "1000")


@contextmanager
def slow_link(url: str) -> Iterator[str]:
    """The same database behind a relay that takes a few kilobytes at a time, and nothing while the driver sends.

    It runs in this process, and the driver holds the interpreter's lock while it sends. So any longer message fills
    both buffers, and the driver has to wait before it can send the rest.
    """
    made = make_url(url)
    folder = str(made.query["host"])
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as door:
        door.bind(f"{name}/.s.PGSQL.5432")
        door.listen()
        clients = list[socket.socket]()
        relay = threading.Thread(target=_relay, args=(door, f"{folder}/.s.PGSQL.5432", clients))
        relay.start()
        event.listen(Engine, "connect", _narrow)
        try:
            yield made.update_query_dict({"host": name}).render_as_string(hide_password=False)
        finally:
            event.remove(Engine, "connect", _narrow)
            # Who accepts or reads is woken, as closing alone does not.
            for one in (door, *clients):
                with suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
            relay.join()


def _narrow(connection: psycopg.Connection[Any], _record: object) -> None:
    with socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)


def _relay(door: socket.socket, server: str, clients: list[socket.socket]) -> None:
    serving = list[threading.Thread]()
    with suppress(OSError):
        while True:
            client, _ = door.accept()
            clients.append(client)
            serving.append(threading.Thread(target=_serve, args=(client, server)))
            serving[-1].start()
    for thread in serving:
        thread.join()


def _serve(client: socket.socket, server: str) -> None:
    with client, socket.socket(socket.AF_UNIX) as upstream:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        upstream.connect(server)
        back = threading.Thread(target=_pass_on, args=(upstream, client))
        back.start()
        _pass_on(client, upstream)
        back.join()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with suppress(OSError):
        while data := one.recv(BUFFER_BYTES):
            other.sendall(data)
    for end in (one, other):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def test_a_batch_longer_than_every_buffer_is_recorded(tmp_path: Path) -> None:
    """Its last part is sent, too, once the server has taken what came before."""
    with new_book() as database, slow_link(database.url) as url:
        world = StoredWorld(tmp_path, url)
        world.submit(*world.founding(), *(world.partition(f"m{number}") for number in range(1, PARTITIONS)))
        refs = (PARTITION, *(f"{DIGITS}/m{number}" for number in range(1, PARTITIONS)))
        batch = [world.charge(f"run-{number}", run=TINY, partitions=refs) for number in range(CHARGES)]
        call = ThreadPoolExecutor(1).submit(world.book.submit, batch)
        assert {one.code.word for one in call.result(WAIT_S)} == {"pending"}
        assert world.recorded(f"run-{CHARGES - 1}")
        world.book.close()


@pytest.fixture
def writing() -> Iterator[Connection]:
    """A connection of a process that writes a book, in a transaction."""
    with new_book() as database:
        engine = engine_of(database.url, writes=True)
        with engine.connect() as connection:
            connection.begin()
            yield connection
        engine.dispose()


PUT: Final = "INSERT INTO document (digest, data) VALUES (%s, %s)"


def _put(connection: Connection, *digests: str) -> None:
    for digest in digests:
        run_plainly(connection, PUT, (digest, b"{}"))


def _stored(connection: Connection) -> list[str]:
    with connection.engine.connect() as other:
        return [digest for (digest,) in run_plainly(other, "SELECT digest FROM document")]


def test_what_is_sent_together_is_committed(writing: Connection) -> None:
    """And the connection is in no transaction any more, so that the next one begins."""
    for digest in ("a", "b"):
        with committed_together(writing):
            _put(writing, digest)
        assert not writing.in_transaction()
        assert digest in _stored(writing)
        writing.begin()


def test_an_error_of_any_statement_commits_none(writing: Connection) -> None:
    """It is raised at the end of the block, and the ones before it are undone."""
    # As SQLAlchemy raises it where the answer comes before the last is sent.
    with pytest.raises((psycopg.errors.UniqueViolation, IntegrityError)), committed_together(writing):
        _put(writing, "a", "a", "b")
    writing.rollback()
    assert _stored(writing) == []


def test_a_failed_transaction_is_not_taken_for_a_committed_one(writing: Connection) -> None:
    """The server answers its commit with a rollback, without an error."""
    _put(writing, "a")
    with pytest.raises(DBAPIError):
        run_plainly(writing, "SELECT 1 / 0")
    with pytest.raises(psycopg.OperationalError, match="it answered ROLLBACK"), committed_together(writing):
        pass
    writing.rollback()
    assert _stored(writing) == []


def _send_until_cancelled(writing: Connection, other: Connection) -> None:
    """Send statements of which the second waits for another session, which cancels it when it does."""
    (pid,) = run_plainly(writing, "SELECT pg_backend_pid()")[0]
    run_plainly(other, "SELECT pg_advisory_lock(1)")
    with committed_together(writing):
        _put(writing, "a")
        run_plainly(writing, "SELECT pg_advisory_lock(1)")
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = %s AND NOT granted"
        while run_plainly(other, waits, (pid,)) == [(0,)]:
            pass
        run_plainly(other, "SELECT pg_cancel_backend(%s)", (pid,))


def test_a_cancelled_statement_commits_none(writing: Connection) -> None:
    """As an operator cancels it, while the server works at what came in the pipeline."""
    with writing.engine.connect() as other, pytest.raises(psycopg.errors.QueryCanceled):
        _send_until_cancelled(writing, other)
    writing.rollback()
    assert _stored(writing) == []


def test_a_commit_that_no_standby_has_stops_the_book(tmp_path: Path) -> None:
    """Who cancels the wait for a standby leaves what is recorded here alone: no receipt is given out for it.

    Nor by another process, to which the same command is sent again: it waits for the standby too.
    """
    server = Server(fsync="off", max_connections="20")
    try:
        databases = Databases(server.dsn)
        world = StoredWorld(tmp_path, databases.make(book=True).url)
        databases.let_go()
        world.submit(*world.founding())
        other = StoredWorld(tmp_path, world.url)
        with psycopg.connect(server.dsn, autocommit=True) as admin, ThreadPoolExecutor(1) as thread:
            admin.execute("ALTER SYSTEM SET synchronous_standby_names = 'none_is_there'")
            admin.execute("SELECT pg_reload_conf()")
            call = thread.submit(_charge_until_stopped, world)
            _cancel_waits(admin, call)
            last, why = call.result(WAIT_S)
            again = thread.submit(other.submit, last)
            _cancel_waits(admin, again)
            with pytest.raises(BookStopped, match="canceling wait for synchronous replication"):
                again.result(WAIT_S)
            admin.execute("ALTER SYSTEM RESET synchronous_standby_names")
            admin.execute("SELECT pg_reload_conf()")
        assert "the server warned at a commit: canceling wait for synchronous replication" in why
        world.reopen()
        assert world.submit(last)[0].repeated
        for one in (world, other):
            one.book.close()
    finally:
        server.close()


def _cancel_waits(admin: psycopg.Connection, call: Future[Any]) -> None:
    while not call.done():
        admin.execute("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")


def _charge_until_stopped(world: StoredWorld) -> tuple[Submission, str]:
    """The first charge after which the book stops, and why: until then the server has not read its new setting."""
    for number in count():
        charge = world.charge(f"run-{number}", run=TINY)
        try:
            world.submit(charge)
        except BookStopped as stopped:
            return charge, str(stopped)
    raise AssertionError
