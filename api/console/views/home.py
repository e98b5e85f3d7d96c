"""The first page: what waits for whoever looks, and the health of the log."""

from __future__ import annotations

from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import organisation, partition, run
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import accounts, registry
from api.routes import log as log_routes
from api.wire.charge_answers import Charge
from ledger.domain.roles import SRO, TDC, TDP
from policy.planning.streams.slice_status import OPEN

PAGES: Final = Pages()
SHOWN_MAX: Final = 20
"""Rows of each list on the first page."""
SOON_MS: Final = 14 * 86_400_000
"""A partition that closes within this time is shown."""
_NEXT: Final = {
    SRO: "epsilon policy impact sro.toml policy.yaml",
    TDP: "epsilon dataset register tdp.toml dataset.yaml",
    TDC: "epsilon quote tdc.toml charge.json --contract contract.yaml",
}
"""What a role begins with."""


@PAGES.page("/", "Home")
def home(reader: Reader, _inputs: Inputs) -> Page:
    """What waits for the caller. Raises: Problem."""
    tables = []
    if reader.may(accounts.list_charges):
        tables += [_pending(reader), _announced(reader)]
    if reader.may(accounts.list_partitions):
        tables.append(_partitions(reader))
    if reader.may(registry.list_contracts):
        tables.append(_contracts(reader))
    known = reader.facts.organisations.get(reader.caller.organisation)
    command = next((text for role, text in _NEXT.items() if role in reader.caller.roles), "")
    return Page(
        "home.html",
        "Home",
        tuple(tables),
        {"name": None if known is None else known.name, "command": command, "health": _health(reader)},
    )


def _health(reader: Reader) -> list[tuple[str, Cell]]:
    book = reader.view.context.snapshots.book
    paused, difference = book.paused, book.difference
    state = cells.mark("takes commands", passed=True)
    if book.stopped is not None or difference is not None:
        state = cells.mark("stopped: its operator knows why", passed=False)
    elif paused is not None:
        state = cells.mark("paused: its clock is not believed", passed=False)
    return [
        (
            "The log",
            cells.text(reader.view.context.log.origin, address("log") if reader.may(log_routes.list_decisions) else ""),
        ),
        ("Entries", cells.count(reader.facts.size)),
        ("The service", state),
    ]


def _pending(reader: Reader) -> Table:
    page = reader.page(accounts.list_charges, SHOWN_MAX, None, state="pending")
    rows = tuple(_charge_row(reader, one) for one in page.items)
    return Table(
        "pending",
        "Runs that are pending",
        ("Run", "By", "Partitions", "Steps charged", "Deadline", "Data key"),
        rows,
        "No run is pending.",
        following=address("runs", state="pending") if page.next_cursor else "",
    )


def _charge_row(reader: Reader, one: Charge) -> tuple[Cell, ...]:
    return (
        run(one.id),
        organisation(reader, one.actor),
        cells.count(len(one.partitions)),
        cells.count(one.steps),
        cells.moment(one.deadline),
        cells.text("released" if one.key_release else "withheld"),
    )


def _announced(reader: Reader) -> Table:
    """Models that their clean rooms announced, whose release is not on record."""
    page = reader.page(accounts.list_charges, SHOWN_MAX, None, state="posted")
    found = [reader.facts.charges[one.id] for one in page.items]
    rows = tuple(
        (run(one.id), cells.digest(model), cells.moment(since)) for one in found for model, since in one.notices
    )
    return Table(
        "announced",
        "Models that were announced",
        ("Run", "Model", "Announced"),
        rows,
        "No model was announced.",
        following=address("models"),
    )


def _partitions(reader: Reader) -> Table:
    """Partitions that close soon, or that take no run."""
    page = reader.page(accounts.list_partitions, SHOWN_MAX, None)
    soon = reader.view.time + SOON_MS
    rows = tuple(
        (
            partition(one.partition),
            cells.mark(one.state.replace("_", " "), passed=one.state == OPEN),
            cells.moment(one.closes),
        )
        for one in page.items
        if one.state != OPEN or (one.closes is not None and one.closes <= soon)
    )
    return Table(
        "partitions",
        "Partitions that close within two weeks, or take no run",
        ("Partition", "State", "Closes"),
        rows,
        "Every partition on this page of the list is open, and stays so for two weeks.",
        following=address("datasets"),
    )


def _contracts(reader: Reader) -> Table:
    page = reader.page(registry.list_contracts, SHOWN_MAX, None)
    rows = tuple(
        (
            cells.text(one.id, address("contracts", one.id)),
            organisation(reader, one.consumer),
            cells.count(one.version),
            cells.moment(one.ends),
            cells.count(one.runs),
        )
        for one in page.items
        if not one.revoked and one.ends > reader.view.time
    )
    return Table(
        "contracts",
        "Contracts that are not over",
        ("Contract", "Consumer", "Version", "Ends", "Runs charged"),
        rows,
        "No contract is in force. A provider signs one with:",
        "epsilon contract sign tdp.toml contract.yaml > tdp.jws",
        address("contracts") if page.next_cursor else "",
    )
