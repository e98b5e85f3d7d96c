"""The ε of a recorded run by its whole plan, alone and together with all runs that its model descends from.

A run that starts from models of other runs names their charges (``base``), and those may name others. What the model
reveals of a partition is bounded by what all these distinct runs reveal together, each in full and counted once.
Their plans may have been chosen one after another, each after the models before it were seen, so the composition of
all plans at the partition's δ is no bound. A partition with several of them gets the least of three odometers, each
of which holds for plans so chosen, at parts of δ that were fixed beforehand:
:func:`ledger.accounts.plan_odometers.least_odometer`. One with a single run gets that run's own number.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Final, Protocol

from ledger.accounting.epsilon_report import report_up
from ledger.accounts.plan_odometers import least_odometer
from ledger.accounts.pricing import whole_run
from ledger.accounts.run_epsilon import RunEpsilon, run_epsilon
from ledger.commands.entry import Entry
from ledger.commands.runs.charge import CHARGE
from ledger.commands.runs.charge_entry import MakeCharge, reported_partitions
from ledger.domain.charge_record import Charge
from ledger.domain.facts import Facts, Partition
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, loss_of

ANCESTRY_MAX: Final = 1_000
"""Runs that a model may descend from for a bound to be computed of them together."""


class RecordedFacts(Facts, Protocol):
    """The state and the entries that made it."""

    def entry(self, index: int) -> bytes:
        """The exact bytes of an entry. Raises: KeyError."""


def charged_body(book: RecordedFacts, charge: Charge) -> MakeCharge:
    """The body of the command that made a charge."""
    return CHARGE.read_body(Entry.parse(book.entry(charge.index)).command)


def charged_epsilon(book: RecordedFacts, charge: Charge) -> tuple[RunEpsilon, ...]:
    """The ε of a charge's run, one line for each partition; for ranges, one for all of the same terms.

    Raises:
        Malformed, Rejected.
    """
    body = charged_body(book, charge)
    return tuple(run_epsilon(partition, body) for partition in reported_partitions(book, body))


def epsilon_with_ancestry(book: RecordedFacts, charge: Charge) -> tuple[RunEpsilon, ...]:
    """The ε of a charge's run together with all runs that its model descends from, one line for each partition.

    None if the run starts from no model. With more than a thousand runs no bound is computed: each ε is None.

    Raises:
        Malformed, Rejected.
    """
    if not charge.base:
        return ()
    runs = model_ancestry(book.charges, charge)
    by_partition: dict[str, list[Charge]] = {}
    for run in runs:
        for ref in run.partitions:
            by_partition.setdefault(ref, []).append(run)
    if len(runs) > ANCESTRY_MAX:
        return tuple(_unbounded_epsilon(book.partitions[ref], by_partition[ref]) for ref in sorted(by_partition))
    return tuple(_together(book, book.partitions[ref], by_partition[ref]) for ref in sorted(by_partition))


def model_ancestry(charges: Mapping[str, Charge], charge: Charge) -> tuple[Charge, ...]:
    """The charge, and all that its model descends from, each once; over the limit, not all are listed."""
    ancestry, waiting = {charge.id: charge}, [charge]
    while waiting and len(ancestry) <= ANCESTRY_MAX:
        for name in waiting.pop().base:
            if name not in ancestry:
                ancestry[name] = charges[name]
                waiting.append(ancestry[name])
    return tuple(ancestry.values())


def _together(book: RecordedFacts, partition: Partition, runs: list[Charge]) -> RunEpsilon:
    if len(runs) == 1:
        return run_epsilon(partition, charged_body(book, runs[0]))
    rule = read_rule(partition.terms)
    total = Loss.zero(len(rule.coordinates))
    for run in runs:
        # In full, whatever was posted: what a run reveals may depend on where it stopped.
        total += loss_of(run.price_of(partition.ref), run.steps)
    plans = [whole_run(partition, charged_body(book, run)) for run in sorted(runs, key=lambda member: member.index)]
    return _bound(partition, runs, *least_odometer(rule, total, plans, partition.relation))


def _unbounded_epsilon(partition: Partition, runs: list[Charge]) -> RunEpsilon:
    return _bound(partition, runs, f"{read_rule(partition.terms).kind()} odometer", None)


def _bound(partition: Partition, runs: list[Charge], accountant: str, epsilon: Fraction | None) -> RunEpsilon:
    return RunEpsilon(
        accountant=accountant,
        delta=partition.delta,
        epsilon=None if epsilon is None else report_up(epsilon),
        partition=partition.ref,
        relation=partition.relation,
        runs=len(runs),
        unit=partition.unit,
    )
