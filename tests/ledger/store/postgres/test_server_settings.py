"""A server whose settings no book can be written under is refused, in one sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

import migrations
from ledger.book.book import Book, BookUnusable
from ledger.store.engine import engine_of
from migrations.connect.errors import NotDone
from policy.decisions.gate import gate
from tests.factories.people import LOG_KEY, ORIGIN
from tests.postgres import new_book, new_database

REFUSED: Final = "the database has the encoding {}, which does not hold every character of a book: make another one"


@contextmanager
def encoded(encoding: str) -> Iterator[str]:
    """The URL of an empty database of this encoding, while the block runs."""
    with new_database() as database:
        url = make_url(database.owner)
        name = f"{url.database}_{encoding.lower()}"
        plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True) as owner:
            made = "CREATE DATABASE {} TEMPLATE template0 ENCODING {} LC_COLLATE 'C' LC_CTYPE 'C'"
            owner.execute(sql.SQL(made).format(sql.Identifier(name), sql.Literal(encoding)))
            try:
                yield url.set(database=name).render_as_string(hide_password=False)
            finally:
                owner.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_an_encoding_that_lacks_characters_is_refused(encoding: str) -> None:
    """When a book is made there, and when one is opened there that an older program made."""
    with encoded(encoding) as url:
        with pytest.raises(NotDone, match=REFUSED.format(encoding)):
            migrations.upgrade(url)
        with pytest.raises(BookUnusable, match=REFUSED.format(encoding)):
            Book.open(url, gate=gate, log_key=LOG_KEY, origin=ORIGIN, clock=lambda: 1, volatile=True)


@pytest.mark.parametrize(
    ("name", "set_to", "held"),
    [
        ("array_nulls", "off", "on"),
        ("client_min_messages", "error", "notice"),
        ("default_transaction_read_only", "on", "off"),
        ("synchronous_commit", "off", "on"),
        ("synchronous_commit", "remote_apply", "remote_apply"),
    ],
)
def test_a_session_that_writes_has_settings_of_its_own(name: str, set_to: str, held: str) -> None:
    """A role may set them for its own sessions, also while a book is open; a longer wait of commits stays."""
    with new_book() as book:
        url = make_url(book.url)
        plain = make_url(book.owner).set(drivername="postgresql").render_as_string(hide_password=False)
        with psycopg.connect(plain, autocommit=True) as owner:
            chosen = "ALTER ROLE {} IN DATABASE {} SET {} = {}"
            role, database = sql.Identifier(str(url.username)), sql.Identifier(str(url.database))
            owner.execute(sql.SQL(chosen).format(role, database, sql.Identifier(name), sql.Literal(set_to)))
        engine = engine_of(book.url, writes=True)
        with engine.begin() as connection:
            assert connection.exec_driver_sql(f"SHOW {name}").scalar_one() == held
        engine.dispose()
