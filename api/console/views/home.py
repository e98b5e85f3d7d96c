"""The first page: what waits for the caller, and the health of the log."""

from __future__ import annotations

from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import organisation, partition, run
from api.console.frame.next_commands import next_command
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.console.views.contracts import proposals_table
from api.routes import accounts, registry
from api.routes import log as log_routes
from api.routes.overviews import inbox as inbox_routes
from api.routes.overviews.contract_proposals import list_contract_proposals
from api.routes.overviews.inbox import PAUSED, RUNNING, STOPPED, Inbox, log_state
from policy.planning.streams.slice_status import OPEN

PAGES: Final = Pages()
SHOWN_MAX: Final = 20
"""Rows of each list on the first page."""
_STATES: Final = {
    RUNNING: ("takes commands", True),
    PAUSED: ("paused: its clock is not believed", False),
    STOPPED: ("stopped: its operator knows why", False),
}


@PAGES.page("/", "Home")
def home(reader: Reader, _inputs: Inputs) -> Page:
    """What waits for the caller. Raises: Problem."""
    tables, inbox = list[Table](), None
    if reader.may(inbox_routes.read_inbox):
        inbox = reader.read(inbox_routes.read_inbox)
        tables += [_alerts(inbox), _frozen(inbox)]
    if inbox is not None and reader.may(list_contract_proposals):
        tables.append(proposals_table(reader, inbox.to_sign, "Contracts that wait for your signature"))
    if inbox is not None and reader.may(accounts.list_charges):
        tables += [_pending(reader, inbox), _announced(inbox)]
    if inbox is not None:
        tables.append(_partitions(inbox))
    if reader.may(registry.list_contracts):
        tables.append(_contracts(reader))
    registered = reader.facts.organisations.get(reader.caller.organisation)
    return Page(
        "home.html",
        "Home",
        tuple(tables),
        {
            "cut": () if inbox is None else inbox.cut,
            "complete": inbox is None or inbox.complete,
            "name": None if registered is None else registered.name,
            "next": next_command("", reader.caller.roles),
            "health": _health(reader),
        },
    )


def _health(reader: Reader) -> list[tuple[str, Cell]]:
    words, passed = _STATES[log_state(reader.view).state]
    state = cells.mark(words, passed=passed)
    return [
        (
            "The log",
            cells.text(reader.view.context.log.origin, address("log") if reader.may(log_routes.list_decisions) else ""),
        ),
        ("Entries", cells.count(reader.facts.size)),
        ("The service", state),
    ]


def _pending(reader: Reader, inbox: Inbox) -> Table:
    """The pending runs whose deadline comes first."""
    rows = tuple(
        (
            run(pending.charge),
            organisation(reader, pending.actor),
            cells.count(pending.partitions),
            cells.count(pending.steps),
            cells.moment(pending.deadline),
            cells.text("released" if pending.key_release else "withheld"),
        )
        for pending in inbox.due
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


def _alerts(inbox: Inbox) -> Table:
    """The thresholds of accounts that were crossed last."""
    rows = tuple(
        (
            Cell(alert.name, exact=alert.holder),
            partition(alert.partition),
            cells.share(alert.share),
            cells.moment(entry.time),
            cells.count(entry.index, address("log", str(entry.index))),
        )
        for entry in inbox.alerts
        for alert in entry.alerts
    )
    columns = ("Whose account", "Partition", "Reached", "Time", "Entry")
    return Table("alerts", "Budget alerts, newest first", columns, rows, "No account reached a threshold of a policy.")


def _frozen(inbox: Inbox) -> Table:
    """Accounts over their cap."""
    rows = tuple(
        (
            Cell(account.name, exact=account.holder),
            partition(account.partition),
            cells.share(account.used.share, str(account.used)),
            cells.bound(account.epsilon_max),
        )
        for account in inbox.frozen
    )
    columns = ("Whose account", "Partition", "Used", "Cap in ε")
    return Table("frozen", "Accounts over their cap", columns, rows, "No account is over its cap.")


def _announced(inbox: Inbox) -> Table:
    """The models that were announced last."""
    rows = tuple((run(model.charge), cells.digest(model.model), cells.moment(model.time)) for model in inbox.announced)
    return Table(
        "announced",
        "Models that were announced",
        ("Run", "Model", "Announced"),
        rows,
        "No model was announced.",
        following=address("models"),
        following_words="All models",
    )


def _partitions(inbox: Inbox) -> Table:
    """Partitions that close soon, or that take no run."""
    rows = tuple(
        (
            partition(closing.partition),
            cells.mark(closing.state.replace("_", " "), passed=closing.state == OPEN),
            cells.moment(closing.closes),
        )
        for closing in inbox.closing
    )
    looked = "Every partition" if inbox.complete else "Every one of the first partitions"
    return Table(
        "partitions",
        "Partitions that close within two weeks, or take no run",
        ("Partition", "State", "Closes"),
        rows,
        f"{looked} is open, and stays so for two weeks.",
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
        "No contract is in force.",
        address("contracts") if page.next_cursor else "",
    )
