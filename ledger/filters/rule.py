"""The interface of an admission rule: a privacy filter, its odometer, and its recorded terms."""

from __future__ import annotations

from abc import abstractmethod
from fractions import Fraction
from typing import ClassVar, NamedTuple

from ledger.filters.capacity import Cap, NoRoom, used
from ledger.mechanisms.loss import Loss, Segment, cover
from ledger.mechanisms.mechanism import Mechanism
from ledger.wire.exact_numbers import DELTA_ONE, NAT
from ledger.wire.records import AbstractRecordType, Record


class Coordinate(NamedTuple):
    """One coordinate of a loss: its name, how many loss units make one of its unit, and that unit for people."""

    name: str
    one: int
    unit: str


SLACK = Coordinate("delta slack", DELTA_ONE, "of δ")


def order(name: int | str) -> Coordinate:
    """The Rényi divergence at one order, in nats."""
    return Coordinate(f"order {name}", NAT, "nat")


class Opening(NamedTuple):
    """The declaration of a new partition.

    Attributes:
        delta: of the partition's budget.
        caps: the ε of the partition's budget first, then of every other cap.
        load: the mechanism that the partition is expected to be charged for.
        relation: the neighbouring relation.
        slack: δ units reserved for black boxes.
        prices: in ticks, of a block of each kind of step in the load; None for those that admit the most loads.
    """

    delta: Fraction
    caps: tuple[Fraction, ...]
    load: Mechanism | None
    relation: str = "REPLACE_SPECIAL"
    slack: int = 0
    prices: tuple[int, ...] | None = None


class Rule(Record, metaclass=AbstractRecordType, frozen=True, tag_field="kind"):
    """The privacy filter of one partition (Rogers, Roth, Ullman, Vadhan 2016): its recorded terms and its tests.

    A loss has one integer per coordinate. A cap is a bound (ε, δ) as integers: its capacity. Every test is monotone in
    the loss, so charges may settle in any order.

    Prices and capacities that are computed in floats are issued with a margin, and checked with half of it where they
    are read: ``covers`` and ``keeps`` evaluate the given number without a search, and are sound by themselves.

    Attributes:
        takes_slack: part of δ may be reserved for (ε, δ) black boxes.
        per_unit: the declared load is compared as it is, and never as a group of records that change together.
        searched: capacities are searched for in floats, so another machine may find one that differs a little.
    """

    takes_slack: ClassVar[bool] = True
    per_unit: ClassVar[bool] = False
    searched: ClassVar[bool] = False
    delta: Fraction

    @classmethod
    @abstractmethod
    def choose(cls, opening: Opening) -> Rule:
        """The rule of a new partition.

        Raises:
            Malformed: for a declaration that the rule does not support.
            NotPriced: if the load has no proven price.
            NoRoom: if a cap has no room.
        """

    @classmethod
    def kind(cls) -> str:
        """The rule's name in terms."""
        return str(cls.__struct_config__.tag)

    @property
    def first_run_chooses(self) -> bool:
        """Whether a partition's first admitted charge chooses the rule from then on: :meth:`for_first_run`."""
        return False

    def for_first_run(self, run: Loss) -> Rule:
        """The rule from a partition's first admitted charge on, given that charge's whole loss; here always this one.

        A rule may leave a choice to the first charge, which no output of the partition has a part in. It prices every
        run as before; capacities and the odometer are those of the rule that is returned.
        """
        del run
        return self

    @property
    @abstractmethod
    def coordinates(self) -> tuple[Coordinate, ...]:
        """The coordinates of a loss."""

    @property
    def certain(self) -> Fraction:
        """The part of δ that is not slack."""
        return self.delta

    @property
    def odometers(self) -> int | None:
        """How many odometers share that part, as the terms say; None where there is one. See ``odometer_delta``."""
        return None

    @property
    def odometer_delta(self) -> Fraction:
        """The δ of each odometer, beside the slack: all of it, or half where the first run's PLD is one of two.

        The rule's own odometer is at this δ. The other one is reported while exactly one run has begun: the ε of its
        whole plan at this δ by PLD (:mod:`ledger.commands.runs.account_epsilon`).
        """
        return self.certain / (self.odometers or 1)

    @abstractmethod
    def segments(self, mechanism: Mechanism, relation: str) -> tuple[Segment, ...]:
        """The price of a mechanism, piece by piece. Raises: NotPriced, for one without a proven price."""

    def covers(self, segments: tuple[Segment, ...], mechanism: Mechanism, relation: str) -> bool:
        """Whether a mechanism costs at most these prices; here by prices that are the same on every machine.

        Raises:
            NotPriced: for a mechanism without a proven price.
            ValueError: for prices at other coordinates.
        """
        return cover(segments, self.segments(mechanism, relation))

    @abstractmethod
    def cap(self, epsilon: Fraction) -> Cap:
        """The capacity under which the loss keeps (ε, the partition's δ). Raises: NoRoom."""

    def keeps(self, cap: Cap) -> bool:
        """Whether a loss within this capacity keeps its (ε, δ); here by a capacity that is the same on every machine.

        Raises:
            ValueError: for a capacity at other coordinates.
        """
        try:
            return cap.within(self.cap(cap.epsilon))
        except NoRoom:
            return False

    @abstractmethod
    def odometer(self, loss: Loss) -> Fraction:
        """The rule's own privacy odometer: the anytime-valid ε of a loss at ``odometer_delta``, rounded up.

        Raises:
            ArithmeticError: if no finite ε is proven.
        """

    def admits(self, loss: Loss, cap: Cap) -> bool:
        """Whether the bound still holds at this loss: here no charge is infinite and every sum is within capacity."""
        pairs = zip(range(len(cap.capacity)), cap.capacity, strict=True)
        return all((at := loss.at(place)) is not None and bound is not None and at <= bound for place, bound in pairs)

    def share(self, loss: Loss, cap: Cap) -> Fraction:
        """The share of capacity used, 0 when empty and 1 when full; here the greatest over the coordinates."""
        shares = [used(loss.at(place), bound) for place, bound in enumerate(cap.capacity)]
        return max(shares, default=Fraction(0))

    def decisive(self, loss: Loss, cap: Cap) -> int | None:
        """The coordinate that decides whether a loss is admitted; None where an infinite charge does."""
        if any(loss.infinite):
            return None
        return max(range(len(cap.capacity)), key=lambda place: used(loss.finite[place], cap.capacity[place]))

    def runs(self, loss: Loss, cap: Cap, run: Loss) -> int:
        """How many more runs that cost ``run`` each still fit, if there is no other charge."""
        if any(run.infinite) or not self.admits(loss, cap):
            return 0
        fit = [
            ((bound or 0) - at) // cost
            for at, bound, cost in zip(loss.finite, cap.capacity, run.finite, strict=True)
            if cost
        ]
        return min(fit, default=0)
