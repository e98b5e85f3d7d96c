"""What a charge costs and what binds it, as numbers: worked out here, or by whoever wrote them down."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final, Protocol

from ledger.accounting import reported_epsilon
from ledger.domain.commands import MakeCharge
from ledger.domain.facts import Partition
from ledger.domain.outcomes import Code
from ledger.filters import Cap, read_rule
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.loss import Segment
from ledger.mechanisms.plan import AnyPlan, group_of
from ledger.mechanisms.price_proofs import NotPriced
from ledger.transitions.guards import Refusal
from ledger.wire.malformed import Malformed


@dataclass(frozen=True, slots=True)
class Bound:
    """A cap on one account before it is a number of the partition's rule; ``share`` where it is a quota.

    Attributes:
        source: the document and version that says so; empty where the partition's own budget does.
    """

    partition: Partition
    holder: str
    epsilon: Fraction
    share: Fraction | None = None
    source: str = ""


class Numbers(Protocol):
    """Where the numbers of a charge come from."""

    def price(self, partition: Partition, body: MakeCharge) -> tuple[Segment, ...]:
        """A run's price under a partition's rule. Raises: Malformed, Refusal."""
        ...

    def cap(self, bound: Bound) -> Cap:
        """The capacity that a charge must stay within. Raises: Malformed, NoRoom."""
        ...

    def watched(self, bound: Bound) -> Cap:
        """The capacity of which alerts tell shares. Raises: Malformed, NoRoom."""
        ...


class Searched:
    """Worked out here: slow when new, kept afterwards."""

    def price(self, partition: Partition, body: MakeCharge) -> tuple[Segment, ...]:
        """See :class:`Numbers`."""
        return price(partition, body)

    def cap(self, bound: Bound) -> Cap:
        """See :class:`Numbers`."""
        whole = read_rule(bound.partition.terms).cap(bound.epsilon)
        return whole if bound.share is None else whole.part(bound.share)

    def watched(self, bound: Bound) -> Cap:
        """See :class:`Numbers`."""
        return self.cap(bound)


SEARCHED: Final = Searched()


def price(partition: Partition, body: MakeCharge) -> tuple[Segment, ...]:
    """A run's price under a partition's rule. Slow when new, kept afterwards. Raises: Malformed, Refusal."""
    return _priced(partition.terms, partition.relation, _group(partition, body), body.plan)


@lru_cache(maxsize=65_536)
def _priced(terms: str, relation: str, unit_records: int, plan: AnyPlan) -> tuple[Segment, ...]:
    try:
        return read_rule(terms).segments(group_privacy(unit_records, plan.mechanism(plan.steps)), relation)
    except (NotPriced, ArithmeticError) as fault:
        raise Refusal(Code.NOT_PRICED, str(fault), "body.plan") from None


def covered(partition: Partition, body: MakeCharge, segments: tuple[Segment, ...]) -> bool:
    """Whether a run costs at most this, whoever worked it out. Slow when new, kept afterwards.

    Raises:
        Malformed, Refusal: as :func:`price` does.
        ValueError: for prices at other coordinates.
    """
    return _covered(partition.terms, partition.relation, _group(partition, body), body.plan, segments)


@lru_cache(maxsize=65_536)
def _covered(terms: str, relation: str, unit_records: int, plan: AnyPlan, segments: tuple[Segment, ...]) -> bool:
    try:
        return read_rule(terms).covers(segments, group_privacy(unit_records, plan.mechanism(plan.steps)), relation)
    except (NotPriced, ArithmeticError) as fault:
        raise Refusal(Code.NOT_PRICED, str(fault), "body.plan") from None


def _group(partition: Partition, body: MakeCharge) -> int:
    """What one privacy unit of a partition is to a run. Raises: Malformed."""
    try:
        return group_of(body.plan, partition.unit, partition.unit_records_max, body.unit_records_max)
    except Malformed as fault:
        raise fault.under("body.plan") from None


def epsilon_of(partition: Partition, body: MakeCharge) -> Fraction:
    """The ε of the whole run at the partition's δ. Slow when new, kept afterwards. Raises: Malformed, Refusal."""
    delta = partition.delta
    return _told(delta.numerator, delta.denominator, partition.relation, _group(partition, body), body.plan)


@lru_cache(maxsize=65_536)
def _told(numerator: int, denominator: int, relation: str, unit_records: int, plan: AnyPlan) -> Fraction:
    whole = group_privacy(unit_records, plan.mechanism(plan.steps))
    try:
        return reported_epsilon(whole, Fraction(numerator, denominator), relation)
    except (NotPriced, ArithmeticError) as fault:
        raise Refusal(Code.NOT_PRICED, str(fault), "body.plan") from None
