"""A world whose book lies in a database: the real gate, keys that are the same in every process, no service."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from sqlalchemy import select

import migrations
from client.keys.signer import Signer
from ledger.book.book import Book, Outcome, Submission
from ledger.domain.facts import Facts
from ledger.store.engine import engine_of, url_of
from ledger.store.tables import metadata
from policy.decisions.gate import gate
from tests.factories.people import LOG_KEY, ORIGIN
from tests.factories.state_agreement import check_agreement
from tests.factories.world import World
from tests.postgres import Database, databases, new_book


class StoredWorld(World):
    """A world whose book lies in SQLite in this folder, unless ``url`` says where.

    Attributes:
        is_checked: whether memory, rows and replay are compared when a test leaves the world that it opened: not where
            it damages them, nor where a book is long.
    """

    is_checked = False

    def __init__(self, folder: Path, url: str = "") -> None:
        super().__init__()
        self.path = folder / "book.sqlite"
        self.url = url or url_of(self.path)
        self.book = self.open()

    def open(self, **changes: Any) -> Book:  # noqa: ANN401 - any argument of Book.open
        """Another opening of the same book."""
        usual = {
            "clock": self.clock,
            "gate": gate,
            "log_key": LOG_KEY,
            "origin": ORIGIN,
            "volatile": True,
            "statements": False,
        }
        return Book.open(self.url, **{**usual, **changes})

    def reopen(self) -> None:
        """Close the book and open it anew."""
        self.book.close()
        self.book = self.open()

    @property
    def size(self) -> int:
        """How many entries the log has."""
        with self.book.read() as facts:
            return facts.size

    def submit(self, *submissions: Submission) -> list[Outcome]:
        """Send several commands at once."""
        return self.book.submit(submissions)

    def put(self, data: bytes, signer: Signer) -> str:
        """Store bytes beside the log; their digest."""
        del signer
        return self.book.put_document(data)

    def read(self) -> AbstractContextManager[Facts]:
        """A snapshot."""
        return self.book.read()

    def recorded(self, name: str) -> bool:
        """Whether a command of this id is an entry."""
        with self.book.read() as facts:
            return facts.entry_index(name) is not None


ENGINES: Final = ("sqlite", "postgresql")


@contextmanager
def fresh_book(folder: Path, engine: str = "sqlite") -> Iterator[str]:
    """The URL of a book without an entry, while the block runs."""
    if engine == "sqlite":
        url = url_of(folder / "book.sqlite")
        migrations.upgrade(url)
        yield url
    else:
        with new_book() as database:
            yield database.url


def _found(world: StoredWorld) -> None:
    world.found()
    world.book.close()


_FILES: Final[dict[type[StoredWorld], bytes]] = {}
_DATABASES: Final[dict[type[StoredWorld], Database]] = {}


def _founded_file(make: type[StoredWorld]) -> bytes:
    """A founded book's SQLite file, made once in a process: to copy it is quicker than to found anew."""
    if make not in _FILES:
        with TemporaryDirectory() as name, fresh_book(Path(name)) as url:
            world = make(Path(name), url)
            _found(world)
            _FILES[make] = world.path.read_bytes()
    return _FILES[make]


def _founded_database(make: type[StoredWorld]) -> Database:
    """The same in PostgreSQL, to be a template."""
    if make not in _DATABASES:
        database = databases().lasting()
        with TemporaryDirectory() as name:
            _found(make(Path(name), database.url))
        _DATABASES[make] = database
    return _DATABASES[make]


@contextmanager
def founded_book(folder: Path, engine: str = "sqlite", make: type[StoredWorld] = StoredWorld) -> Iterator[str]:
    """The URL of a book that holds everything a charge needs, while the block runs."""
    if engine == "sqlite":
        (folder / "book.sqlite").write_bytes(_founded_file(make))
        yield url_of(folder / "book.sqlite")
    else:
        database = databases().copy(_founded_database(make))
        try:
            yield database.url
        finally:
            databases().drop(database)


@contextmanager
def open_world(
    folder: Path, engine: str = "sqlite", *, founded: bool = True, make: type[StoredWorld] = StoredWorld
) -> Iterator[StoredWorld]:
    """A world whose book is open while the block runs; then memory, rows and replay are compared if it says so."""
    with founded_book(folder, engine, make) if founded else fresh_book(folder, engine) as url:
        world = make(folder, url)
        try:
            yield world
            if world.is_checked:
                check_agreement(world.book, world.url)
        finally:
            world.book.close()


def rows(book: str | Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table but the documents, which anyone may store, and the epoch, which each opening changes."""
    engine = engine_of(url_of(book), writes=False)
    try:
        with engine.begin() as connection:
            return {
                name: [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key.columns))]
                for name, table in metadata.tables.items()
                if name not in {"document", "epoch"}
            }
    finally:
        engine.dispose()


def copy(source: Path, target: Path) -> Path:
    """A copy of a book that is not being written."""
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)
    return target


def no_step(done: int, total: int) -> None:
    """Progress that nobody watches."""
    assert 0 < done <= total
