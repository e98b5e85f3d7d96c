"""Runs: their charges in their states, how far they are, and what each reveals."""

from __future__ import annotations

from typing import Final, Literal

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import organisation, partition, run
from api.console.frame.pages import ROWS_MAX, Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table, first_of
from api.console.views.live.run_frame import run_frame
from api.routes import accounts
from api.routes.overviews.inbox import pending_runs
from api.wire.charge_answers import Charge, ChargeWithProgress
from ledger.accounts.run_epsilon import RunEpsilon

PAGES: Final = Pages()
_STATES: Final[dict[str, Literal["pending", "posted", "voided"]]] = {
    "pending": "pending",
    "posted": "posted",
    "voided": "voided",
}
PARTITIONS_MAX: Final = 100
"""Partitions of one run that its page lists."""


@PAGES.page("/runs", "Runs", accounts.list_charges)
def runs(reader: Reader, inputs: Inputs) -> Page:
    """The runs that the caller may see. Raises: Malformed, Problem."""
    state = _STATES.get(inputs.get("state") or "")
    cursor = inputs.get("cursor")
    following = ""
    if state == "pending":
        # By deadline, out of an index: to look through all charges for the few that are pending takes long.
        shown = [Charge.of_record(charge) for charge in pending_runs(reader.view, ROWS_MAX)]
    else:
        page = reader.page(accounts.list_charges, ROWS_MAX, cursor, state=state)
        shown = [*page.items]
        following = address("runs", state=state, cursor=page.next_cursor) if page.next_cursor else ""
    rows = tuple(
        (
            run(item.id),
            organisation(reader, item.actor),
            cells.text(item.state),
            cells.count(len(item.partitions)),
            cells.count(item.steps),
            cells.count(item.steps_posted),
            cells.moment(item.deadline),
            cells.count(item.index, address("log", str(item.index))),
        )
        for item in shown
    )
    columns = ("Run", "By", "State", "Partitions", "Steps charged", "Steps posted", "Deadline", "Entry")
    table = Table("runs", "Runs", columns, rows, "No run that you may see. A consumer charges one.", following)
    return Page("runs.html", "Runs", (table,), {"states": _STATES, "chosen": state or ""})


@PAGES.page("/runs/{id}", "", accounts.read_charge, accounts.read_charge_epsilon, slow=True)
def run_page(reader: Reader, inputs: Inputs) -> Page:
    """One run. Raises: Malformed, Problem."""
    answer = reader.read(accounts.read_charge, inputs.path["id"])
    values = {"about": _facts(reader, answer), "known": answer}
    return Page("run.html", f"Run {answer.id}", (_epsilon_table(reader, answer.id),), values)


@PAGES.page("/runs/{id}/live", "", accounts.read_charge, accounts.read_charge_epsilon, slow=True)
def live_run(reader: Reader, inputs: Inputs) -> Page:
    """One run as it goes on. Raises: Malformed, Problem."""
    answer = reader.read(accounts.read_charge, inputs.path["id"])
    charge = reader.facts.charges[answer.id]
    frame = run_frame(charge, reader.view.context.progress.paced(charge.id), reader.view.time)
    values = {"frame": frame, "frames": address("runs", charge.id, "frames"), "run": charge.id}
    return Page("live.html", f"Run {charge.id}, live", (_epsilon_table(reader, charge.id),), values)


def _epsilon_table(reader: Reader, charge: str) -> Table:
    """The ε of a run by its whole plan, alone and with its ancestry. Raises: Malformed, Problem."""
    found = reader.read(accounts.read_charge_epsilon, charge)
    rows = [_line(line, "the run alone") for line in found.run_epsilon]
    rows += [_line(line, f"with its ancestry, {line.runs} runs") for line in found.with_ancestry]
    return Table(
        "epsilon",
        first_of("What it reveals", len(rows), PARTITIONS_MAX),
        ("Partition", "Of", "ε", "at δ", "Proven by", "Unit", "Neighbours"),
        tuple(rows[:PARTITIONS_MAX]),
        "No ε is proven of it.",
    )


def _facts(reader: Reader, known: ChargeWithProgress) -> list[tuple[str, Cell]]:
    now, progress = reader.view.time, known.progress
    facts = [
        ("State", cells.text(known.state)),
        ("By", organisation(reader, known.actor)),
        ("Contract", _contract(reader, known.contract)),
        ("Steps charged", cells.count(known.steps)),
        ("Steps posted", cells.count(known.steps_posted)),
        ("Deadline", cells.moment(known.deadline)),
        ("Data key", cells.text("released" if known.key_release else "withheld")),
        ("Entry", cells.count(known.index, address("log", str(known.index)))),
    ]
    if known.state == "pending" and progress is not None:
        facts.append(("Steps done", cells.count(progress.steps)))
        # A finer age would follow the time of single steps.
        facts.append(("Last report", cells.text(f"{max(0, now - progress.time) // 60_000} min ago")))
    if known.leases is not None:
        facts.append(("Steps leased", cells.count(known.leases.steps)))
    if known.model is not None:
        facts.append(("Model", cells.digest(known.model)))
    return facts


def _contract(reader: Reader, digest: str) -> Cell:
    """The contract of a run by its id, where the reader sees it; its digest is behind it, and alone elsewhere."""
    agreed = reader.facts.contracts.get(digest)
    if agreed is None or not reader.caller.sees_contract(agreed, reader.facts):
        return cells.digest(digest)
    return Cell(agreed.id, exact=digest, href=address("contracts", agreed.id))


def _line(line: RunEpsilon, words: str) -> tuple[Cell, ...]:
    return (
        partition(line.partition),
        cells.text(words),
        cells.loss(line.epsilon),
        cells.bound(line.delta),
        cells.text(line.accountant),
        cells.text(line.unit),
        cells.text(line.relation),
    )
