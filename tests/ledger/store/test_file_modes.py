"""The files of a book are its owner's alone, whatever the umask allows: they hold all parties' contracts and runs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import migrations
from ledger.store.engine import engine_of


@pytest.fixture(autouse=True)
def _generous() -> Iterator[None]:
    """A umask that takes nothing away."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def _modes(folder: Path) -> dict[str, int]:
    return {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir() if one.suffix != ".lock"}


def test_a_book_and_what_lies_beside_it_is_private(tmp_path: Path) -> None:
    """The file from the moment that it is there, its log and its index while it is open."""
    url = f"sqlite:///{tmp_path / 'book.sqlite'}"
    migrations.upgrade(url)
    engine = engine_of(url, writes=True)
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO document VALUES ('00', x'00')")
        found = _modes(tmp_path)
    engine.dispose()
    assert found == dict.fromkeys(("book.sqlite", "book.sqlite-shm", "book.sqlite-wal"), 0o600)


def test_a_mode_that_an_operator_chose_stays(tmp_path: Path) -> None:
    """A group that may read backups goes on to read them."""
    url = f"sqlite:///{tmp_path / 'book.sqlite'}"
    migrations.upgrade(url)
    (tmp_path / "book.sqlite").chmod(0o640)
    migrations.upgrade(url)
    assert _modes(tmp_path) == {"book.sqlite": 0o640}
