"""One partition: its accounts under what binds them, the runs that are left, and how its budget was used."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from api.console.charts.burn_down import Point, burn_down, usual_window
from api.console.charts.window import Window, chosen_window
from api.console.frame import cells
from api.console.frame.account_rows import ACCOUNT_COLUMNS, account_cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import dataset, organisation, run
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import accounts, lineage
from api.wire.account_book import AccountBook
from api.wire.account_history import RATE_DAYS, RUNS_MAX, WEEKS_MAX, AccountHistory, Forecast, account_history
from ledger.domain import charge_record
from ledger.domain import facts as domain
from ledger.domain.facts import GLOBAL, holder_of
from ledger.filters import read_rule
from ledger.store.snapshot import Snapshot

PAGES: Final = Pages()
_MINUTE_MS: Final = 60_000


@PAGES.page(
    "/partitions/{provider}/{dataset}/{partition}", "", accounts.read_partition, accounts.read_accounts, slow=True
)
def partition(reader: Reader, inputs: Inputs) -> Page:
    """One partition. Raises: Malformed, Problem."""
    provider, name = inputs.path["provider"], inputs.path["dataset"]
    ref = f"{provider}/{name}/{inputs.path['partition']}"
    answer = reader.read(accounts.read_partition, ref)
    opened = reader.facts.partitions[ref]
    facts = reader.facts
    assert isinstance(facts, Snapshot)
    charges = facts.newest_on(opened.ref, RUNS_MAX)
    held = _account_book(reader, opened, charges)
    history = account_history(facts, opened, reader.view.time, reader.caller, charges)
    points = [Point(run_.time, _exact(run_.epsilon_posted), _exact(run_.epsilon)) for run_ in history.runs]
    forecast = history.forecast
    later = () if forecast is None else forecast.points
    ahead = [(point.time, Fraction(point.epsilon)) for point in later if point.epsilon is not None]
    about = [
        ("Dataset", dataset(provider, name)),
        ("Provider", organisation(reader, provider)),
        ("State", cells.mark(answer.state.replace("_", " "), passed=answer.state == "open")),
        ("Budget", cells.bound(opened.epsilon)),
        ("at δ", cells.bound(opened.delta)),
        ("Level", cells.count(None if held.bounds is None else held.bounds.level)),
        ("Rule", cells.text(read_rule(opened.terms).kind())),
        ("Neighbours", cells.text(f"{opened.unit}, {opened.relation}")),
        ("Closes", cells.moment(answer.closes)),
        ("Entry", cells.count(answer.index, address("log", str(answer.index)))),
    ]
    now, window = reader.view.time, None
    if points:
        window = chosen_window(inputs.get("from"), inputs.get("until"), usual_window(points, now, ahead))
    caps = [("budget", opened.epsilon)]
    if held.bounds is not None and held.bounds.lineage_epsilon_max < opened.epsilon:
        caps.append(("cap on one lineage", held.bounds.lineage_epsilon_max))
    return Page(
        "partition.html",
        f"Partition {opened.ref.rpartition('/')[2]}",
        (_accounts(reader, held), _runs_table(reader, history), _forecast_table(forecast)),
        {
            "about": about,
            "chart": burn_down(points, caps, now, ahead, window),
            "window": None if window is None else window.fields(),
            "every": "" if window is None else _every(ref, points, ahead, now),
            "forecast": None if forecast is None else _forecast_facts(forecast),
            "listed": history.complete,
            "whole": reader.caller.watches(opened),
            "knowledge": address("knowledge", provider, name) if _may_watch(reader, provider) else "",
            "command": shlex.join(["epsilon", "account", "tdp.toml", ref, "--proof", "proof.json"]),
        },
    )


def _every(ref: str, points: Sequence[Point], ahead: Sequence[tuple[int, Fraction]], now: int) -> str:
    """The page with the whole of the time that its chart can show, the extrapolation included."""
    last = max([now, points[-1].time, *(time for time, _ in ahead)])
    first, until = Window(points[0].time, last + _MINUTE_MS).fields()
    return address("partitions", *ref.rsplit("/", 2), **{"from": first, "until": until})


def _may_watch(reader: Reader, provider: str) -> bool:
    """Whether the caller may see who knows what of the provider's data."""
    return reader.may(lineage.read_exposure) and (reader.caller.sees_all or reader.caller.organisation == provider)


def _exact(epsilon: str | None) -> Fraction | None:
    return None if epsilon is None else Fraction(epsilon)


def _account_book(reader: Reader, opened: domain.Partition, charges: list[charge_record.Charge]) -> AccountBook:
    """The accounts as the API shows them, with the newest charge of each lineage known already."""
    newest = {holder_of(charge.author): charge for charge in charges}
    return AccountBook.at(reader.facts, opened, reader.view.time, reader.caller, newest)


def _accounts(reader: Reader, held: AccountBook) -> Table:
    """Everyone's account and the caller's own, each with all that the API says of it."""
    ref = held.partition.ref
    registered = reader.facts.organisations.get(reader.caller.organisation)
    holders = [GLOBAL, *([holder_of(registered.node)] if registered is not None else [])]
    reader.facts.fetch_accounts([ref], holders)
    stored = (reader.facts.accounts.get((ref, holder)) for holder in holders)
    shown = [held.account(account) for account in stored if account is not None]
    rows = tuple(account_cells(account, held.partition.delta) for account in shown)
    return Table(
        "accounts",
        "Everyone's account" + (" and yours" if len(shown) > 1 else ""),
        ACCOUNT_COLUMNS,
        rows,
        "Nothing was charged here yet.",
    )


def _runs_table(reader: Reader, history: AccountHistory) -> Table:
    rows = tuple(
        (
            run(run_.charge),
            organisation(reader, run_.actor),
            cells.moment(run_.time),
            cells.text(run_.state),
            cells.count(run_.steps),
            cells.count(run_.steps_posted),
            cells.loss(run_.epsilon_posted),
            cells.loss(run_.epsilon),
            cells.count(run_.index, address("log", str(run_.index))),
        )
        for run_ in history.runs
    )
    columns = (
        "Run",
        "By",
        "Charged",
        "State",
        "Steps",
        "Posted",
        "ε of what is posted",
        "ε with what is pending",
        "Entry",
    )
    return Table("runs", "Runs, and how they use the budget", columns, rows, "No run that you may see.")


def _forecast_table(forecast: Forecast | None) -> Table:
    rows = () if forecast is None else forecast.points
    return Table(
        "forecast",
        f"An extrapolation of what was posted in the last {RATE_DAYS} days",
        ("At", "ε, if runs go on like that"),
        tuple((cells.moment(point.time), cells.loss(point.epsilon)) for point in rows),
        f"Nothing is extrapolated: nothing was posted in the last {RATE_DAYS} days, or no run is taken here.",
    )


def _forecast_facts(forecast: Forecast) -> list[tuple[str, Cell]]:
    """What the forecast says, in words."""
    until = cells.moment(forecast.room_until)
    if forecast.room_until is None:
        until = cells.text(f"beyond {WEEKS_MAX} weeks")
    return [("Extrapolated from what was posted since", cells.moment(forecast.rate_since)), ("Room until about", until)]
