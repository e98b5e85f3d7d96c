"""The ε of one run: one number, of its whole plan, wherever the run is reported.

It is the least ε that an accountant proves of all steps of the plan, given all that was released before, in the
partition's unit and relation at the partition's δ. It does not shrink when the run stops early. What a run has released
when it stops is a function of what the whole plan would have released and of what the stopping rule read: so the number
bounds it whenever it stops, if the stop reads only released outputs, public data and coins, and if the plan states
everything that is done with the records. A smaller number of fewer steps would bound a plan that was fixed to so few
steps before the run saw data, and no run that stopped because of what it saw. A refund changes accounts, never this.

One line for each partition, of a person's records there. Where a person may be in several slices of a stream, one in k
of those that a run is charged on may lose k times the ε, at a δ of up to 1 + exp(ε) + ... + exp((k - 1) ε) times
the line's (group privacy; Vadhan 2017, lemma 2.2). Where a single figure is shown, it is the greatest, and names its
partition.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from typing import Annotated, Final

from msgspec import Meta

from ledger.accounting.epsilon_report import Report
from ledger.accounting.rounding import float_up
from ledger.accounts.pricing import COMPUTED, PricedRun
from ledger.domain.facts import Partition
from ledger.mechanisms.mechanism import Relation
from ledger.wire.exact_numbers import ceil_decimal, format_number
from ledger.wire.field_types import Name, Ref, between
from ledger.wire.records import Record

PLACES: Final = 4
"""Digits after the point that people read; programs get the exact number."""
RUNS_MAX: Final = 1_000_000


class RunEpsilon(Record, frozen=True):
    """An upper bound on what one run, or a model's runs together, reveal of one partition.

    Attributes:
        accountant: ``PLD``, ``Rényi`` or ``basic`` of one run; of several, the odometer that proves least.
        epsilon: rounded up to a billionth; None if no finite one is proven.
        runs: how many runs it bounds together.
        version: of the library that computed it; None where that is the partition's rule.
    """

    accountant: str
    delta: Fraction
    epsilon: Annotated[Fraction | None, Meta(description="rounded up to a billionth; null if no bound is proven")]
    partition: Ref
    relation: Relation
    runs: Annotated[int, between(1, RUNS_MAX)]
    unit: str
    version: str | None = None

    @classmethod
    def of_report(cls, report: Report, partition: Partition) -> RunEpsilon:
        """Of one run."""
        return cls(
            accountant=report.accountant,
            delta=report.delta,
            epsilon=report.epsilon,
            partition=partition.ref,
            relation=report.relation,
            runs=1,
            unit=partition.unit,
            version=report.version,
        )

    @property
    def number(self) -> str:
        """The ε as people read it, rounded up: ``0.7312``; ``infinite`` where none is proven."""
        return "infinite" if self.epsilon is None else ceil_decimal(self.epsilon, PLACES)

    def __str__(self) -> str:
        """The whole statement, on one line."""
        return (
            f"ε {self.number} at δ {format_number(self.delta)} on {self.partition}, "
            f"by {self.accountant} (unit {self.unit}, {self.relation})"
        )

    def __float__(self) -> float:
        """The ε as a float, rounded up; infinite where none is proven."""
        return math.inf if self.epsilon is None else float_up(self.epsilon)


RunLines = Annotated[
    tuple[RunEpsilon, ...],
    Meta(
        description="one line a partition: the ε of the whole plan, which bounds the run whenever it stops; a person in"
        " several charged slices of a stream may lose so many times as much"
    ),
]


class ChargeEpsilon(Record, frozen=True):
    """The ε of a charge's run, and of it with all runs that its model descends from.

    Attributes:
        with_ancestry: one line a partition; empty where the run starts from no charged model.
    """

    charge: Name
    run_epsilon: RunLines
    with_ancestry: tuple[RunEpsilon, ...]

    @property
    def epsilon(self) -> RunEpsilon:
        """The line with the greatest ε of the run."""
        return greatest(self.run_epsilon)

    @property
    def in_words(self) -> tuple[str, ...]:
        """A line for each partition, and for each of the runs that the model descends from."""
        own = tuple(f"the run: {line}" for line in self.run_epsilon)
        return *own, *(f"with its ancestry, {line.runs} runs: {line}" for line in self.with_ancestry)


def run_epsilon(partition: Partition, run: PricedRun) -> RunEpsilon:
    """The ε of one run on a partition, by its whole plan. Raises: Malformed, Rejected."""
    return RunEpsilon.of_report(COMPUTED.report(partition, run), partition)


def greatest(lines: Iterable[RunEpsilon]) -> RunEpsilon:
    """The line that is shown where only one is; the first of equal ones. Raises: ValueError, for none."""
    return max(lines, key=lambda line: (line.epsilon is None, line.epsilon or 0))
