"""Operations: whether the service takes commands, and how it is used, for its operator."""

from __future__ import annotations

from typing import Final

from api.console.frame import cells
from api.console.frame.cells import Cell
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import log as log_routes
from ledger.store.snapshot import Snapshot

PAGES: Final = Pages()
DUE_MAX: Final = 1_000
"""Charges past their deadline that are counted."""


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
        (cells.text("Time of the last entry"), cells.moment(facts.time or None)),
        (cells.text("Time of the service"), cells.moment(now)),
        (cells.text("Next deadline of a run"), cells.moment(deadline)),
        (cells.text("Runs past their deadline, not yet settled"), cells.count(len(due))),
        (cells.text("Cosignatures of the newest checkpoint"), cells.count(max(0, checkpoint.count("\n— ") - 1))),
    ]
    table = Table("state", "State of the service", ("What", "Value"), tuple(rows))
    return Page("operations.html", "Operations", (table,))


def _state(stopped: object, paused: str | None, difference: str | None) -> Cell:
    if stopped is not None:
        return cells.mark("stopped: restart it; its log says why", passed=False)
    if difference is not None:
        return cells.mark("stopped: a row differs from its entries; its log names it", passed=False)
    return cells.mark(f"paused: {paused}", passed=False) if paused is not None else cells.mark("yes", passed=True)
