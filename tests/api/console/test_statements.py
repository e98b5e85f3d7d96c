"""What a page asks of the database: a bounded number of statements, and as many of a long log as of a short one."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import event

from api.console.view_list import PAGES
from ledger.book.book import Book
from ledger.commands.entry import Entry
from tests.api.console.conftest import Looked
from tests.api.console.page_addresses import addresses
from tests.api.console.visitors import PEOPLE, browser, log_in
from tests.bench.grown import grown
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, LOG_KEY, Clock
from tests.factories.service import open_world
from tests.factories.stored import copy

STATEMENTS_MAX: Final = 30
_RICHEST: Final = {"/operations": "OPERATOR", "/planner": "TDC"}
"""By page, who sees most on it, where that is not the SRO."""
_EACH_OF: Final = {"/": tuple(PEOPLE), "/planner": ("SRO", "TDP", "TDC"), "/merger": ("SRO", "TDP")}
"""Pages that differ most by role."""


@contextmanager
def counted(book: Book) -> Iterator[list[str]]:
    """The statements that reads of a book ask, while the block runs."""
    requested: list[str] = []

    def note(*reported: Any) -> None:  # noqa: ANN401 - SQLAlchemy's own
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
            roles = _EACH_OF.get(page.path, (_RICHEST.get(page.path, "SRO"),))
            count = max(
                statements(looked.browsers[role], addresses(looked.pairs)[page.path], requested) for role in roles
            )
            assert count <= STATEMENTS_MAX, (page.path, count)


GROWN: Final = (
    "/",
    "/datasets",
    f"/datasets/{HOSPITAL}/digits",
    f"/partitions/{HOSPITAL}/digits/2026-q4",
    f"/knowledge/{HOSPITAL}/digits",
    "/runs",
    "/runs?state=pending",
    "/runs/run-0",
    "/decisions",
    "/decisions?kind=post",
    "/decisions/run-0",
    "/contracts",
    "/policies/health",
    f"/lineage/{BANK_A}",
    "/models",
    f"/merger?first={BANK_A}&second={BANK_B}",
    "/log",
    "/log/checkpoints",
    "/log/20",
    "/register",
)


@pytest.mark.soak
def test_a_page_of_ten_thousand_entries_asks_as_much_as_one_of_a_thousand(tmp_path: Path) -> None:
    """And no more than thirty."""
    counts = {size: _of_grown(tmp_path / str(size), size) for size in (1_000, 10_000)}
    assert counts[10_000] == counts[1_000]
    assert max(counts[1_000].values()) <= STATEMENTS_MAX


@pytest.mark.soak
def test_a_page_of_a_million_entries_asks_no_more(tmp_path: Path) -> None:
    """Than thirty, and as many as of a thousand."""
    counts = {size: _of_grown(tmp_path / str(size), size) for size in (1_000, 1_000_000)}
    assert counts[1_000_000] == counts[1_000]


def _of_grown(folder: Path, size: int) -> dict[str, int]:
    folder.mkdir()
    book = copy(grown(size), folder / "book.sqlite")
    clock = Clock(last_time(book))
    with (
        open_world(folder, clock=clock, log_key=LOG_KEY, database=f"sqlite:///{book}") as world,
        world.issuing({"sro": PEOPLE["SRO"]}) as issuer,
        browser(world.url) as http,
        counted(world.book) as requested,
    ):
        log_in(http, issuer, "sro")
        return {path: statements(http, f"/console{path}", requested) for path in GROWN}


def last_time(book: Path) -> int:
    """A time (ms) just after the last entry of a book that no process has open."""
    with sqlite3.connect(book) as connection:
        (data,) = connection.execute("SELECT data FROM entry ORDER BY position DESC LIMIT 1").fetchone()
    connection.close()
    return Entry.parse(bytes(data)).time_after + 1_000
