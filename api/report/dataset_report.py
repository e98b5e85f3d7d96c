"""What a report says of one dataset at one size of its log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Final, NamedTuple

from markupsafe import Markup

from api.console.charts.tradeoff import tradeoff
from api.console.frame import cells
from api.console.frame.cells import Cell
from api.console.frame.tables import Table
from api.console.views.meaning import advantage, growth, true_positives
from api.report.evidence import Evidence
from api.report.partition_section import PartitionSection, organisation, partition_section
from ledger.domain import facts as domain
from ledger.domain.charge_record import Charge
from ledger.domain.exit_codes import ExitCode
from ledger.domain.facts import GLOBAL
from ledger.domain.outcomes import ChargeState
from policy.decisions.documents_in_force import policy_in_force, read_contract
from policy.planning.account_caps import account_status, empty_account, partition_bounds
from policy.planning.streams.slice_status import OPEN, slice_status

PARTITIONS_MAX: Final = 500
DETAILED_MAX: Final = 24
"""Partitions that a report lists, and those of them that have a section of their own: the fullest."""
CONTRACTS_MAX: Final = 200
_RATES: Final = tuple(Fraction(1, one) for one in (1000, 100, 20, 10, 4, 2))
_PARTITION_COLUMNS: Final = (
    "Partition",
    "State",
    "Opened",
    "Closes",
    "Records",
    "Budget ε",
    "at δ",
    "Used by everyone",
    "Cap on one lineage",
    "Entry",
)
_CONTRACT_COLUMNS: Final = (
    "Contract",
    "Version",
    "Consumer",
    "Purpose",
    "ε of one run",
    "Runs, at most",
    "Charged",
    "State",
    "Entry",
)


class Subject(NamedTuple):
    """What a report is about: a dataset at a moment (ms), of which policies in force, ages and deadlines are."""

    provider: str
    dataset: str
    time: int


@dataclass(frozen=True, slots=True)
class DatasetReport:
    """One report.

    Attributes:
        about: names and values.
        meaning: what the greatest ε so far means, with its chart; None where no ε is proven, or there is none.
        left_out: what it does not list, in words.
    """

    of: Subject
    about: tuple[tuple[str, Cell], ...]
    partitions: Table
    contracts: Table
    sections: tuple[PartitionSection, ...]
    meaning: tuple[Table, Markup] | None
    left_out: tuple[str, ...]

    @property
    def tables(self) -> tuple[Table, ...]:
        """Every table, in the order of the page."""
        odds = () if self.meaning is None else (self.meaning[0],)
        return (self.partitions, self.contracts, *odds, *(one for each in self.sections for one in each.tables))


class UnknownDataset(LookupError):  # noqa: N818 - what is the case
    """The book has no such dataset at that size."""

    exit_code: Final = ExitCode.NOT_FOUND


def dataset_report(evidence: Evidence, subject: Subject) -> DatasetReport:
    """What the book says of a dataset. Raises: UnknownDataset."""
    book, (provider, dataset, now) = evidence.book, subject
    known = book.datasets.get((provider, dataset))
    if known is None:
        raise UnknownDataset(f"the first {book.size} entries register no dataset {provider}/{dataset}")
    partitions = sorted(
        (one for one in book.partitions.values() if (one.provider, one.dataset) == (provider, dataset)),
        key=lambda one: one.index,
    )
    charges = _charges(book.charges.values(), {one.ref for one in partitions})
    used = {one.ref: _used(evidence, one, now) for one in partitions}
    fullest = sorted(partitions, key=lambda one: (-(used[one.ref] or Fraction(10**9)), -one.index))[:DETAILED_MAX]
    sections = [partition_section(evidence, one, charges.get(one.ref, []), now) for one in _ordered(fullest)]
    listed, contracts = partitions[-PARTITIONS_MAX:], _contracts(evidence, provider, dataset)
    return DatasetReport(
        subject,
        _about(evidence, known, charges, now),
        _partitions(evidence, listed, now),
        contracts[0],
        tuple(sections),
        _meaning(partitions),
        tuple(
            f"{more} {words}"
            for more, words in (
                (len(partitions) - len(listed), "older partitions are not listed"),
                (len(partitions) - len(sections), "partitions of which less is used have no section of their own"),
                (contracts[1], "older contracts are not listed"),
            )
            if more > 0
        ),
    )


def _ordered(partitions: list[domain.Partition]) -> list[domain.Partition]:
    return sorted(partitions, key=lambda one: one.index)


def _charges(charges: Iterable[Charge], refs: set[str]) -> dict[str, list[Charge]]:
    """By partition of the dataset, the charges that count on it, the oldest first."""
    found: dict[str, list[Charge]] = {}
    for one in sorted(charges, key=lambda each: each.index):
        if one.state is not ChargeState.VOIDED:
            for ref in refs.intersection(one.partitions):
                found.setdefault(ref, []).append(one)
    return found


def _used(evidence: Evidence, found: domain.Partition, now: int) -> Fraction | None:
    """The share that everyone has used; None where it has no number."""
    book = evidence.book
    account = book.accounts.get((found.ref, GLOBAL)) or empty_account(found, GLOBAL)
    return account_status(book, account, partition_bounds(book, found, now)).used.share


def _about(
    evidence: Evidence, known: domain.Dataset, charges: dict[str, list[Charge]], now: int
) -> tuple[tuple[str, Cell], ...]:
    book = evidence.book
    runs = {one.id: one for each in charges.values() for one in each}
    return (
        ("Provider", organisation(evidence, known.provider)),
        ("Dataset", evidence.cited(cells.text(known.dataset), known.index, "body", "header", "id")),
        ("Registered by entry", evidence.entry(known.index)),
        *_policy(evidence, policy_in_force(book, known.domain, now)),
        ("Runs posted", cells.count(sum(one.state is ChargeState.POSTED for one in runs.values()))),
        ("Runs pending", cells.count(sum(one.state is ChargeState.PENDING for one in runs.values()))),
        ("Models released", cells.count(sum(one in book.released for one in runs))),
    )


def _policy(evidence: Evidence, policy: domain.PolicyVersion | None) -> list[tuple[str, Cell]]:
    if policy is None:
        return [("Policy in force", cells.text("none: no run is permitted"))]
    evidence.document(policy.document)
    digest = evidence.cited(cells.digest(policy.document), policy.index, "body", "request", "document")
    return [
        ("Policy in force", evidence.cited(cells.text(policy.domain), policy.index, "body", "header", "domain")),
        ("Its version", evidence.cited(cells.count(policy.version), policy.index, "body", "header", "version")),
        ("Its document", digest),
        ("Published by entry", evidence.entry(policy.index)),
    ]


def _partitions(evidence: Evidence, partitions: list[domain.Partition], now: int) -> Table:
    book = evidence.book
    rows = []
    for one in partitions:
        bounds, state = partition_bounds(book, one, now), slice_status(book, one, now)
        account = book.accounts.get((one.ref, GLOBAL)) or empty_account(one, GLOBAL)
        used = account_status(book, account, bounds).used
        fixed = ("body", "request")
        rows.append(
            (
                evidence.cited(cells.text(one.ref.rpartition("/")[2]), one.index, *fixed, "partition"),
                cells.mark(state.status.replace("_", " "), passed=state.status == OPEN),
                evidence.moment(one.opened, one.index),
                cells.moment(state.closes),
                evidence.cited(cells.count(one.records), one.index, *fixed, "records"),
                evidence.cited(cells.bound(one.epsilon), one.index, *fixed, "epsilon"),
                evidence.cited(cells.bound(one.delta), one.index, *fixed, "delta"),
                cells.share(used.share, str(used)),
                cells.bound(None if bounds is None else bounds.lineage_epsilon_max),
                evidence.entry(one.index),
            )
        )
    return Table("partitions", "Partitions", _PARTITION_COLUMNS, tuple(rows), "No partition was opened.")


def _contracts(evidence: Evidence, provider: str, dataset: str) -> tuple[Table, int]:
    """The newest contracts on the dataset, and how many are not listed."""
    book = evidence.book
    found = []
    for one in sorted(book.contracts.values(), key=lambda each: each.index):
        if provider in one.providers:
            document = read_contract(book.documents[one.document])
            if any((each.provider, each.dataset) == (provider, dataset) for each in document.datasets):
                found.append((one, document))
    rows = []
    for one, document in found[-CONTRACTS_MAX:]:
        sha256 = one.document
        newest = book.contract_heads.get(one.id) == sha256
        rows.append(
            (
                evidence.cited(cells.text(one.id), one.index, "body", "header", "id"),
                evidence.cited(cells.count(one.version), one.index, "body", "header", "version"),
                organisation(evidence, one.consumer),
                evidence.term(cells.text(document.purpose), sha256, "purpose"),
                evidence.term(cells.bound(document.run.epsilon_max), sha256, "run", "epsilon_max"),
                evidence.term(cells.count(document.runs_max), sha256, "runs_max"),
                cells.count(one.runs),
                cells.text("revoked" if one.revoked else "the newest version" if newest else "superseded"),
                evidence.entry(one.index),
            )
        )
    table = Table("contracts", "Contracts", _CONTRACT_COLUMNS, tuple(rows), "No contract names this dataset.")
    return table, len(found) - len(rows)


def _meaning(partitions: list[domain.Partition]) -> tuple[Table, Markup] | None:
    """What the greatest budget means for one person, whatever is used of it."""
    if not partitions:
        return None
    widest = max(partitions, key=lambda one: (one.epsilon, one.delta))
    epsilon, delta = widest.epsilon, widest.delta
    rows = [
        (
            cells.text(f"{cells.share(rate).text} of others taken for members"),
            cells.share(true_positives(epsilon, delta, rate)),
        )
        for rate in _RATES
    ]
    rows += [
        (cells.text("advantage over a guess"), cells.share(advantage(epsilon, delta))),
        (cells.text("the odds change by at most a factor of"), Cell(cells.rounded(growth(epsilon), up=True), "number")),
    ]
    shown = f"ε {cells.rounded(epsilon, up=True)} at δ {cells.rounded(delta, up=True)}"
    steps = [Fraction(place, 100) for place in range(101)]
    chart = tradeoff(
        [(float(one), float(true_positives(epsilon, delta, one))) for one in steps],
        f"True positives by false positives at {shown}",
    )
    caption = f"An attacker that asks whether one person's record was used, were the budget of {shown} used up"
    return Table("odds", caption, ("", "Members found, at most"), tuple(rows)), chart
