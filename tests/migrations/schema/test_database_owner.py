"""A PostgreSQL whose owner is no superuser: what only a superuser may do is named, and then the owner does the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import psycopg
import pytest
from sqlalchemy import make_url

from ledger.store.tables import SCHEMA_REVISION
from tests.migrations.places import db
from tests.postgres import Server

NAMED: Final = "must first run: CREATE ROLE epsilon_writer NOLOGIN"


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own, on which nobody has made the application's role."""
    found = Server(fsync="off")
    yield found
    found.close()


def test_an_owner_without_createrole_is_told_what_a_superuser_must_do(server: Server) -> None:
    """When that is done, the same command makes the book."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute("CREATE ROLE plain LOGIN")
        admin.execute("CREATE DATABASE book OWNER plain")
        url = make_url(server.dsn).set(username="plain", database="book").render_as_string()
        done = db("upgrade", url)
        assert (done.code, NAMED in done.out, "\n" in done.out) == (5, True, False), done.out
        assert db("status", url).code == 4
        admin.execute(NAMED.partition(": ")[2])
        assert db("upgrade", url, "--json").json["schema"] == SCHEMA_REVISION


def test_an_owner_sees_that_another_role_has_the_book_open(server: Server) -> None:
    """Though the server shows it little of that role's session; so it rescues no book that a service has open."""
    with psycopg.connect(server.dsn, autocommit=True) as admin:
        admin.execute(NAMED.partition(": ")[2])
        admin.execute("CREATE ROLE landlord LOGIN")
        admin.execute("CREATE ROLE service LOGIN")
        admin.execute("CREATE DATABASE rented OWNER landlord")
    url = make_url(server.dsn).set(username="landlord", database="rented")
    typed = url.render_as_string()
    assert db("upgrade", typed).code == 0
    assert db("status", typed, "--json").json["held"] is False
    with psycopg.connect(url.set(username="service").render_as_string()):
        assert db("status", typed, "--json").json["held"] is True
    assert db("status", typed, "--json").json["held"] is False
