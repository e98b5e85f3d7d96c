"""Operations: whether the service takes commands, and how it is used, for its operator."""

from __future__ import annotations

from typing import Final

from api.console.frame import cells
from api.console.frame.cells import Cell
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.console.views.log import witnesses
from api.routes import log as log_routes
from ledger.store.snapshot import Snapshot
from ledger.store.tables import SCHEMA_REVISION

PAGES: Final = Pages()
DUE_MAX: Final = 1_000
"""Charges past their deadline that are counted, and pending ones that are looked at."""
_EVER: Final = 2**62


@PAGES.page("/operations", "Operations", "read_metrics")
def operations(reader: Reader, _inputs: Inputs) -> Page:
    """The state of the service. Raises: Problem."""
    facts, now = reader.facts, reader.view.time
    assert isinstance(facts, Snapshot)
    book = reader.view.context.snapshots.book
    deadline, due = facts.next_deadline(), facts.due(now, DUE_MAX)
    checkpoint = bytes(reader.read(log_routes.read_checkpoint).body).decode() if facts.size else ""
    rows: list[tuple[Cell, ...]] = [
        (cells.text("Takes commands"), _state(book.stopped, book.paused, book.difference)),
        (cells.text("Entries"), cells.count(facts.size)),
        (cells.text("Size of the database, in bytes"), cells.count(facts.stored_bytes)),
        (cells.text("Time of the last entry"), cells.moment(facts.time or None)),
        (cells.text("Time of the service"), cells.moment(now)),
        (cells.text("Schema of the book"), cells.text(SCHEMA_REVISION)),
        (cells.text("Oldest of the runs that are pending"), _oldest(facts)),
        (cells.text("Next deadline of a run"), cells.moment(deadline)),
        (cells.text("Runs past their deadline, not yet settled"), cells.count(len(due))),
        (cells.text("Commands that wait to be decided"), cells.count(book.waiting)),
        (cells.text("Witnesses of the newest checkpoint"), cells.text(", ".join(witnesses(checkpoint)) or "none")),
    ]
    table = Table("state", "State of the service", ("What", "Value"), tuple(rows))
    return Page("operations.html", "Operations", (table,))


def _oldest(facts: Snapshot) -> Cell:
    """When the oldest was charged, of the first thousand by deadline."""
    names = facts.due(_EVER, DUE_MAX)
    facts.charges.fetch_keys(names)
    first = min((facts.charges[name].index for name in names), default=None)
    return cells.text("none") if first is None else cells.moment(facts.times([first])[first])


def _state(stopped: object, paused: str | None, difference: str | None) -> Cell:
    if stopped is not None:
        return cells.mark("stopped: restart it; its log says why", passed=False)
    if difference is not None:
        return cells.mark("stopped: a row differs from its entries; its log names it", passed=False)
    return cells.mark(f"paused: {paused}", passed=False) if paused is not None else cells.mark("yes", passed=True)
