"""What a page asks of the database: a bounded number of statements, and as many of a long log as of a short one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import event

from api.console.view_list import PAGES
from ledger.book.book import Book
from tests.api.console.conftest import Looked
from tests.api.console.long_book import LONG, NOT_THERE, PATHS, RICHEST, served_long
from tests.api.console.page_addresses import addresses
from tests.api.console.visitors import PEOPLE

STATEMENTS_MAX: Final = 30
_EACH_OF: Final = {"/": tuple(PEOPLE), "/planner": ("SRO", "TDP", "TDC"), "/merger": ("SRO", "TDP")}
"""Pages that differ most by role."""


@contextmanager
def counted(book: Book) -> Iterator[list[str]]:
    """The statements that reads of a book ask, while the block runs, but for those of the book's own threads."""
    requested: list[str] = []

    def note(*reported: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own
        if not threading.current_thread().name.startswith("book-"):
            requested.append(str(reported[2]))

    engine = book._reads  # noqa: SLF001 - its statements are counted
    event.listen(engine, "before_cursor_execute", note)
    try:
        yield requested
    finally:
        event.remove(engine, "before_cursor_execute", note)


def statements(http: httpx.Client, address: str, requested: list[str]) -> int:
    """Of one page; the first answer on a connection sets it up."""
    counts = []
    for _ in range(3):
        requested.clear()
        assert http.get(address).status_code == 200, address
        counts.append(len(requested))
    return min(counts)


def test_a_page_asks_few_statements(looked: Looked) -> None:
    """At most thirty, in its richest role; those that differ most by role, in each."""
    with counted(looked.pairs.world.book) as requested:
        for page in PAGES:
            roles = _EACH_OF.get(page.path, (RICHEST.get(page.path, "SRO"),))
            count = max(
                statements(looked.browsers[role], addresses(looked.pairs)[page.path], requested) for role in roles
            )
            assert count <= STATEMENTS_MAX, (page.path, count)


def test_a_long_book_fills_every_page_but_what_lies_beside_the_log() -> None:
    """Each page is measured there; what is left out is named."""
    assert {page.path for page in PAGES} == LONG.keys() | NOT_THERE


@pytest.mark.soak
def test_a_page_of_ten_thousand_entries_asks_as_much_as_one_of_a_thousand(tmp_path: Path) -> None:
    """And no more than thirty."""
    counts = {size: _of_grown(tmp_path / str(size), size) for size in (1_000, 10_000)}
    assert counts[10_000] == counts[1_000]
    assert max(counts[1_000].values()) <= STATEMENTS_MAX


@pytest.mark.soak
def test_a_page_of_a_million_entries_asks_no_more(tmp_path: Path) -> None:
    """Than thirty, nor than of a thousand. It takes a quarter of an hour to make."""
    counts = {size: _of_grown(tmp_path / str(size), size) for size in (1_000, 1_000_000)}
    assert {path: count for path, count in counts[1_000_000].items() if count > counts[1_000][path]} == {}
    assert max(counts[1_000].values()) <= STATEMENTS_MAX


def _of_grown(folder: Path, size: int) -> dict[str, int]:
    with served_long(size, folder) as book, counted(book.world.book) as requested:
        return {
            path: statements(book.of(page), f"/console{path}".format(size=book.world.size), requested)
            for page, path in PATHS
        }
