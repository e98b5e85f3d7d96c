"""Places for books on either engine, and the commands as an operator types them."""

from __future__ import annotations

import atexit
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import URL, make_url, select
from typer.testing import CliRunner

from ledger.book.book import Book
from ledger.store.cosignatures import store_cosignature
from ledger.store.engine import engine_of, url_of
from ledger.store.tables import metadata
from ledger.verifier import verify_receipt
from migrations.cli.main import app
from policy.decisions.gate import gate
from tests.factories.documents import NOW, SMALL
from tests.factories.people import LOG, LOG_KEY, ORIGIN
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.log.memory_log import Cosigner
from tests.postgres import new_database

ENGINES: Final = ("sqlite", "postgresql")
_DIGIT_CHANGED: Final = {
    "sqlite": "CAST(replace(CAST(data AS TEXT), '1', '2') AS BLOB)",
    "postgresql": "convert_to(replace(convert_from(data, 'UTF8'), '1', '2'), 'UTF8')",
}


@dataclass(frozen=True, slots=True)
class Spot:
    """Where a book lies or may lie.

    Attributes:
        book: what is typed for it.
        url: the URL of who upgrades it.
        writes: the URL of who opens it.
        folder: a folder of the test's own, with ``log.vkey`` in it.
    """

    book: str
    url: str
    writes: str
    folder: Path

    @property
    def path(self) -> Path:
        """The file of an SQLite book."""
        return Path(self.book)

    @property
    def log(self) -> tuple[str, Path]:
        """The option that names the log's key."""
        return "--log", self.folder / "log.vkey"

    @property
    def engine(self) -> str:
        """What it lies in."""
        return make_url(self.url).get_backend_name()

    def open(self) -> Book:
        """The book as a service opens it."""
        return Book.open(
            self.writes, gate=gate, log_key=LOG_KEY, origin=ORIGIN, clock=lambda: NOW, volatile=True, statements=False
        )

    def run(self, script: str) -> None:
        """Run several statements with the engine's own driver, as who owns the database."""
        if self.engine == "sqlite":
            with closing(sqlite3.connect(self.path)) as file:
                file.executescript(script)
        else:
            with psycopg.connect(_plain(make_url(self.url)), autocommit=True) as connection:
                connection.execute(sql.SQL(script))

    def tamper(self, table: str, statement: str) -> None:
        """Run a statement on a table with its triggers put aside; ``{changed}`` is its data with other digits."""
        changed = statement.format(changed=_DIGIT_CHANGED[self.engine])
        if self.engine == "sqlite":
            with closing(sqlite3.connect(self.path)) as file:
                chosen = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
                triggers = file.execute(chosen, (table,)).fetchall()
            dropped = "".join(f"DROP TRIGGER {name};" for name, _ in triggers)
            self.run(f"{dropped}{changed};{';'.join(made for _, made in triggers)}")
        else:
            always = (
                "DO $$ DECLARE one record; BEGIN FOR one IN SELECT tgname FROM pg_trigger "  # noqa: S608 - our own
                f"WHERE tgrelid = '{table}'::regclass AND NOT tgisinternal LOOP "
                f"EXECUTE format('ALTER TABLE {table} ENABLE ALWAYS TRIGGER %I', one.tgname); END LOOP; END $$"
            )
            self.run(f"ALTER TABLE {table} DISABLE TRIGGER USER; {changed}; {always}")

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table but the epoch, which each opening changes."""
        engine = engine_of(self.url, writes=False)
        try:
            with engine.begin() as connection:
                return {
                    name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
                    for name, table in metadata.tables.items()
                    if name != "epoch"
                }
        finally:
            engine.dispose()


@contextmanager
def spot(engine: str, folder: Path) -> Iterator[Spot]:
    """A place of its own on an engine, with nothing there."""
    folder.mkdir(exist_ok=True)
    (folder / "log.vkey").write_text(LOG.vkey)
    if engine == "sqlite":
        path = folder / "book.sqlite"
        yield Spot(str(path), url_of(path), url_of(path), folder)
        return
    with new_database() as database, pytest.MonkeyPatch.context() as patch:
        owner = make_url(database.owner)
        if owner.password is not None:
            patch.setenv("PGPASSWORD", str(owner.password))
        typed = owner.set(drivername="postgresql", password=None).render_as_string()
        yield Spot(typed, database.owner, database.url, folder)


@dataclass(frozen=True, slots=True)
class Kept:
    """What people have of the book outside it.

    Attributes:
        backup: made when it was whole; ``early`` when it was shorter.
        checkpoint: its newest; ``first`` an older one.
        receipts: of some entries, each with its bytes.
        rows: every row it had.
    """

    backup: Path
    early: Path
    checkpoint: Path
    first: Path
    receipts: tuple[tuple[str, bytes], ...]
    rows: dict[str, list[tuple[Any, ...]]]
    size: int

    def put(self, place: Spot) -> Spot:
        """The book, there; it was restored once, and is copied."""
        if place.engine == "sqlite":
            shutil.copyfile(_restored(self, "sqlite").path, place.path)
        else:
            _replace(place, _restored(self, "postgresql"))
        return place

    def check_receipts(self) -> None:
        """Every receipt proves its entry still."""
        for text, data in self.receipts:
            verify_receipt(text, data, LOG)


def grow(folder: Path) -> Kept:
    """A book with a posted, a voided and a pending run, a merger and a refusal; and what is kept of it."""
    backup, early, checkpoint, first = (folder / name for name in ("book.zip", "early.zip", "checkpoint", "first"))
    with open_world(folder) as world:
        path = str(world.path)
        assert db("backup", path, early).code == 0
        first.write_text(_checkpoint(world))
        world.submit(*(world.charge(f"run-{number}", run=SMALL) for number in range(3)))
        world.submit(world.release("run-0", SMALL))
        world.submit(world.settle("run-0", 1), world.void("run-1"), world.merger(), world.charge("late", run=SMALL))
        checkpoint.write_text(_checkpoint(world))
        _cosign(world)
        with world.book.read() as facts:
            receipts = tuple((facts.receipt(index), facts.entry(index)) for index in (0, 7, facts.size - 1))
            size = facts.size
        assert db("backup", path, backup).code == 0
    rows = Spot(path, url_of(path), url_of(path), folder).rows()
    return Kept(backup, early, checkpoint, first, receipts, rows, size)


_RESTORED: Final[dict[str, Spot]] = {}


def _restored(kept: Kept, engine: str) -> Spot:
    """The grown book, restored from its backup once in this process, to be copied."""
    if engine not in _RESTORED:
        stack = ExitStack()
        place = stack.enter_context(spot(engine, kept.backup.parent / engine))
        atexit.register(stack.close)
        done = db("restore", kept.backup, place.book, "--kept", kept.checkpoint, *place.log)
        assert done.code == 0, done.out
        _RESTORED[engine] = place
    return _RESTORED[engine]


def _replace(place: Spot, template: Spot) -> None:
    """Make a database anew as a copy of another; nobody may have either open."""
    name, source = make_url(place.url).database, make_url(template.url).database
    with psycopg.connect(_plain(make_url(place.url).set(database="postgres")), autocommit=True) as connection:
        connection.execute(sql.SQL(f"DROP DATABASE {name}"))
        connection.execute(sql.SQL(f"CREATE DATABASE {name} TEMPLATE {source}"))


def _plain(url: URL) -> str:
    return url.set(drivername="postgresql").render_as_string(hide_password=False)


def _cosign(world: StoredWorld) -> None:
    """A witness has signed the newest checkpoint."""
    witness, engine = Cosigner("witness.example", 7), engine_of(world.url, writes=True)
    with world.book.read() as facts:
        size, note = facts.size, facts.checkpoint
    with engine.begin() as connection:
        store_cosignature(connection, size, witness.key, witness.line(note))
    engine.dispose()


def _checkpoint(world: StoredWorld) -> str:
    with world.book.read() as facts:
        return facts.checkpoint


@dataclass(frozen=True, slots=True)
class Done:
    """What a command answered: exit code, and all that it said."""

    code: int
    out: str

    @property
    def json(self) -> Any:  # noqa: ANN401 - whatever was printed
        """Its output as JSON."""
        return json.loads(self.out)


def db(*arguments: object) -> Done:
    """Run ``epsilon db`` with these arguments."""
    found = CliRunner().invoke(app, ["db", *(str(one) for one in arguments)])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return Done(found.exit_code, found.output.strip())
