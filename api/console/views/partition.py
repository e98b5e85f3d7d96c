"""One partition: its accounts under what binds them, the runs that are left, and how its budget was used."""

from __future__ import annotations

import shlex
from typing import Final

from api.console.charts.burn_down import Point, burn_down
from api.console.charts.run_sums import RunSum, run_sums
from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import dataset, organisation, run
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import accounts, lineage
from api.wire.account_book import AccountBook
from ledger.domain import charge_record
from ledger.domain import facts as domain
from ledger.domain.facts import GLOBAL, holder_of
from ledger.domain.outcomes import ChargeState
from ledger.filters import read_rule
from ledger.store.snapshot import Snapshot

PAGES: Final = Pages()
RUNS_MAX: Final = 200
"""Newest runs of one partition that a page draws."""


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
    counted = [charge for charge in charges if charge.state is not ChargeState.VOIDED]
    runs = run_sums(opened, [charge for charge in counted if reader.caller.sees_charge(charge, facts)], facts)
    points = [Point(run_.time, run_.counted, run_.sum) for run_ in runs]
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
    caps = [("budget", opened.epsilon)]
    if held.bounds is not None and held.bounds.lineage_epsilon_max < opened.epsilon:
        caps.append(("cap on one lineage", held.bounds.lineage_epsilon_max))
    return Page(
        "partition.html",
        f"Partition {opened.ref.rpartition('/')[2]}",
        (_accounts(reader, held), _runs_table(reader, runs)),
        {
            "about": about,
            "chart": burn_down(points, caps, reader.view.time),
            "whole": reader.caller.watches(opened),
            "knowledge": address("knowledge", provider, name) if _may_watch(reader, provider) else "",
            "command": shlex.join(["epsilon", "account", "tdp.toml", ref, "--proof", "proof.json"]),
        },
    )


def _may_watch(reader: Reader, provider: str) -> bool:
    """Whether the caller may see who knows what of the provider's data."""
    return reader.may(lineage.read_exposure) and (reader.caller.sees_all or reader.caller.organisation == provider)


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
    rows = tuple(
        (
            Cell(account.name, exact=account.holder),
            cells.loss(account.odometer),
            cells.text(account.bound),
            cells.share(account.share.share, str(account.share)),
            cells.text(account.binding or "nothing binds"),
            cells.count(account.runs_like_the_last),
            cells.text(account.closed or "–"),
        )
        for account in shown
    )
    return Table(
        "accounts",
        "Everyone's account" + (" and yours" if len(shown) > 1 else ""),
        ("Whose", "ε so far", "Proven by", "Used", "Of what binds", "Runs left", "Closed"),
        rows,
        "Nothing was charged here yet. A consumer previews a run with:",
        "epsilon quote tdc.toml charge.json --contract contract.yaml",
    )


def _runs_table(reader: Reader, runs: list[RunSum]) -> Table:
    rows = tuple(
        (
            run(run_.charge.id),
            organisation(reader, run_.charge.actor),
            cells.moment(run_.time),
            cells.text(run_.charge.state.value),
            cells.count(run_.charge.steps),
            cells.count(run_.charge.steps_posted),
            cells.loss(run_.counted),
            cells.loss(run_.sum),
            cells.count(run_.charge.index, address("log", str(run_.charge.index))),
        )
        for run_ in runs
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
