"""One partition: its accounts under what binds them, the runs that are left, and how its budget was used."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from api.console.charts.burn_down import Point, burn_down
from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import dataset, organisation, run
from api.console.frame.pages import ROWS_MAX, Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import accounts
from api.wire.account_answers import AccountPage
from ledger.domain import facts as domain
from ledger.domain.outcomes import ChargeState
from ledger.filters import Rule, read_rule
from ledger.mechanisms.loss import Loss, loss_of
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
    known = reader.read(accounts.read_partition, ref)
    found = reader.facts.partitions[ref]
    held = reader.page(accounts.read_accounts, ROWS_MAX, inputs.get("cursor"), ref)
    runs = _runs(reader, found)
    points = [Point(one.time, one.counted, one.sum) for one in runs]
    facts = [
        ("Dataset", dataset(provider, name)),
        ("Provider", organisation(reader, provider)),
        ("State", cells.mark(known.state.replace("_", " "), passed=known.state == "open")),
        ("Budget", cells.bound(found.epsilon)),
        ("at δ", cells.bound(found.delta)),
        ("Rule", cells.text(read_rule(found.terms).kind())),
        ("Neighbours", cells.text(f"{found.unit}, {found.relation}")),
        ("Closes", cells.moment(known.closes)),
        ("Entry", cells.count(known.index, address("log", str(known.index)))),
    ]
    caps = [("budget", found.epsilon)]
    if held.bounds is not None and held.bounds.lineage_epsilon_max < found.epsilon:
        caps.append(("cap on one lineage", held.bounds.lineage_epsilon_max))
    return Page(
        "partition.html",
        f"Partition {found.ref.rpartition('/')[2]}",
        (_accounts(held, ref), _runs_table(reader, runs)),
        {
            "about": facts,
            "chart": burn_down(points, caps),
            "whole": reader.caller.watches(found),
            "command": shlex.join(["epsilon", "account", "tdp.toml", ref, "--proof", "proof.json"]),
        },
    )


@dataclass(frozen=True, slots=True)
class RunShown:
    """One run as it counts now: of a pending one all that is charged.

    Attributes:
        sum: of this run and all shown before it.
        counted: without those that are pending.
    """

    charge: domain.Charge
    time: int
    sum: Fraction | None
    counted: Fraction | None


def _runs(reader: Reader, found: domain.Partition) -> list[RunShown]:
    """The newest runs on a partition that the caller may see, each with the odometer of all shown until then."""
    facts = reader.facts
    assert isinstance(facts, Snapshot)
    charges = [one for one in facts.newest_on(found.ref, RUNS_MAX) if reader.caller.sees_charge(one, facts)]
    times, rule = facts.times([one.index for one in charges]), read_rule(found.terms)
    total = settled = Loss.zero(len(rule.coordinates))
    runs = []
    for one in charges:
        steps = one.steps if one.steps_posted is None else one.steps_posted
        price = loss_of(one.price_of(found.ref), steps) if steps else Loss.zero(len(rule.coordinates))
        total += price
        settled = settled if one.state is ChargeState.PENDING else settled + price
        runs.append(RunShown(one, times[one.index], _odometer(rule, total), _odometer(rule, settled)))
    return runs


def _odometer(rule: Rule, loss: Loss) -> Fraction | None:
    """The ε of a loss at the partition's δ; None where none is proven."""
    try:
        return rule.odometer(loss)
    except ArithmeticError:
        return None


def _accounts(held: AccountPage, ref: str) -> Table:
    rows = tuple(
        (
            Cell(one.name, exact=one.holder),
            cells.loss(one.odometer),
            cells.text(one.bound),
            cells.share(one.share.share, str(one.share)),
            cells.text(one.binding or "nothing binds"),
            cells.count(one.runs_like_the_last),
            cells.text(one.closed or "–"),
        )
        for one in held.items
    )
    return Table(
        "accounts",
        "Accounts",
        ("Whose", "ε so far", "Proven by", "Used", "Of what binds", "Runs left", "Closed"),
        rows,
        "Nothing was charged here yet. A consumer asks what a run would get with:",
        "epsilon quote tdc.toml charge.json --contract contract.yaml",
        address("partitions", *ref.rsplit("/", 2), cursor=held.next_cursor) if held.next_cursor else "",
    )


def _runs_table(reader: Reader, runs: list[RunShown]) -> Table:
    rows = tuple(
        (
            run(one.charge.id),
            organisation(reader, one.charge.actor),
            cells.moment(one.time),
            cells.text(one.charge.state.value),
            cells.count(one.charge.steps),
            cells.count(one.charge.steps_posted),
            cells.loss(one.counted),
            cells.loss(one.sum),
            cells.count(one.charge.index, address("log", str(one.charge.index))),
        )
        for one in runs
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
