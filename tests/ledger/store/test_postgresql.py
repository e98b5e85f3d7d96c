"""A book in PostgreSQL: several processes on one book, who may do what, and what guards it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import Connection, Engine, event, make_url, text
from sqlalchemy.exc import IntegrityError, ProgrammingError

import migrations
from ledger.audit.replay import verify_book
from ledger.book.book import Book, BookBusy, BookStopped, BookUnusable
from ledger.store import engine
from ledger.store.engine import engine_of, lock_log
from migrations.cli.upgrade import migrate
from migrations.connect.book_location import Place
from migrations.connect.exclusive_access import Limits
from policy.decisions.gate import gate
from tests.factories.documents import PARTITION, SMALL
from tests.factories.people import HOSPITAL, LOG, LOG_KEY, ORIGIN
from tests.factories.stored import StoredWorld, no_step, rows
from tests.postgres import Database, new_book

FIT: Final = 8
"""Runs of the default plan that the budget of one lineage holds."""
COLUMN: Final = {
    "entry": "data",
    "tree_node": "hash",
    "document": "data",
    "checkpoint": "note",
    "cosignature": "line",
    "seal": "successor",
}
VERBS: Final = ("UPDATE {0} SET {1} = {1}", "DELETE FROM {0}", "TRUNCATE {0}")


@pytest.fixture
def database() -> Iterator[Database]:
    """A fresh database with the schema of a book."""
    with new_book() as found:
        yield found


@pytest.fixture
def world(tmp_path: Path, database: Database) -> Iterator[StoredWorld]:
    """A world with everything that a charge needs."""
    world = StoredWorld(tmp_path, database.url)
    world.submit(*world.founding())
    yield world
    world.book.close()


@pytest.fixture
def other(world: StoredWorld, tmp_path: Path) -> Iterator[StoredWorld]:
    """The same book, open a second time, as another process has it."""
    other = StoredWorld(tmp_path, world.url)
    yield other
    other.book.close()


def execute(url: str, *statements: str) -> None:
    """Run SQL in one transaction."""
    made = engine_of(url, writes=True)
    try:
        with made.begin() as connection:
            for one in statements:
                connection.execute(text(one))
    finally:
        made.dispose()


def test_two_writers_share_a_budget(world: StoredWorld, other: StoredWorld) -> None:
    """Each decides on what the other recorded a moment ago: together they admit what fits, and not one more."""
    with ThreadPoolExecutor(8) as threads:
        sent = [(one, one.charge(f"run-{n}-{who}")) for n in range(8) for who, one in enumerate((world, other))]
        words = [found[0].code.word for found in threads.map(lambda pair: pair[0].submit(pair[1]), sent)]
    assert words.count("pending") == FIT
    assert words.count("budget_exhausted") == len(words) - FIT
    assert other.submit(world.charge("run-0-0"))[0].repeated
    found = verify_book(world.url, LOG, no_step)
    assert (found.entries, found.charges) == (10 + 16, FIT)


def test_what_one_process_records_binds_the_other_at_once(world: StoredWorld, other: StoredWorld) -> None:
    """A run that was priced and admitted before is refused once another process has retired its partition."""
    assert other.submit(other.charge("before", run=SMALL))[0].code.word == "pending"
    assert world.send(HOSPITAL, "retirement", {"partition": PARTITION}, "retire").code.word == "permitted"
    assert other.submit(other.charge("after", run=SMALL))[0].code.word == "policy_denied"
    assert other.size == world.size == 13


@contextmanager
def stalled(book: Database, meanwhile: Callable[[], object]) -> Iterator[None]:
    """The next writer that comes to write its entries stalls; its session is ended, others go on; it wakes up."""
    pids: list[int] = []

    def stall(connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        del cursor, rest
        if statement.startswith("INSERT INTO entry") and not pids:
            pids.append(connection.connection.dbapi_connection.info.backend_pid)  # type: ignore[union-attr] # the driver's own
            execute(book.owner, f"SELECT pg_terminate_backend({pids[0]}, 10000)")
            meanwhile()

    event.listen(Engine, "before_cursor_execute", stall)
    try:
        yield
    finally:
        event.remove(Engine, "before_cursor_execute", stall)
    assert pids


def test_a_writer_that_stalled_cannot_commit(database: Database, world: StoredWorld, other: StoredWorld) -> None:
    """Its session ended and others went on; awake again, it stops, and nothing of its batch is there."""
    sent, meanwhile = world.charge("stalled", run=SMALL), other.charge("meanwhile", run=SMALL)
    with (
        stalled(database, lambda: other.submit(meanwhile)),
        pytest.raises(BookStopped, match="is unknown: open the book again"),
    ):
        world.submit(sent)
    with other.book.read() as facts:
        assert set(facts.charges) == {"meanwhile"}
    world.reopen()
    assert not world.submit(world.charge("stalled", run=SMALL))[0].repeated
    assert verify_book(world.url, LOG, no_step).charges == 2


@pytest.mark.parametrize("position", [9, 11])
def test_a_writer_without_the_lock_finds_its_place_taken(database: Database, world: StoredWorld, position: int) -> None:
    """The database itself compares: an entry goes to the next place or nowhere."""
    assert world.size == 10
    insert = f"INSERT INTO entry VALUES ({position}, 'new', 'post', 1, 'ab')"  # noqa: S608 - a number of ours
    with pytest.raises(IntegrityError, match=r"pk_entry|without a gap"):
        execute(database.url, insert)


@pytest.mark.parametrize("table", sorted(COLUMN))
@pytest.mark.parametrize("verb", VERBS)
def test_the_application_may_change_nothing(database: Database, table: str, verb: str) -> None:
    """It was never given the right."""
    with pytest.raises(ProgrammingError, match="permission denied"):
        execute(database.url, verb.format(table, COLUMN[table]))


@pytest.mark.parametrize("before", ["SELECT 1", "SET session_replication_role = replica"])
@pytest.mark.parametrize("table", sorted(COLUMN))
@pytest.mark.parametrize("verb", VERBS)
def test_the_owner_is_refused_by_triggers(
    world: StoredWorld, database: Database, table: str, verb: str, before: str
) -> None:
    """Even in a session in which ordinary triggers are silent; and so is an upsert."""
    execute(database.url, "INSERT INTO cosignature VALUES (1, 'witness.example', 'line')")
    execute(database.owner, "INSERT INTO seal VALUES (0, 'elsewhere', 10)")
    kept = rows(world.url)
    with pytest.raises(IntegrityError, match=f"{table} is append-only"):
        execute(database.owner, before, verb.format(table, COLUMN[table]))
    assert rows(world.url) == kept


AHEAD: Final = {
    "checkpoint far ahead": "checkpoint VALUES (99999, 'x')",
    "checkpoint of the past": "checkpoint VALUES (1, 'x')",
    "two checkpoints of the past": "checkpoint VALUES (1, 'x'), (2, 'x')",
    "next leaf": "tree_node SELECT 0, count(*), decode(repeat('00', 32), 'hex') FROM entry",
    "incomplete subtree": "tree_node SELECT 3, count(*) / 8, decode(repeat('00', 32), 'hex') FROM entry",
    "level beyond all": "tree_node VALUES (63, 0, decode(repeat('00', 32), 'hex'))",
    "level of no shift": "tree_node VALUES (64, 0, decode(repeat('00', 32), 'hex'))",
    "level of no integer": "tree_node VALUES (9000000000, 0, decode(repeat('00', 32), 'hex'))",
    "negative level": "tree_node VALUES (-1, 0, decode(repeat('00', 32), 'hex'))",
    "negative position": "tree_node VALUES (0, -1, decode(repeat('00', 32), 'hex'))",
    "entry after a gap": "entry SELECT 11, 'new', kind, time, data FROM entry WHERE position = 9",
    "two entries with a gap between": "entry VALUES (10, 'new', 'post', 1, '{}'), (12, 'newer', 'post', 1, '{}')",
}
"""Rows that could never be removed, and that no writer could go on from."""


@pytest.mark.parametrize("kind", AHEAD)
def test_the_application_inserts_nothing_ahead_of_the_entries(
    world: StoredWorld, database: Database, kind: str
) -> None:
    """So whoever holds its password cannot brick the book by it; the book goes on."""
    with pytest.raises(IntegrityError, match=r"is not of the entries that are there|without a gap"):
        execute(database.url, f"INSERT INTO {AHEAD[kind]}")
    assert world.submit(world.charge("run-1", run=SMALL))[0].code.word == "pending"


def test_the_application_seals_nothing(world: StoredWorld, database: Database) -> None:
    """It was never given the right; the owner's seal is of all entries."""
    with pytest.raises(ProgrammingError, match="permission denied"):
        execute(database.url, "INSERT INTO seal VALUES (0, 'elsewhere', 10)")
    with pytest.raises(IntegrityError, match="seal is not of the entries that are there"):
        execute(database.owner, "INSERT INTO seal VALUES (0, 'elsewhere', 9)")
    execute(database.owner, "GRANT INSERT (successor) ON seal TO epsilon_writer")
    with pytest.raises(BookUnusable, match="may append to the table seal, and could end the book: open the book as"):
        world.open()


def test_a_book_is_not_opened_by_who_could_change_it(world: StoredWorld, database: Database) -> None:
    """A superuser, an owner, or a role that was given a right too many."""
    with pytest.raises(BookUnusable, match="superuser, whom no trigger binds"):
        Book.open(database.owner, gate=gate, log_key=LOG_KEY, origin=ORIGIN, clock=world.clock, volatile=True)
    execute(database.owner, "GRANT UPDATE (data) ON entry TO epsilon_writer")
    with pytest.raises(BookUnusable, match="may change the table entry, which is append-only: open the book as"):
        world.open()
    role = make_url(database.url).username
    execute(
        database.owner, "REVOKE UPDATE (data) ON entry FROM epsilon_writer", f"ALTER TABLE document OWNER TO {role}"
    )
    with pytest.raises(BookUnusable, match="owns the table document, and could drop what guards it"):
        world.open()


CONDITIONAL: Final = (
    "CREATE OR REPLACE TRIGGER entry_no_change BEFORE UPDATE OR DELETE ON entry FOR EACH ROW WHEN (OLD.position > 99) "
    "EXECUTE FUNCTION epsilon_guard.refuse_change()"
)
EMPTY: Final = (
    "CREATE OR REPLACE FUNCTION epsilon_guard.refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
    "$$ BEGIN RETURN NEW; END $$"
)


@pytest.mark.parametrize(
    ("blow", "name"),
    [
        ("DROP TRIGGER entry_no_change ON entry", "entry_no_change"),
        ("DROP TRIGGER checkpoint_no_truncate ON checkpoint", "checkpoint_no_truncate"),
        ("ALTER TABLE entry DISABLE TRIGGER entry_no_gap", "entry_no_gap"),
        ("ALTER TABLE document ENABLE TRIGGER document_no_change", "document_no_change"),
        (CONDITIONAL, "entry_no_change"),
        (EMPTY, "entry_no_change"),
    ],
)
def test_a_lost_or_blunted_trigger_is_noticed(world: StoredWorld, database: Database, blow: str, name: str) -> None:
    """At the next opening, and at the next upgrade."""
    execute(database.owner, blow)
    with pytest.raises(BookUnusable, match=f"lacks its trigger {name}"):
        world.open()
    with pytest.raises(migrations.SchemaUnknown, match=f"lacks the trigger {name}"):
        migrations.upgrade(database.owner)


def test_a_server_that_may_forget_is_refused(world: StoredWorld) -> None:
    """Unless it is asked for: the server of these tests does not wait for its disk."""
    with pytest.raises(BookUnusable, match="the server has fsync off, and may lose what it committed: turn it on"):
        world.open(volatile=False)


def test_a_newer_schema_stops_a_book_that_is_open(world: StoredWorld, database: Database) -> None:
    """Another process upgraded it: nothing more is written by a program that does not know the schema."""
    execute(database.owner, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(BookStopped, match="the book's schema 9999 is newer"):
        world.submit(world.charge("run-1", run=SMALL))
    assert world.size == 10


def test_a_lock_that_another_role_holds_delays_the_book_and_stops_it_not(
    world: StoredWorld, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any role that may connect can hold it. Nothing was decided, so callers are to try again, and then it goes on."""
    monkeypatch.setitem(engine.WRITING, "lock_timeout", "100ms")
    world.reopen()
    held = engine_of(database.owner, writes=True)
    with held.begin() as connection:
        lock_log(connection)
        with pytest.raises(BookBusy, match="the database does not answer now"):
            world.submit(world.charge("run-1", run=SMALL))
        assert world.book.stopped is None
    held.dispose()
    assert world.submit(world.charge("run-1", run=SMALL))[0].code.word == "pending"


def test_a_session_that_ends_before_it_has_the_lock_stops_no_book(world: StoredWorld, database: Database) -> None:
    """The batch is begun anew on another connection."""
    ended: list[int] = []

    def end(connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        del cursor, rest
        if "pg_advisory_xact_lock" in statement and not ended:
            ended.append(connection.connection.dbapi_connection.info.backend_pid)  # type: ignore[union-attr] # the driver's own
            execute(database.owner, f"SELECT pg_terminate_backend({ended[0]}, 10000)")

    event.listen(Engine, "before_cursor_execute", end)
    try:
        with pytest.raises(BookBusy, match="the database does not answer now"):
            world.submit(world.charge("run-1", run=SMALL))
    finally:
        event.remove(Engine, "before_cursor_execute", end)
    assert world.submit(world.charge("run-1", run=SMALL))[0].code.word == "pending"


def test_a_seal_stops_each_process_that_has_the_book_open(
    world: StoredWorld, other: StoredWorld, database: Database
) -> None:
    """One is stopped by a batch that only repeats an outcome, and writes no row; an idle one by its comparison."""
    sent = world.charge("run-1", run=SMALL)
    assert world.submit(sent)[0].code.word == "pending"
    execute(database.owner, "INSERT INTO seal VALUES (0, 'elsewhere', 11)")
    with pytest.raises(BookStopped, match="the book was moved to elsewhere, and goes on there"):
        world.submit(sent)
    other.book.compare_rows()
    assert "the book was moved to elsewhere" in str(other.book.stopped)


def test_a_reader_beside_a_downgrade_sees_a_stopped_book(world: StoredWorld, database: Database) -> None:
    """Not the driver's error; the writer stops too."""
    migrate(Place(make_url(database.owner)), Limits(), LOG, no_step, down_to="0001")
    with pytest.raises(BookStopped, match="has changed the book's schema"), world.book.read() as facts:
        assert facts.audits.get("run-1") is None
    with pytest.raises(BookStopped, match=r"has changed the book's schema|the book's schema is 0001"):
        world.submit(world.charge("run-1", run=SMALL))


def test_a_database_that_fails_is_not_an_empty_one(world: StoredWorld, database: Database) -> None:
    """Who opens a book there is not told to make one."""
    execute(database.owner, "REVOKE SELECT ON alembic_version FROM epsilon_writer, PUBLIC")
    with pytest.raises(BookUnusable, match=r"^the book cannot be read: permission denied for table alembic_version"):
        world.open()


def test_a_server_that_is_not_there_is_named(world: StoredWorld) -> None:
    """One sentence, without the password."""
    url = make_url(world.url).set(host="127.0.0.1", port=1, query={})
    with pytest.raises(BookUnusable, match="the database cannot be reached") as fault:
        Book.open(
            url.render_as_string(hide_password=False), gate=gate, log_key=LOG_KEY, origin=ORIGIN, clock=world.clock
        )
    assert str(url.password) not in str(fault.value)
