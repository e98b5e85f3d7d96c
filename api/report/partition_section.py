"""What a report says of one partition: its accounts in ε and in units, how runs used it, and the runs themselves."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from markupsafe import Markup

from api.auth.authorisation import Caller
from api.console.charts.burn_down import Point, burn_down
from api.console.charts.run_sums import RunSum, run_sums
from api.console.frame import cells
from api.console.frame.account_rows import ACCOUNT_COLUMNS, account_cells
from api.console.frame.cells import Cell
from api.console.frame.tables import Table
from api.report.evidence import EVERY, Evidence
from api.wire.account_book import AccountBook
from ledger.domain import facts as domain
from ledger.domain.charge_record import Charge
from ledger.domain.facts import GLOBAL
from ledger.domain.outcomes import ChargeState
from ledger.domain.roles import AUDITOR
from ledger.filters import read_rule

READER: Final = Caller("", (AUDITOR,))
"""Who has the book's file sees all of it."""
ACCOUNTS_MAX: Final = 50
RUNS_MAX: Final = 100
"""Of one partition: the fullest accounts, and the newest runs."""
_UNIT_COLUMNS: Final = ("Whose", "Posted", "Pending", "Proof")
_RUN_COLUMNS: Final = (
    "Run",
    "By",
    "Charged",
    "State",
    "Steps",
    "Posted",
    "ε of what is posted",
    "ε with what is pending",
    "Charge",
    "Settled by",
    "Model released by",
)


@dataclass(frozen=True, slots=True)
class PartitionSection:
    """One partition of a report.

    Attributes:
        about: names and values.
        chart: how runs used the budget; None before the first.
        used: the share of everyone's account, for the order of the sections.
        left_out: what the tables do not list, in words.
    """

    name: str
    about: tuple[tuple[str, Cell], ...]
    tables: tuple[Table, ...]
    chart: Markup | None
    used: Fraction
    left_out: tuple[str, ...]


def partition_section(evidence: Evidence, found: domain.Partition, charges: list[Charge], now: int) -> PartitionSection:
    """What the book says of a partition at a time (ms).

    Args:
        charges: those that name it, none of them voided, the oldest first.
    """
    book = evidence.book
    held = AccountBook.at(book, found, now, READER, _newest(charges))
    accounts = _fullest(held, [one for (ref, _), one in book.accounts.items() if ref == found.ref])
    every = run_sums(found, charges, book)
    runs = every[-RUNS_MAX:]
    caps = [("budget", found.epsilon)]
    if held.bounds is not None and held.bounds.lineage_epsilon_max < found.epsilon:
        caps.append(("cap on one lineage", held.bounds.lineage_epsilon_max))
    whole = book.accounts.get((found.ref, GLOBAL))
    rule = read_rule(found.terms)
    return PartitionSection(
        found.ref.rpartition("/")[2],
        partition_facts(evidence, found),
        (
            _accounts(evidence, held, accounts[:ACCOUNTS_MAX]),
            _units(evidence, found, accounts[:ACCOUNTS_MAX]),
            _runs(evidence, found, runs),
        ),
        burn_down([Point(one.time, one.counted, one.sum) for one in runs], caps, now),
        Fraction(0) if whole is None else rule.share(whole.loss, rule.cap(found.epsilon)),
        tuple(
            words
            for more, words in (
                (len(accounts) - ACCOUNTS_MAX, "lineages with less are not listed"),
                (len(every) - RUNS_MAX, "older runs are counted in every number, and not listed"),
            )
            if more > 0
            for words in (f"{more} {words}",)
        ),
    )


def partition_facts(evidence: Evidence, found: domain.Partition) -> tuple[tuple[str, Cell], ...]:
    """What was fixed when a partition opened."""
    opened = ("body", "request")
    return (
        ("Budget ε", evidence.cited(cells.bound(found.epsilon), found.index, *opened, "epsilon")),
        ("at δ", evidence.cited(cells.bound(found.delta), found.index, *opened, "delta")),
        ("Records, at least", evidence.cited(cells.count(found.records), found.index, *opened, "records")),
        ("Protects", evidence.cited(cells.text(found.unit), found.index, *opened, "unit")),
        ("Neighbours", evidence.cited(cells.text(found.relation), found.index, *opened, "relation")),
        ("Rule", cells.text(read_rule(found.terms).kind())),
        ("Opened", evidence.moment(found.opened, found.index)),
        ("Entry", evidence.entry(found.index)),
    )


def _newest(charges: list[Charge]) -> dict[str, Charge]:
    return {domain.holder_of(one.author): one for one in charges}


def _fullest(held: AccountBook, accounts: list[domain.Account]) -> list[domain.Account]:
    """Everyone's first, then those of which most is used."""
    rule = read_rule(held.partition.terms)
    cap = rule.cap(held.partition.epsilon)
    return sorted(accounts, key=lambda one: (one.holder != GLOBAL, -rule.share(one.loss, cap), one.holder))


def _accounts(evidence: Evidence, held: AccountBook, accounts: list[domain.Account]) -> Table:
    shown = map(held.account, accounts)
    found = held.partition
    rows = tuple((*account_cells(account, found.delta), evidence.account(found, account.holder)) for account in shown)
    empty = "No run was charged here: the whole budget is left."
    return Table(f"{found.index}-accounts", "Who knows how much", (*ACCOUNT_COLUMNS, "Proof"), rows, empty)


def _units(evidence: Evidence, found: domain.Partition, accounts: list[domain.Account]) -> Table:
    rows = tuple(
        (
            cells.text(one.holder),
            evidence.loss(found, one.holder, one.posted, "posted"),
            evidence.loss(found, one.holder, one.pending, "pending"),
            evidence.account(found, one.holder),
        )
        for one in accounts
    )
    return Table(f"{found.index}-units", "The same in the rule's units, which the proofs are of", _UNIT_COLUMNS, rows)


def _runs(evidence: Evidence, found: domain.Partition, runs: list[RunSum]) -> Table:
    rows = tuple(_run(evidence, one) for one in runs)
    return Table(f"{found.index}-runs", "Runs, and how they use the budget", _RUN_COLUMNS, rows, "No run.")


def _run(evidence: Evidence, one: RunSum) -> tuple[Cell, ...]:
    book, charge = evidence.book, one.charge
    settled = book.settled.get(charge.id)
    return (
        evidence.cited(cells.text(charge.id), charge.index, "id"),
        organisation(evidence, charge.actor),
        evidence.moment(one.time, charge.index),
        cells.text(charge.state.value),
        evidence.cited(cells.count(charge.steps), charge.index, "body", "prices", charge.prices[0][0], EVERY, "steps"),
        evidence.cited(cells.count(charge.steps_posted), settled, "body", "request", "steps"),
        cells.loss(one.counted),
        cells.loss(one.sum),
        evidence.entry(charge.index),
        evidence.entry(settled if charge.state is not ChargeState.PENDING else None),
        evidence.entry(book.released.get(charge.id)),
    )


def organisation(evidence: Evidence, did: str) -> Cell:
    """An organisation by its name, as the entry that registered it has it."""
    known = evidence.book.organisations.get(did)
    if known is None:
        return cells.text(did)
    # The exact value behind a name on other pages is the DID; here it is what the entry proves.
    return evidence.cited(cells.text(known.name), known.index, "body", "request", "name")
