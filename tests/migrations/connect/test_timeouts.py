"""Whoever has the book open is waited for, as long as was said; and a statement takes no longer than was said."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, event

from migrations.connect.book_location import Place
from migrations.connect.errors import NotDone
from migrations.connect.exclusive_access import Limits, connected, exclusive_transaction
from tests.migrations.places import Kept, Spot, db, spot

FOREVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n WHERE i < 0"


def test_a_writer_is_not_disturbed(book: Spot, grown: Kept) -> None:
    """While somebody writes, nothing that needs the book alone begins; afterwards it does."""
    with exclusive_transaction(Place.of(book.url), Limits(lock_s=0)):
        for command in (["upgrade"], ["downgrade", "0001"], ["move", str(book.folder / "b.sqlite"), *book.log]):
            done = db(command[0], book.book, *command[1:], "--lock-timeout", "0.1")
            assert (done.code, "open for writing: stop it first" in done.out) == (5, True), done.out
    assert not (book.folder / "b.sqlite").exists()
    assert book.rows() == grown.rows
    assert db("upgrade", book.book).code == 0


def test_a_writer_that_ends_is_waited_for(book: Spot) -> None:
    """The upgrade begins once the other has let go."""
    held, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with exclusive_transaction(Place.of(book.url), Limits(lock_s=0)):
            held.set()
            let_go.wait(30)

    threads = [threading.Thread(target=hold)]
    threads[0].start()
    assert held.wait(30)
    threads.append(threading.Timer(0.2, let_go.set))
    threads[1].start()
    assert db("upgrade", book.book, "--lock-timeout", "30").code == 0
    for one in threads:
        one.join()


def test_a_statement_takes_no_longer_than_allowed(book: Spot) -> None:
    """It is ended, all that was done in the transaction is undone, and the fault is one sentence."""
    before = book.rows()
    with (  # noqa: PT012 - the fault must come from the second statement
        pytest.raises(NotDone) as fault,
        connected(Place.of(book.url), writes=True, limits=Limits(statement_s=0.2)) as connection,
    ):
        connection.exec_driver_sql("UPDATE charge SET steps = steps + 1")
        connection.exec_driver_sql(FOREVER)
    assert "\n" not in str(fault.value)
    assert any(word in str(fault.value) for word in ("interrupted", "statement timeout")), fault.value
    assert book.rows() == before


def test_an_upgrade_that_is_halted_loses_its_session(book: Spot) -> None:
    """And with it the lock, for which the services of the book wait; a file's lock the kernel releases."""
    sent: list[str] = []

    def note(connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        del connection, cursor, rest
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        assert db("upgrade", book.book).code == 0
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    bounds = [one for one in sent if "idle_in_transaction" in one and "LOCAL" in one]
    assert ("SET LOCAL idle_in_transaction_session_timeout = 600000" in bounds) == (book.engine == "postgresql")


def test_without_a_limit_nothing_is_ended(book: Spot) -> None:
    """0 allows any time, and a bound allows what is shorter."""
    for limits in (Limits(), Limits(statement_s=20)):
        with connected(Place.of(book.url), writes=True, limits=limits) as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM entry").scalar_one() > 10


def test_who_only_reads_waits_no_longer_either(grown: Kept, tmp_path: Path) -> None:
    """While somebody holds a table, the lock is waited for as long as was said; so is a statement that waits."""
    with spot("postgresql", tmp_path) as place:
        grown.put(place)
        commands = (["status", place.book], ["check", place.book, *place.log], ["backup", place.book, tmp_path / "b"])
        reported = {"0.1": "open for writing: stop it first", "60": "statement timeout"}
        with connected(Place.of(place.url), writes=True) as holder:
            holder.exec_driver_sql("LOCK TABLE entry IN ACCESS EXCLUSIVE MODE")
            for command in commands:
                for lock_s, words in reported.items():
                    done = db(*command, "--lock-timeout", lock_s, "--statement-timeout", "0.3")
                    assert (done.code, words in done.out) == (5, True), done.out
        assert [db(*command).code for command in commands] == [0, 0, 0]


@pytest.mark.parametrize("option", ["--lock-timeout", "--statement-timeout"])
@pytest.mark.parametrize("value", ["-1", "many", "1e9"])
def test_a_bad_timeout_is_refused(place: Spot, option: str, value: str) -> None:
    """Before anything is touched."""
    for command in (["upgrade"], ["status"], ["check", *place.log], ["backup", str(place.folder / "b")]):
        assert db(command[0], place.book, *command[1:], option, value).code == 2
    assert db("status", place.book).code == 4
