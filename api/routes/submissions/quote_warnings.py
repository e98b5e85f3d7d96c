"""What a quote of a run, or a dry run of its charge, warns of."""

from __future__ import annotations

from ledger.book.book import Book, Submission
from ledger.commands.runs.charge import CHARGE
from ledger.domain.partition_ranges import partitions_within
from policy.planning.shared_account import first_charge_warning


def quote_warnings(book: Book, charge: Submission) -> list[str]:
    """That a run is quoted as the first charge of a partition, whose rule it would choose; empty where it is not."""
    body = CHARGE.read_body(charge.command)
    with book.read() as facts:
        refs = partitions_within(facts, body.partitions, body.ranges)
        warning = first_charge_warning([facts.partitions[ref] for ref in refs])
    return [warning] if warning else []
