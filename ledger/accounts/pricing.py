"""The numbers of a charge, its prices and capacities: computed now, prepared before, or recorded.

A number can take seconds to compute. So the book computes the numbers of a command before the writer decides it
(:mod:`ledger.book.prepare`), and they travel with the command as :class:`PreparedPrices`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Final, Protocol, TypeVar, TypeVarTuple, cast

from ledger.accounting.epsilon_report import Report, report_epsilon
from ledger.domain.decision import Rejected
from ledger.domain.facts import Partition
from ledger.domain.outcomes import Code
from ledger.filters import Cap, NoRoom, Rule, read_rule
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.loss import Segment, loss_of
from ledger.mechanisms.mechanism import Mechanism
from ledger.mechanisms.price_proofs import NotPriced
from ledger.mechanisms.run_plan import RunPlan, group_of
from ledger.wire.malformed import Malformed
from ledger.wire.records import write

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@dataclass(frozen=True, slots=True)
class Bound:
    """A cap on one account before it is a number of the partition's rule; ``share`` where it is a quota.

    Attributes:
        source: the document and version that states it; empty for the partition's own budget.
    """

    partition: Partition
    holder: str
    epsilon: Fraction
    share: Fraction | None = None
    source: str = ""


class PricedRun(Protocol):
    """A run to be priced, as the body of a charge has it; see :class:`ledger.commands.runs.charge_entry.MakeCharge`."""

    @property
    def plan(self) -> RunPlan:
        """The plan of the run."""

    @property
    def unit_records_max(self) -> int | None:
        """How many records one privacy unit has at most in what is trained on."""


class ComputedPrices:
    """Computes every number on demand; a number that was computed before comes from a read-through cache."""

    def number(self, compute: Callable[[*Ts], T], *args: *Ts) -> T:
        """One number, from its function and the values that alone determine it. Raises: what the function raises."""
        return compute(*args)

    def price(self, partition: Partition, run: PricedRun) -> tuple[Segment, ...]:
        """A run's price under a partition's rule. Raises: Malformed, Rejected."""
        return self.number(_price, partition.terms, partition.relation, _group(partition, run), run.plan)

    def report(self, partition: Partition, run: PricedRun) -> Report:
        """The ε of the whole run at the partition's δ, and what proves it. Raises: Malformed, Rejected."""
        delta, unit_records = partition.delta, _group(partition, run)
        return self.number(_report, delta.numerator, delta.denominator, partition.relation, unit_records, run.plan)

    def epsilon(self, partition: Partition, run: PricedRun) -> Fraction:
        """The ε of :meth:`report`. Raises: Malformed, Rejected."""
        return self.report(partition, run).epsilon

    def record_epsilon(self, partition: Partition, plan: RunPlan) -> Fraction:
        """The ε of a whole run for one record, at the partition's δ. Raises: Malformed, Rejected."""
        delta = partition.delta
        return self.number(_report, delta.numerator, delta.denominator, partition.relation, 1, plan).epsilon

    def cap(self, bound: Bound) -> Cap:
        """The capacity that a charge must stay within. Raises: Malformed, NoRoom."""
        whole = self.capacity(read_rule(bound.partition.terms), bound.epsilon)
        return whole if bound.share is None else whole.part(bound.share)

    def watched(self, bound: Bound) -> Cap:
        """The capacity whose shares alerts report. Raises: Malformed, NoRoom."""
        return self.cap(bound)

    def capacity(self, rule: Rule, epsilon: Fraction) -> Cap:
        """The capacity of a cap under the rule of a partition that opens. Raises: Malformed, NoRoom."""
        return self.number(_capacity, rule, epsilon)


COMPUTED: Final = ComputedPrices()


class CollectedPrices(ComputedPrices):
    """Computes every number and caches it, errors included, for :class:`PreparedPrices`."""

    def __init__(self) -> None:
        """Begin with no number."""
        self._results: dict[Hashable, object] = {}

    def number(self, compute: Callable[[*Ts], T], *args: *Ts) -> T:
        """Compute one number and cache it."""
        try:
            result = compute(*args)
        except (Rejected, NoRoom, NotPriced, Malformed) as error:
            self._results[compute, args] = error
            raise
        self._results[compute, args] = result
        return result

    def prepared(self) -> PreparedPrices:
        """The numbers as a value."""
        for result in self._results.values():
            if isinstance(result, Exception):
                # The frames of a traceback would hold a reference to the database state that they read.
                result.__traceback__ = result.__context__ = None
        return PreparedPrices(self._results)


class PriceMissing(Exception):  # noqa: N818 - what is the case
    """A decision needs a number that was not prepared: the state has changed since. Prepare the command again."""


class PreparedPrices(ComputedPrices):
    """The numbers that were computed for one command: a value that travels with it. Computes nothing.

    Each number is stored under all the values that determine it, so a stored number is never outdated.
    """

    def __init__(self, results: Mapping[Hashable, object]) -> None:
        """Keep these numbers, each under its function and the function's arguments."""
        self._results = results

    @property
    def count(self) -> int:
        """How many numbers there are."""
        return len(self._results)

    def number(self, compute: Callable[[*Ts], T], *args: *Ts) -> T:
        """The number that was computed. Raises: PriceMissing, and what the function raised."""
        try:
            result = self._results[compute, args]
        except KeyError:
            raise PriceMissing from None
        if isinstance(result, Exception):
            raise result.with_traceback(None)
        return cast("T", result)


UNPREPARED: Final = PreparedPrices({})
"""The prices of a command that no worker has prepared."""


def whole_run(partition: Partition, run: PricedRun) -> Mechanism:
    """All steps of a run as one privacy unit of a partition sees them. Raises: Malformed, Rejected."""
    with _priced(_group(partition, run), run.plan) as whole:
        return whole


def covered(partition: Partition, run: PricedRun, segments: tuple[Segment, ...]) -> bool:
    """Whether a run costs at most these prices, on whatever machine they were computed. Slow at first, then cached.

    Raises:
        Malformed, Rejected: as :meth:`ComputedPrices.price` does.
        ValueError: for prices at other coordinates.
    """
    return _covered(partition.terms, partition.relation, _group(partition, run), run.plan, segments)


def _group(partition: Partition, run: PricedRun) -> int:
    """How a run sees one privacy unit of a partition. Raises: Malformed."""
    try:
        return group_of(run.plan, partition.unit, partition.unit_records_max, run.unit_records_max)
    except Malformed as error:
        raise error.under("body.plan") from None


@contextmanager
def _priced(unit_records: int, plan: RunPlan) -> Iterator[Mechanism]:
    """The whole run as one privacy unit sees it; what has no price is rejected."""
    try:
        yield group_privacy(unit_records, plan.mechanism(plan.steps))
    except (NotPriced, ArithmeticError) as error:
        raise Rejected(Code.NOT_PRICED, str(error), "body.plan") from None


def for_first_run(partition: Partition, segments: tuple[Segment, ...], steps: int) -> Partition:
    """A partition with the rule it has from an admitted charge on, of so many steps at this price.

    Its first charge may choose the rule: see :meth:`ledger.filters.Rule.for_first_run`.
    """
    if _is_chosen(partition.terms):
        return partition
    rule = read_rule(partition.terms).for_first_run(loss_of(segments, steps))
    return replace(partition, terms=write(rule).decode())


@lru_cache(maxsize=65_536)
def _is_chosen(terms: str) -> bool:
    """Whether no first charge chooses anything: read from the terms once, since every charge is checked for it."""
    return not read_rule(terms).first_run_chooses


@lru_cache(maxsize=65_536)
def _price(terms: str, relation: str, unit_records: int, plan: RunPlan) -> tuple[Segment, ...]:
    with _priced(unit_records, plan) as whole:
        return read_rule(terms).segments(whole, relation)


@lru_cache(maxsize=65_536)
def _covered(terms: str, relation: str, unit_records: int, plan: RunPlan, segments: tuple[Segment, ...]) -> bool:
    with _priced(unit_records, plan) as whole:
        return read_rule(terms).covers(segments, whole, relation)


@lru_cache(maxsize=65_536)
def _report(numerator: int, denominator: int, relation: str, unit_records: int, plan: RunPlan) -> Report:
    with _priced(unit_records, plan) as whole:
        return report_epsilon(whole, Fraction(numerator, denominator), relation)


def _capacity(rule: Rule, epsilon: Fraction) -> Cap:
    return rule.cap(epsilon)
