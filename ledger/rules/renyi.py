"""The rule ``renyi``: some order out of a few still has room.

Orders α are split: each cap (ε, δ) gives every order a weight, the weights sum to at most 1, and a loss is
admitted while at some order it stays within

    B(α; ε, w·δ) = ε - log(1 - 1/α) + log(w·δ·α)/(α - 1)

(Canonne, Kamath, Steinke 2020, Proposition 12, for one order). Why "some order" is sound although the next
request may depend on every answer: let E_α be the event that α is the first order whose *executed* loss is
within B at the end. Executed loss only grows, so on E_α the run equals the run truncated before α overflows,
which keeps (ε, w_α·δ) by the fixed-order filter (Feldman, Zrnic 2021, Theorem 4.5); summing over α costs
δ·Σw ≤ δ. With the whole of δ at every order the sum would not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ledger import canonical as c
from ledger.accounting import renyi_price
from ledger.loss import Loss, Price
from ledger.malformed import Malformed
from ledger.mechanism import PoissonGaussian
from ledger.units import DELTA_ONE, NAT, ceil_decimal, format_number, parse_positive

ORDER_MAX: Final = 256
LOAD_ORDER_MAX: Final = 64
ORDERS_MAX: Final = 16
WEIGHT_ONE: Final = 1_000
_SPLIT: Final = (600, 200, 200)
"""Robust against loads nobody declared (measured 93 to 98 % of the best single order)."""
_SPLIT_DECLARED: Final = (900, 50, 50)
_EXACT: Final = Context(prec=60)


class NoRoom(ValueError):  # noqa: N818 - what is the case, not an error of the program
    """A cap under which no order is open; ``least`` is the least ε that would open one."""

    def __init__(self, epsilon: Fraction, least: Fraction) -> None:
        """Name both."""
        super().__init__(
            f"an ε of {format_number(epsilon)} has no room at any order; the least that has some is "
            f"{ceil_decimal(least, 3)}"
        )
        self.epsilon = epsilon
        self.least = least


@dataclass(frozen=True, slots=True)
class Cap:
    """A bound on an account as integers.

    Attributes:
        weights: per order, its share of δ in thousandths; 0 where the order is closed for this cap.
        capacity: per coordinate; None where the order is closed.
    """

    epsilon: Fraction
    weights: tuple[int, ...]
    capacity: tuple[int | None, ...]

    def to_json(self) -> c.Object:
        """As it is recorded with each charge it bound."""
        return {
            "capacity": list(self.capacity),
            "epsilon": format_number(self.epsilon),
            "weights": list(self.weights),
        }


@dataclass(frozen=True, slots=True)
class Renyi:
    """The terms of one partition.

    Attributes:
        delta: of the partition's budget.
        orders: the integer orders, ascending; every account of the partition keeps its loss at all of them.
        load: per order, the price of one step of the load declared at opening; empty if none was.
        slack: δ units kept aside for charges that are (ε, δ) black boxes; the orders share the rest.
    """

    delta: Fraction
    orders: tuple[int, ...]
    load: tuple[int, ...]
    slack: int = 0

    @classmethod
    def choose(cls, delta: Fraction, caps: tuple[Fraction, ...], load: PoissonGaussian | None) -> Renyi:
        """Orders with a good one for every cap, for the declared load and for Gaussian-like runs.

        Raises:
            Malformed: if δ is outside (0, 1).
            NoRoom: if a cap stays closed.
        """
        if not 0 < delta < 1:
            raise Malformed("delta", "must lie between 0 and 1")
        declared = _load_prices(load) if load else {}
        chosen: set[int] = set()
        for place, epsilon in enumerate(dict.fromkeys(caps)):
            best = _best_order(epsilon, delta, {order: order for order in range(2, ORDER_MAX + 1)})
            chosen.add(best)
            if declared:
                best = _best_order(epsilon, delta, declared)
                chosen.add(best)
            if place == 0:
                chosen |= {max(2, best * 8 // 10), max(2, best * 6 // 10)}
        orders = tuple(sorted(chosen)[:ORDERS_MAX])
        price = renyi_price(load.probability, load.noise_multiplier, orders) if load else ()
        rule = cls(delta, orders, tuple(NAT * ORDER_MAX if unit is None else unit for unit in price))
        for epsilon in caps:
            rule.cap(epsilon)
        return rule

    @classmethod
    def parse(cls, value: object) -> Renyi:
        """Read recorded terms; the exact inverse of :meth:`to_json`. Raises: Malformed."""
        known = c.fields(value, "terms", ("delta", "kind", "load", "orders", "slack", "v"))
        c.one_of(known["kind"], "terms.kind", ("renyi",))
        c.integer(known["v"], "terms.v", 1, 1)
        orders = _integers(known["orders"], "terms.orders", 2, ORDER_MAX)
        load = _integers(known["load"], "terms.load", 0, c.INTEGER_MAX)
        if not orders or tuple(sorted(set(orders))) != orders:
            raise Malformed("terms.orders", "must ascend")
        if load and len(load) != len(orders):
            raise Malformed("terms.load", "must have one price per order")
        slack = c.integer(known["slack"], "terms.slack", 0, DELTA_ONE)
        return cls(parse_positive(known["delta"], "terms.delta"), orders, load, slack)

    def to_json(self) -> c.Object:
        """The terms, as the entry that opens the partition records them."""
        return {
            "delta": format_number(self.delta),
            "kind": "renyi",
            "load": list(self.load),
            "orders": list(self.orders),
            "slack": self.slack,
            "v": 1,
        }

    @property
    def coordinates(self) -> tuple[str, ...]:
        """One per order, in loss units, and the δ slack, in δ units."""
        return (*(f"order {order}" for order in self.orders), "delta slack")

    @property
    def shared(self) -> Fraction:
        """The part of δ that the orders share."""
        return self.delta - Fraction(self.slack, DELTA_ONE)

    def price(self, mechanism: PoissonGaussian) -> Price:
        """What one step costs at each order; no slack, since its Rényi curve says all."""
        return (*renyi_price(mechanism.probability, mechanism.noise_multiplier, self.orders), 0)

    def cap(self, epsilon: Fraction) -> Cap:
        """Weights and capacities of a cap, a function of the terms and ε alone and so fixed for life.

        Raises:
            NoRoom: if no order is open, with the least ε that would open one.
        """
        return _cap(self, epsilon)

    def admits(self, loss: Loss, cap: Cap) -> bool:
        """Whether the slack holds and, at some open order, no charge is infinite and the sum is within capacity."""
        return self._slack_holds(loss, cap) and any(at <= bound for at, bound in self._open(loss, cap))

    def share(self, loss: Loss, cap: Cap) -> Fraction:
        """The least share used over the open orders (1 if each holds an infinite charge), or the slack's if more."""
        orders = min((Fraction(at, bound) for at, bound in self._open(loss, cap)), default=Fraction(1))
        slack = Fraction(loss.finite[-1], cap.capacity[-1]) if cap.capacity[-1] else Fraction(loss.finite[-1] > 0)
        return max(orders, slack)

    def runs(self, loss: Loss, cap: Cap, run: Loss) -> int:
        """The most runs that fit at one order, and in the slack."""
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

    def odometer(self, loss: Loss, cap: Cap) -> Fraction:
        """The least over orders of r + log(1 - 1/α) - log(w·δ·α)/(α - 1), rounded up to 2^-40; 0 when nothing ran.

        Valid at every stopping time for the cap's fixed weights: with L the total loss and r the losses,
        Σ w·exp((α - 1)(L - r)) is a supermartingale, and each state gives (1 - e^(ε - L))_+ ≤ δ times it.

        Raises:
            ArithmeticError: if every order holds an infinite charge; no finite ε is then proven.
        """
        if loss.empty:
            return Fraction(0)
        told = [
            Fraction(at, NAT) - _bound(order, Fraction(0), self.shared * Fraction(weight, WEIGHT_ONE))
            for place, (order, weight) in enumerate(zip(self.orders, cap.weights, strict=True))
            if weight and (at := loss.at(place)) is not None
        ]
        if not told:
            raise ArithmeticError("every order holds an infinite charge")
        least = max(Fraction(0), min(told)) + Fraction(1, NAT)
        return Fraction(-(-least.numerator * NAT // least.denominator), NAT)


def _integers(value: object, field: str, least: int, most: int) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > ORDERS_MAX:
        raise Malformed(field, f"must be a list of at most {ORDERS_MAX} integers")
    return tuple(c.integer(item, f"{field}[{place}]", least, most) for place, item in enumerate(value))


@lru_cache(maxsize=65_536)
def _bound(order: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """B(α; ε, δ) rounded down: never above the exact value, and less than three units of 2^-40 below it.

    One unit is for ε, one for the logarithms, one more covers the last of their 60 digits.
    """
    wide = _EXACT
    keep = wide.ln(wide.divide(Decimal(order - 1), Decimal(order)))
    share = delta * order
    spend = wide.ln(wide.divide(Decimal(share.numerator), Decimal(share.denominator)))
    exact = wide.subtract(wide.divide(spend, Decimal(order - 1)), keep)
    units = wide.multiply(exact, Decimal(NAT)).to_integral_value(ROUND_FLOOR)
    return Fraction((epsilon.numerator * NAT) // epsilon.denominator + int(units) - 1, NAT)


def _best_order(epsilon: Fraction, delta: Fraction, price: dict[int, int]) -> int:
    """The order at which most runs of this price would fit were it alone; the least closed one if none is open."""
    return max(price, key=lambda order: (_bound(order, epsilon, delta) / max(1, price[order]), -order))


def _load_prices(load: PoissonGaussian) -> dict[int, int]:
    price = renyi_price(load.probability, load.noise_multiplier, tuple(range(2, LOAD_ORDER_MAX + 1)))
    return {order: unit for order, unit in enumerate(price, start=2) if unit is not None}


@lru_cache(maxsize=4_096)
def _cap(rule: Renyi, epsilon: Fraction) -> Cap:
    price = rule.load or rule.orders
    split = _SPLIT_DECLARED if rule.load else _SPLIT
    ranked = sorted(
        range(len(rule.orders)),
        key=lambda place: -_bound(rule.orders[place], epsilon, rule.shared) / max(1, price[place]),
    )
    for kept in range(min(len(split), len(ranked)), 0, -1):
        shares = (WEIGHT_ONE - sum(split[1:kept]), *split[1:kept])
        weights = dict(zip(ranked[:kept], shares, strict=True))
        bounds = {
            place: _bound(rule.orders[place], epsilon, rule.shared * Fraction(weight, WEIGHT_ONE))
            for place, weight in weights.items()
        }
        if all(bound > 0 for bound in bounds.values()):
            return Cap(
                epsilon,
                tuple(weights.get(place, 0) for place in range(len(rule.orders))),
                (
                    *(int(bounds[place] * NAT) if place in bounds else None for place in range(len(rule.orders))),
                    rule.slack,
                ),
            )
    least = min(-_bound(order, Fraction(0), rule.shared) for order in rule.orders)
    raise NoRoom(epsilon, max(least, Fraction(0)) + Fraction(1, 1000))
