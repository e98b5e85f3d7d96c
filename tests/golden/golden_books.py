"""Golden books unpacked: in a folder as an SQLite file, or loaded into a PostgreSQL database."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import psycopg
import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from psycopg import sql
from sqlalchemy import make_url
from typer.testing import CliRunner

from epsilon_ledger.__main__ import assemble
from ledger.book.book import Book
from ledger.store.engine import engine_of, url_of
from policy.decisions.gate import gate
from tests.postgres import new_database

HERE: Final = Path(__file__).parent
BOOKS: Final = tuple(sorted(path.name.partition(".")[0] for path in (HERE / "books").glob("*.tar.xz")))
COMPLETE: Final = ("decree", "level_2", "lineage", "mechanisms_users", "mechanisms_zero_out", "service", "statements")
"""Books that are also there as a PostgreSQL dump, a backup and published tiles."""
CURRENT: Final = HERE.parents[1] / "ledger" / "verifier.py"
FIRST: Final = HERE / "verifier-0001.txt"
"""The verifier of the program that made the first books."""
ENGINES: Final = ("sqlite", "postgresql")
ON_ENGINES: Final = [(name, "sqlite") for name in BOOKS] + [(name, "postgresql") for name in COMPLETE]


@dataclass(frozen=True, slots=True)
class GoldenBook:
    """One golden book, in a database of its own.

    Attributes:
        book: as it is named on the command line.
        url: of a role that may append.
        folder: the unpacked files.
    """

    book: str
    url: str
    folder: Path

    @property
    def log(self) -> tuple[str, str]:
        """The option that names the log's key."""
        return "--log", str(self.folder / "log.vkey")

    @property
    def digests(self) -> list[str]:
        """The SHA-256 of each entry, as the earlier program wrote them."""
        return (self.folder / "entries.sha256").read_text().split()

    def select(self, statement: str) -> list[tuple[object, ...]]:
        """The rows of a query."""
        engine = engine_of(self.url, writes=False)
        try:
            with engine.begin() as connection:
                return [tuple(row) for row in connection.exec_driver_sql(statement)]
        finally:
            engine.dispose()

    def entries(self) -> list[bytes]:
        """The stored bytes of every entry, in order."""
        return [_bytes(data) for (data,) in self.select("SELECT data FROM entry ORDER BY position")]


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes)
    return value


def sha256(data: bytes) -> str:
    """Lower-case hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def unpack(name: str, folder: Path) -> Path:
    """The files of a golden book."""
    with tarfile.open(HERE / "books" / f"{name}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@contextmanager
def golden_book(name: str, engine: str, folder: Path) -> Iterator[GoldenBook]:
    """A golden book on an engine, while the block runs."""
    unpack(name, folder)
    if engine == "sqlite":
        path = folder / "book.sqlite"
        yield GoldenBook(str(path), url_of(path), folder)
        return
    with empty_postgresql() as (book, owner, url):
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute(sql.SQL((folder / "postgresql.sql").read_text()))
        yield GoldenBook(book, url, folder)


@contextmanager
def empty_postgresql() -> Iterator[tuple[str, str, str]]:
    """An empty database: as it is named on the command line, its owner's URL, and that of a role that may append."""
    with new_database() as database, pytest.MonkeyPatch.context() as patch:
        owner = make_url(database.owner).set(drivername="postgresql")
        if owner.password is not None:
            patch.setenv("PGPASSWORD", str(owner.password))
        yield owner.set(password=None).render_as_string(), owner.render_as_string(hide_password=False), database.url


def private_key(name: str) -> Ed25519PrivateKey:
    """The key that is derived from a name."""
    return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())


def open_book(book: GoldenBook, now: int, snapshot: Path | None = None) -> Book:
    """A golden book, open for writing; it states nothing."""
    origin = (book.folder / "log.vkey").read_text().partition("+")[0]
    return Book.open(
        book.url,
        gate=gate,
        log_key=private_key("log"),
        origin=origin,
        clock=lambda: now,
        snapshot=snapshot,
        volatile=True,
        statements=False,
    )


@cache
def _root() -> typer.Typer:
    return assemble()


def epsilon(*arguments: object, code: int = 0) -> str:
    """What ``epsilon`` prints; it must end with this exit code."""
    done = CliRunner().invoke(_root(), [*map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


_EACH: Final = """
import json, runpy, sys
for sys.argv in json.load(sys.stdin):
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
    print("END")
"""


def run_alone(verifier: Path, *commands: tuple[object, ...]) -> None:
    """Have a verifier, alone and without anything of ours beside it, do one after the other; each must succeed."""
    requested = json.dumps([[str(verifier), *map(str, command)] for command in commands])
    alone = [sys.executable, "-I", "-c", _EACH]
    done = subprocess.run(alone, input=requested, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.count("END\n")) == (0, len(commands)), done.stdout + done.stderr
