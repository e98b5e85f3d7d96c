"""The rule ``renyi``: a charge is admitted while at least one of a few Rényi orders has room.

Orders α share δ: each has a weight, fixed when the partition opens, the weights sum to at most 1, and a loss is
admitted under a cap ε while at some order it stays within

    B(α; ε, w·δ) = ε - log(1 - 1/α) + log(w·δ·α)/(α - 1)

(Canonne, Kamath, Steinke 2020, Proposition 12, for one order). Why "some order" is sound although the next
request may depend on every answer: let E_α be the event that α is the first order whose *executed* loss is
within B at the end. Executed loss only grows, so on E_α the run equals the run truncated before α overflows,
which keeps (ε, w_α·δ) by the fixed-order filter (Feldman, Zrnic 2021, Theorem 4.5); summing over α costs
δ·Σw ≤ δ. With the whole of δ at every order the sum would not hold.

Weights belong to the partition and not to the cap, so a capacity never shrinks as ε grows. A lineage whose runs
were admitted under several caps (contracts differ, policies change) was then admitted under the largest of them
throughout, and keeps that one; with weights chosen anew for each cap it would keep it at up to twice δ only.

A partition with a declared load opens with two divisions of δ, of which its first charge chooses one
(:mod:`ledger.filters.renyi_orders` has why that is sound): the terms that a partition has from then on have one.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Final, Literal

from msgspec import Meta, structs

from ledger.accounting.epsilon_report import slack
from ledger.accounting.renyi import ACCEPTED, ISSUED, price
from ledger.filters.capacity import Cap, NoRoom, used
from ledger.filters.renyi_orders import (
    ORDER_MAX,
    WEIGHT_ONE,
    Shares,
    declared_shares,
    load_prices,
    opens,
    order_bound,
    undeclared_shares,
)
from ledger.filters.rule import SLACK, Coordinate, Opening, Rule, order
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.loss import Loss, Segment, cover
from ledger.mechanisms.mechanism import Mechanism
from ledger.wire.exact_numbers import DELTA_ONE, NAT, ceil_slack
from ledger.wire.field_types import Positive, between, constant
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

ORDERS_MAX: Final = 16
Weights = Annotated[tuple[Annotated[int, between(0, WEIGHT_ONE)], ...], Meta(max_length=ORDERS_MAX)]


class DeclaredDivision(Record, frozen=True):
    """The division of δ for a declared load, which holds from the first charge on if that charge gains by it.

    Attributes:
        epsilons: the caps at opening under which both divisions are compared.
        weights: as of the rule.
    """

    epsilons: Annotated[tuple[Fraction, ...], Meta(min_length=1, max_length=ORDERS_MAX)]
    weights: Weights


class Renyi(Rule, frozen=True, tag="renyi"):
    """The terms of one partition.

    Attributes:
        delta: of the partition's budget.
        orders: the integer orders, ascending; every account of the partition keeps its loss at all of them.
        weights: per order, its share of δ in thousandths; 0 at an order that only the other division has.
        slack: δ units reserved for charges that are (ε, δ) black boxes; the orders share the rest.
        odometers: 2 where the rule's own and the PLD of the first run share δ less slack, half each; see :class:`Rule`.
        declared: the other division of δ; absent where there is one, and once a first charge was admitted.
    """

    delta: Positive
    orders: Annotated[tuple[Annotated[int, between(2, ORDER_MAX)], ...], Meta(min_length=1, max_length=ORDERS_MAX)]
    weights: Weights
    slack: Annotated[int, between(0, DELTA_ONE)] = constant(0)
    odometers: Literal[2] | None = None
    declared: DeclaredDivision | None = None
    v: Literal[1] = constant(1)

    def __post_init__(self) -> None:
        """Check orders, weights and slack against one another. Raises: Malformed."""
        super().__post_init__()
        if tuple(sorted(set(self.orders))) != self.orders:
            raise Malformed("orders", "must ascend")
        divisions = {"weights": self.weights, **({"declared.weights": self.declared.weights} if self.declared else {})}
        for name, weights in divisions.items():
            if len(weights) != len(self.orders) or not 0 < sum(weights) <= WEIGHT_ONE:
                raise Malformed(name, f"must have one share per order, {WEIGHT_ONE} together at most, and not only 0")
        if Fraction(self.slack, DELTA_ONE) >= self.delta:
            raise Malformed("slack", "must be less than δ")

    def __hash__(self) -> int:
        """A hash without δ, whose own hash is slow: rules with the same orders are few."""
        return hash((self.orders, self.weights, self.slack, self.declared is None))

    @classmethod
    def choose(cls, opening: Opening) -> Renyi:
        """Orders with a good one for every cap, for the declared load and for Gaussian-like runs: ``renyi_orders``.

        Raises:
            Malformed: if δ is outside (0, 1), or the slack takes all of it.
            NotPriced: if the load has no proven price.
            NoRoom: if a cap stays closed.
        """
        delta, caps, load, relation, slack, _ = opening
        if not 0 < delta < 1:
            raise Malformed("delta", "must lie between 0 and 1")
        if not Fraction(slack, DELTA_ONE) < delta:
            raise Malformed("slack", "must be less than δ")
        shared, prices = delta - Fraction(slack, DELTA_ONE), load_prices(load, relation) if load else {}
        undeclared = undeclared_shares(caps, shared)
        declared = declared_shares(caps, shared, prices) if prices else None
        if declared is not None and not opens(undeclared, caps, shared):
            undeclared, declared = declared, None
        rule = cls._of_shares(delta, slack, undeclared, declared, caps)
        for one in rule.divisions:
            for epsilon in caps:
                one.cap(epsilon)
        return rule

    @classmethod
    def _of_shares(
        cls, delta: Fraction, slack: int, undeclared: Shares, declared: Shares | None, caps: tuple[Fraction, ...]
    ) -> Renyi:
        orders = tuple(sorted({*undeclared, *(declared or {})}))
        weights, others = (tuple(shares.get(one, 0) for one in orders) for shares in (undeclared, declared or {}))
        division = DeclaredDivision(tuple(dict.fromkeys(caps)), others) if declared else None
        return cls(delta, orders, weights, slack, 2, division)

    @property
    def divisions(self) -> tuple[Renyi, ...]:
        """The terms of which one holds from the first charge on: without a declaration, then with it."""
        if self.declared is None:
            return (self,)
        without = structs.replace(self, declared=None)
        return without, structs.replace(without, weights=self.declared.weights)

    @property
    def first_run_chooses(self) -> bool:
        """With a declared load that gains something."""
        return self.declared is not None

    def for_first_run(self, run: Loss) -> Rule:
        """The division that this first run chooses; see :mod:`ledger.filters.renyi_orders`."""
        if self.declared is None:
            return self
        without, declared = self.divisions
        epsilons, empty = self.declared.epsilons, Loss.zero(len(self.coordinates))
        caps = [(without.cap(epsilon), declared.cap(epsilon)) for epsilon in epsilons]
        if any(declared.share(run, with_it) > without.share(run, cap) for cap, with_it in caps):
            return without
        gains = any(declared.runs(empty, with_it, run) > without.runs(empty, cap, run) for cap, with_it in caps)
        return declared if gains else without

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """One per order, in loss units, and the δ slack, in δ units."""
        return (*map(order, self.orders), SLACK)

    @property
    def certain(self) -> Fraction:
        """The part of δ that the orders share."""
        return self.delta - Fraction(self.slack, DELTA_ONE)

    def segments(self, mechanism: Mechanism, relation: str) -> tuple[Segment, ...]:
        """The price of a step of each piece, at each order and in the slack. Raises: NotPriced."""
        return self._segments(mechanism, relation, ISSUED)

    def covers(self, segments: tuple[Segment, ...], mechanism: Mechanism, relation: str) -> bool:
        """Against the prices with half of the margin, which still covers the library's error: see ``ACCEPTED``.

        Raises:
            NotPriced: for one without a proven price.
            ValueError: for prices at other coordinates.
        """
        return cover(segments, self._segments(mechanism, relation, ACCEPTED))

    def _segments(self, mechanism: Mechanism, relation: str, halves: int) -> tuple[Segment, ...]:
        return tuple(
            Segment(count, (*price(step, relation, self.orders, halves), ceil_slack(slack(step))))
            for count, step in to_steps(mechanism)
        )

    def cap(self, epsilon: Fraction) -> Cap:
        """Capacities under a cap: a function of the terms and ε alone, and never less for a larger ε.

        Before the first charge those of the undeclared division or, where that leaves none, of the declared one.

        Raises:
            NoRoom: if no order is open, with the least ε that would open one.
        """
        return _cap(self, epsilon.numerator, epsilon.denominator)

    def admits(self, loss: Loss, cap: Cap) -> bool:
        """Whether the slack holds and, at some open order, no charge is infinite and the sum is within capacity."""
        return self._slack_holds(loss, cap) and any(at <= bound for at, bound in self._open(loss, cap))

    def share(self, loss: Loss, cap: Cap) -> Fraction:
        """The least share used over the open orders (1 if each holds an infinite charge), or the slack's if more."""
        orders = min((used(at, bound) for at, bound in self._open(loss, cap)), default=Fraction(1))
        return max(orders, used(loss.at(len(self.orders)), cap.capacity[-1]))

    def decisive(self, loss: Loss, cap: Cap) -> int | None:
        """The slack where it does not hold, else the open order with the least share used; None if none is finite."""
        if not self._slack_holds(loss, cap):
            return None if loss.infinite[-1] else len(self.orders)
        shares = {
            place: used(loss.finite[place], bound)
            for place, bound in enumerate(cap.capacity[:-1])
            if bound is not None and not loss.infinite[place]
        }
        return min(shares, key=lambda place: shares[place], default=None)

    def runs(self, loss: Loss, cap: Cap, run: Loss) -> int:
        """The most runs that fit at one order, and in the slack."""
        if not self.admits(loss, cap):
            return 0
        fit = [
            (bound - at) // cost
            for place, bound in enumerate(cap.capacity[:-1])
            if bound is not None and (at := loss.at(place)) is not None and (cost := run.at(place)) and at <= bound
        ]
        most = max(fit, default=0)
        if run.finite[-1]:
            most = min(most, ((cap.capacity[-1] or 0) - loss.finite[-1]) // run.finite[-1])
        return max(0, most)

    def _open(self, loss: Loss, cap: Cap) -> Iterator[tuple[int, int]]:
        for place, bound in enumerate(cap.capacity[:-1]):
            at = loss.at(place)
            if bound is not None and at is not None:
                yield at, bound

    def _slack_holds(self, loss: Loss, cap: Cap) -> bool:
        at, bound = loss.at(len(self.orders)), cap.capacity[-1]
        return at is not None and bound is not None and at <= bound

    def bounds(self, epsilon: Fraction) -> tuple[Fraction | None, ...]:
        """B(α; ε, w·δ) per order, rounded down; not positive where the order is closed, None without a share of δ."""
        return self._bounds(epsilon, self.certain)

    def _bounds(self, epsilon: Fraction, shared: Fraction) -> tuple[Fraction | None, ...]:
        return tuple(
            order_bound(order, epsilon, shared * Fraction(weight, WEIGHT_ONE)) if weight else None
            for order, weight in zip(self.orders, self.weights, strict=True)
        )

    def odometer(self, loss: Loss) -> Fraction:
        """The least over orders of r + log(1 - 1/α) - log(w·δ·α)/(α - 1), rounded up to 2^-40; 0 when nothing ran.

        Valid at every stopping time for the fixed weights: with L the total loss and r the losses,
        Σ w·exp((α - 1)(L - r)) is a supermartingale, and each state gives (1 - e^(ε - L))_+ ≤ δ times it.

        Raises:
            ArithmeticError: if every order holds an infinite charge, or the slack is overdrawn; no finite ε is then
                proven.
        """
        if loss.empty:
            return Fraction(0)
        if self.declared is not None:
            return max(one.odometer(loss) for one in self.divisions)
        if loss.infinite[-1] or loss.finite[-1] > self.slack:
            raise ArithmeticError("the account holds more than its slack")
        bounds = [
            Fraction(at, NAT) - bound
            for place, bound in enumerate(self._bounds(Fraction(0), self.odometer_delta))
            if bound is not None and (at := loss.at(place)) is not None
        ]
        if not bounds:
            raise ArithmeticError("every order holds an infinite charge")
        least = max(Fraction(0), min(bounds)) + Fraction(1, NAT)
        return Fraction(-(-least.numerator * NAT // least.denominator), NAT)


@lru_cache(maxsize=4_096)
def _cap(rule: Renyi, numerator: int, denominator: int) -> Cap:
    # Two integers, because a fraction is hashed by a modular power.
    epsilon, least = Fraction(numerator, denominator), list[Fraction]()
    for one in rule.divisions:
        bounds = one.bounds(epsilon)
        most = max(bound for bound in bounds if bound is not None)
        if most > 0:
            return Cap(epsilon, (*(int(bound * NAT) if bound and bound > 0 else None for bound in bounds), rule.slack))
        least.append(max(epsilon - most, Fraction(0)) + Fraction(1, 1000))
    raise NoRoom(epsilon, min(least))
