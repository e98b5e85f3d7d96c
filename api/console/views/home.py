"""The first page: what waits for the caller, and the health of the log."""

from __future__ import annotations

from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.entry_rows import newest_of
from api.console.frame.names import organisation, partition, run
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import accounts, registry
from api.routes import log as log_routes
from ledger.domain.charge_record import Charge
from ledger.domain.roles import SRO, TDC, TDP
from ledger.store.snapshot import Snapshot
from policy.planning.streams.slice_status import OPEN

PAGES: Final = Pages()
SHOWN_MAX: Final = 20
"""Rows of each list on the first page."""
PENDING_MAX: Final = 1_000
"""Pending runs, by deadline, among which those are looked for that the caller may see."""
_EVER: Final = 2**62
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
    registered = reader.facts.organisations.get(reader.caller.organisation)
    command = next((text for role, text in _NEXT.items() if role in reader.caller.roles), "")
    return Page(
        "home.html",
        "Home",
        tuple(tables),
        {"name": None if registered is None else registered.name, "command": command, "health": _health(reader)},
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
    """The pending runs whose deadline comes first."""
    pending = pending_runs(reader, SHOWN_MAX)
    rows = tuple(
        (
            run(charge.id),
            organisation(reader, charge.actor),
            cells.count(len(charge.partitions)),
            cells.count(charge.steps),
            cells.moment(charge.deadline),
            cells.text("released" if charge.key_release else "withheld"),
        )
        for charge in pending
    )
    return Table(
        "pending",
        "Runs that are pending, by deadline",
        ("Run", "By", "Partitions", "Steps charged", "Deadline", "Data key"),
        rows,
        "No run is pending.",
        following=address("runs", state="pending"),
        following_words="All pending runs",
    )


def pending_runs(reader: Reader, most: int) -> list[Charge]:
    """The pending runs that the caller may see, of the first thousand by deadline."""
    facts = reader.facts
    assert isinstance(facts, Snapshot)
    names = facts.due(_EVER, PENDING_MAX)
    facts.charges.fetch_keys(names)
    seen = (facts.charges[name] for name in names)
    return [charge for charge in seen if reader.caller.sees_charge(charge, facts)][:most]


def _announced(reader: Reader) -> Table:
    """The models that were announced last."""
    rows = tuple(
        (run(str(entry.request.get("charge"))), cells.digest(str(entry.request.get("model"))), cells.moment(entry.time))
        for _, entry in newest_of(reader, ("release_notice",))[:SHOWN_MAX]
    )
    return Table(
        "announced",
        "Models that were announced",
        ("Run", "Model", "Announced"),
        rows,
        "No model was announced.",
        following=address("models"),
        following_words="All models",
    )


def _partitions(reader: Reader) -> Table:
    """Partitions that close soon, or that take no run."""
    page = reader.page(accounts.list_partitions, SHOWN_MAX, None)
    soon = reader.view.time + SOON_MS
    rows = tuple(
        (
            partition(item.partition),
            cells.mark(item.state.replace("_", " "), passed=item.state == OPEN),
            cells.moment(item.closes),
        )
        for item in page.items
        if item.state != OPEN or (item.closes is not None and item.closes <= soon)
    )
    return Table(
        "partitions",
        "Partitions that close within two weeks, or take no run",
        ("Partition", "State", "Closes"),
        rows,
        "Every partition on this page of the list is open, and stays so for two weeks.",
        following=address("datasets"),
        following_words="All datasets",
    )


def _contracts(reader: Reader) -> Table:
    page = reader.page(registry.list_contracts, SHOWN_MAX, None)
    rows = tuple(
        (
            cells.text(item.id, address("contracts", item.id)),
            organisation(reader, item.consumer),
            cells.count(item.version),
            cells.moment(item.ends),
            cells.count(item.runs),
        )
        for item in page.items
        if not item.revoked and item.ends > reader.view.time
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
