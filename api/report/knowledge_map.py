"""Who knows what: partitions by lineages, each square as dark as the account is full."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from api.console.frame import cells
from api.console.frame.cells import Cell
from api.console.views.knowledge import LINEAGES_MAX, Square, shade_of
from ledger.audit.evidence_book import EvidenceBook
from ledger.domain import facts as domain
from ledger.domain.facts import GLOBAL
from ledger.organisation_lineage.holder_names import holder_name
from policy.planning.account_caps import AccountStatus, account_status, partition_bounds

ON_PAPER_MAX: Final = min(8, LINEAGES_MAX)
"""Columns that a page has room for."""


@dataclass(frozen=True, slots=True)
class KnowledgeMap:
    """Rows by partition, columns by lineage: everyone first, then those with the fullest account."""

    names: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Square, ...]], ...]
    left_out: int


def knowledge_map(book: EvidenceBook, partitions: list[domain.Partition], now: int) -> KnowledgeMap:
    """The map of some partitions of one dataset at a time (ms)."""
    bounds = {one.ref: partition_bounds(book, one, now) for one in partitions}
    status = {
        place: account_status(book, one, bounds[one.partition])
        for place, one in book.accounts.items()
        if one.partition in bounds
    }
    fullest: dict[str, Fraction] = {}
    for (_, holder), one in status.items():
        fullest[holder] = max(fullest.get(holder, Fraction(0)), one.used.share or Fraction(0))
    ordered = sorted(fullest, key=lambda holder: (holder != GLOBAL, -fullest[holder], holder))
    shown = ordered[:ON_PAPER_MAX]
    return KnowledgeMap(
        tuple(holder_name(book, holder) for holder in shown),
        tuple(
            (one.ref.rpartition("/")[2], tuple(_square(status.get((one.ref, holder))) for holder in shown))
            for one in partitions
            if any((one.ref, holder) in status for holder in shown)
        ),
        len(ordered) - len(shown),
    )


def _square(status: AccountStatus | None) -> Square:
    if status is None:
        return Square(Cell("–"), 0)
    cell = cells.share(status.used.share, str(status.used))
    words = f"{cell.text}, over" if status.over else cell.text
    return Square(Cell(words, "number", cell.exact), shade_of(cell))
