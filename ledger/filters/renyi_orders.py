"""How the orders of a partition with the rule ``renyi`` are chosen, and how they share δ.

Without a declared load most of δ goes to orders that are good for Gaussian-like runs; with one, part of it goes to the
orders at which most runs like it fit. An order that is closed at the greatest cap stays closed, so the others have its
share.

**A declaration may be wrong.** What it gives to one order it takes from others, and that shows: where an order α has
a smaller share than without the declaration, and no order below α has as much capacity as α had, a loss that is exactly
what fitted at α, as great at the orders below, and infinite above, is not admitted any more. So no division that is
fixed when the partition opens is never worse than none (``tests/ledger/filters/test_declared_loads.py`` finds such a
loss wherever a declaration moves anything).

**So the first run decides.** The terms of a partition with a declared load hold two divisions, the undeclared and the
declared one. The first charge that is admitted chooses one of them, for good: the declared one if more runs like this
first one fit with it under one of the caps of the opening, and under none of them does such a run take a greater share
of the capacity; else the undeclared one. So a declaration costs nothing at all unless the first run gains by it.

This is sound. The plan of the first charge is computed from public data, coins and outputs on other partitions. None of
these depends on the one unit of this partition in which two neighbouring datasets differ, since partitions are disjoint
in units. So it has the same distribution for both. Given the plan, the division is fixed before any output of the
partition is there, and the filter and the odometers of :mod:`ledger.filters.renyi` keep their (ε, δ) with it; the
average over plans then keeps it too. A later choice would depend on outputs, and could reach twice δ.

**A load that begins as declared, and then changes,** may lose. The loss has a bound, which :func:`declared_shares`
keeps for every cap of the opening, whatever is declared:

* Runs whose divergence grows at least in proportion to the order, as that of Gaussian noise does, sampled or not: of
  every n runs that fit without a declaration at least three quarters of n fit, rounded down.
* Any other runs: at least half, rounded down.

Proof. Let a sum of losses r be admitted without a declaration at order α, so r(α) ≤ B(α), and let order β ≤ α have the
capacity B' in the declared division. A Rényi divergence does not fall as its order grows (van Erven and Harremoës 2014,
Theorem 3), so r(β) ≤ r(α), and k of the n equal runs fit at β if k/n ≤ B'/B(α). If it grows at least in proportion,
r(β) ≤ (β/α)·r(α), and k/n ≤ (α/β)·B'/B(α) suffices. The best β for each α is taken, and the worst α. For other works
than equal runs the same holds of the sum: if it was admitted, 3/4 of it, or half, is.

Within this bound the declared division is one with which nine tenths of the declared runs fit that would fit if the
declaration had all of δ, or as many of them as the bound allows; and among such divisions the one that keeps most of
other runs. Where it gains no declared run there is one division only: see ``docs/rules.md``.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from operator import lt, mul
from typing import Final

from ledger.accounting.renyi import price
from ledger.accounting.renyi_closed_forms import conversion
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.mechanism import Mechanism
from ledger.wire.exact_numbers import NAT

ORDER_MAX: Final = 256
LOAD_ORDER_MAX: Final = 64
WEIGHT_ONE: Final = 1_000
_UNDECLARED: Final = ((600, 200, 200), (800, 200), (500, 500), (1_000,))
"""Splits of δ that are robust against undeclared loads; fewer orders if a tight cap needs more δ at one order."""
_DECLARED: Final = ((900, 50, 50), (950, 50), (500, 500), (1_000,))
_EVERY: Final = {order: order for order in range(2, ORDER_MAX + 1)}
"""A Gaussian's price at each order, up to a factor."""
_PARTS: Final = tuple(Fraction(part, 16) for part in range(16, -1, -1))
"""The part of δ that is divided as without a declaration."""
_SUITS: Final = Fraction(9, 10)
KEPT_IN_PROPORTION: Final = Fraction(3, 4)
"""The part of runs with at least proportionally growing divergence that fits whatever is declared."""
KEPT_OF_ANY: Final = Fraction(1, 2)
Shares = dict[int, int]
"""Per order, its share of δ in thousandths; together at most a thousand."""


def undeclared_shares(caps: tuple[Fraction, ...], delta: Fraction) -> Shares:
    """The orders of a partition with these caps and no declared load, and their shares of this δ."""
    return dict(_undeclared(caps, delta))


@lru_cache(maxsize=256)
def _undeclared(caps: tuple[Fraction, ...], delta: Fraction) -> tuple[tuple[int, int], ...]:
    # Partitions of one dataset mostly open with the same terms, and to try every order takes over ten milliseconds.
    return tuple(_open_shares(caps, delta, _EVERY, _UNDECLARED).items())


def declared_shares(caps: tuple[Fraction, ...], delta: Fraction, load: dict[int, int]) -> Shares | None:
    """The same with a load, given by its price at each order; None where that gains no run of the load.

    Where the undeclared division leaves a cap closed, there is nothing to be worse than: then any that opens it.
    """
    undeclared, declared = undeclared_shares(caps, delta), _open_shares(caps, delta, load, _DECLARED)
    targets = [-int(-_SUITS * int(_room(declared, epsilon, delta, load)) // 1) for epsilon in caps]
    before = [_room(undeclared, epsilon, delta, load) for epsilon in caps]
    best, chosen = ([-1] * len(caps), Fraction(0)), None
    if opens(undeclared, caps, delta):
        best = list(map(min, map(int, before), targets)), Fraction(1)
    for part in _PARTS:
        mixed = _without_closed(_mixed(declared, undeclared, part), max(caps), delta)
        feasible = _kept(mixed, undeclared, caps, delta)
        after = [_room(mixed, epsilon, delta, load) for epsilon in caps]
        if feasible is None or not opens(mixed, caps, delta) or any(map(lt, after, before)):
            continue
        good = list(map(min, map(int, after), targets)), feasible
        if good > best:
            best, chosen = good, mixed
    return chosen


def load_prices(load: Mechanism, relation: str) -> dict[int, int]:
    """The cost of the whole load at each order at which it is finite, in loss units. Raises: NotPriced."""
    orders = tuple(range(2, LOAD_ORDER_MAX + 1))
    pieces = [(count, price(step, relation, orders)) for count, step in to_steps(load)]
    columns = zip(orders, zip(*(units for _, units in pieces), strict=True), strict=True)
    finite = {order: tuple(unit for unit in column if unit is not None) for order, column in columns}
    whole = {order: column for order, column in finite.items() if len(column) == len(pieces)}
    counts = [count for count, _ in pieces]
    return {order: sum(map(mul, counts, column)) for order, column in whole.items()}


def order_bound(order: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    """B(α; ε, δ) rounded down: never above the exact value, and less than three units of 2^-40 below it."""
    return Fraction((epsilon.numerator * NAT) // epsilon.denominator, NAT) + conversion(order, delta)


def _open_shares(
    caps: tuple[Fraction, ...], delta: Fraction, price: dict[int, int], splits: tuple[tuple[int, ...], ...]
) -> Shares:
    """The first split of δ that opens every cap, else the last: the best order of each cap, then ones below."""
    best = [_best_order(epsilon, delta, price) for epsilon in caps]
    below = [max(2, best[0] * tenths // 10) for tenths in (8, 6)]
    orders = list(dict.fromkeys((*best, *below)))
    candidates = [_without_closed(_split(orders, split), max(caps), delta) for split in splits]
    return next((shares for shares in candidates if opens(shares, caps, delta)), candidates[-1])


def _split(orders: list[int], split: tuple[int, ...]) -> Shares:
    chosen = orders[: len(split)]
    # What orders that coincide leave over goes to the first.
    shares = (WEIGHT_ONE - sum(split[1 : len(chosen)]), *split[1 : len(chosen)])
    return dict(zip(chosen, shares, strict=True))


def _without_closed(shares: Shares, most: Fraction, delta: Fraction) -> Shares:
    """The orders that the greatest cap leaves open, with the shares of the others in proportion; all if none is."""
    opened = {order: share for order, share in shares.items() if _bound_at(order, share, most, delta) > 0}
    return _whole({order: Fraction(share) for order, share in (opened or shares).items()})


def _mixed(declared: Shares, undeclared: Shares, part: Fraction) -> Shares:
    """This part of δ as in one, and the rest as in the other."""
    return _whole(
        {
            order: (1 - part) * declared.get(order, 0) + part * undeclared.get(order, 0)
            for order in dict.fromkeys((*declared, *undeclared))
        }
    )


def _kept(shares: Shares, undeclared: Shares, caps: tuple[Fraction, ...], delta: Fraction) -> Fraction | None:
    """The part of proportionally growing runs that these shares admit, at most 1; None below the module's bound."""
    least = Fraction(1)
    for epsilon in caps:
        bounds = {order: _bound_at(order, share, epsilon, delta) for order, share in shares.items()}
        for order, share in undeclared.items():
            before = _bound_at(order, share, epsilon, delta)
            if before <= 0:
                continue
            below = [(other, bound) for other, bound in bounds.items() if other <= order]
            least = min(least, max((bound * order / other for other, bound in below), default=Fraction(0)) / before)
            if max((bound for _, bound in below), default=Fraction(0)) < KEPT_OF_ANY * before:
                return None
    return least if least >= KEPT_IN_PROPORTION else None


def _whole(shares: dict[int, Fraction]) -> Shares:
    """In proportion, whole thousandths, a thousand together: what rounding leaves goes to the greatest."""
    total, greatest = sum(shares.values()), max(shares, key=lambda order: shares[order])
    whole = {order: int(share * WEIGHT_ONE / total) for order, share in shares.items()}
    whole[greatest] += WEIGHT_ONE - sum(whole.values())
    return {order: share for order, share in whole.items() if share}


def _bound_at(order: int, share: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    return order_bound(order, epsilon, delta * Fraction(share, WEIGHT_ONE))


def opens(shares: Shares, caps: tuple[Fraction, ...], delta: Fraction) -> bool:
    """Whether these shares leave room under every cap."""
    return all(any(_bound_at(order, share, epsilon, delta) > 0 for order, share in shares.items()) for epsilon in caps)


def _room(shares: Shares, epsilon: Fraction, delta: Fraction, load: dict[int, int]) -> Fraction:
    """How many runs of the load fit under a cap, and the part of one more."""
    fit = [
        _bound_at(order, share, epsilon, delta) * NAT / max(1, load[order])
        for order, share in shares.items()
        if order in load
    ]
    return max(Fraction(0), *fit, Fraction(0))


def _best_order(epsilon: Fraction, delta: Fraction, price: dict[int, int]) -> int:
    """The order at which most runs of this price would fit were it alone; the least closed one if none is open."""
    bounds = {order: order_bound(order, epsilon, delta) for order in range(2, ORDER_MAX + 1)}
    fit = {order: bounds[order] / max(1, unit) for order, unit in price.items() if bounds[order] > 0}
    candidates = fit or bounds
    return max(candidates, key=lambda order: (candidates[order], -order))
