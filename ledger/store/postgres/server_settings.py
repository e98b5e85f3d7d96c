"""Settings of a server under which a book would be lost or could not be written."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from ledger.store.engine import is_postgres

_ENCODING: Final = "UTF8"


def volatile_setting(connection: Connection) -> str | None:
    """The first setting of a server under which a commit that returned may yet be lost; None if there is none."""
    if not is_postgres(connection):
        return None
    for name in ("fsync", "full_page_writes", "synchronous_commit"):
        if connection.exec_driver_sql(f"SHOW {name}").scalar_one() == "off":
            return name
    return None


def encoding_problem(connection: Connection) -> str | None:
    """What is wrong with the encoding of a database, and what to do; None if it holds every character."""
    if not is_postgres(connection):
        return None
    found = str(connection.exec_driver_sql("SHOW server_encoding").scalar_one())
    if found == _ENCODING:
        return None
    return (
        f"the database has the encoding {found}, which does not hold every character of a book: make another one with "
        "CREATE DATABASE ... TEMPLATE template0 ENCODING 'UTF8'"
    )
