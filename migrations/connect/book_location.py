"""The location of a book: the BOOK argument, a path of an SQLite file or the URL of a PostgreSQL database."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

from ledger.store.engine import followed_url
from ledger.wire.malformed import Malformed

PLACE_CHARACTERS_MAX: Final = 4_096
_SECRETS: Final = ("password", "passfile", "sslpassword")


@dataclass(frozen=True, slots=True)
class Place:
    """The location of a book or of a database that may become one.

    Attributes:
        url: of the database; of an SQLite file itself where a symbolic link to it was named.
        name: the file's name in reports, where that is another one.
    """

    url: URL
    name: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a BOOK argument.

        Raises:
            Malformed: if it is neither a path nor a URL of SQLite or PostgreSQL that can be read, or holds a password,
                which every process of the machine could read: libpq reads it from PGPASSWORD or PGPASSFILE.
        """
        if not text or len(text) > PLACE_CHARACTERS_MAX or not text.isprintable():
            raise Malformed("book", "must be the path of an SQLite file or a postgresql:// URL")
        if "://" not in text:
            return cls(followed_url(URL.create("sqlite", database=text)), text)
        try:
            url = make_url(text)
        except (ArgumentError, ValueError):
            raise Malformed("book", "is not a readable URL") from None
        place = cls.of(url)
        if place.url.password is not None or any(name in place.url.query for name in _SECRETS):
            raise Malformed("book", "must not hold a password: set PGPASSWORD, or name a file with PGPASSFILE")
        if place.path is None:
            try:
                place.url.get_dialect()().create_connect_args(place.url)
            except (ArgumentError, ValueError):
                raise Malformed("book", "must name a host and a port that is a number for each server") from None
        return place

    @classmethod
    def of(cls, url: URL | str) -> Self:
        """The location for a URL. Raises: Malformed."""
        made = make_url(url)
        if made.get_backend_name() == "sqlite":
            if not made.database or made.database == ":memory:":
                raise Malformed("book", "must be a file: a book in memory would be lost")
            return cls(followed_url(made), made.database)
        if made.get_backend_name() == "postgresql":
            return cls(made.set(drivername="postgresql+psycopg"))
        raise Malformed("book", f"must be in SQLite or PostgreSQL, not in {made.get_backend_name()[:40]}")

    @property
    def path(self) -> Path | None:
        """The file of an SQLite book."""
        return Path(str(self.url.database)) if self.url.get_backend_name() == "sqlite" else None

    @property
    def display_name(self) -> str:
        """The book as reports name it, without a password."""
        if self.path is not None:
            return self.name or str(self.url.database)
        return self.url.set(drivername="postgresql").render_as_string(hide_password=True)

    @property
    def named(self) -> Path | None:
        """The name of an SQLite book as it was given, beside which a log.vkey may lie; a symbolic link's own name."""
        return None if self.path is None else Path(self.display_name)

    @property
    def absolute(self) -> str:
        """The absolute name to store, the same from every folder."""
        return self.display_name if self.path is None else str(Path(self.display_name).absolute())
