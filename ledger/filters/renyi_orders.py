"""How the orders of a partition with the rule ``renyi`` are chosen, and how they share δ; fixed when it opens.

Without a declared load most of δ goes to orders that are good for Gaussian-like runs; with one, to the order at which
most runs like it fit. A declaration may be wrong, and every part of δ that it moves is missed by other work: so a
partition leaves as much of δ as it can where it would be without a declaration, while nine tenths of the declared runs
fit. An order that is closed at the greatest cap stays closed, so the others have its share.
"""

from __future__ import annotations

from fractions import Fraction
from operator import mul
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
"""Robust against undeclared loads; fewer orders where a tight cap needs more of δ at one."""
_DECLARED: Final = ((900, 50, 50), (950, 50), (500, 500), (1_000,))
_EVERY: Final = {order: order for order in range(2, ORDER_MAX + 1)}
"""A Gaussian's price at each order, up to a factor."""
_LEFT: Final = (Fraction(1), Fraction(3, 4), Fraction(1, 2), Fraction(1, 4))
"""The part of δ that stays where it would be without a declaration: the first that suits."""
_SUITS: Final = Fraction(9, 10)
Shares = dict[int, int]
"""Per order, its share of δ in thousandths; together at most a thousand."""


def choose_shares(caps: tuple[Fraction, ...], delta: Fraction, load: dict[int, int]) -> Shares:
    """The orders of a partition with these caps, and their shares of this δ; a load's price at each order, if any."""
    undeclared = _open_shares(caps, delta, _EVERY, _UNDECLARED)
    if not load:
        return undeclared
    declared = _open_shares(caps, delta, load, _DECLARED)
    wanted = [_SUITS * _runs(declared, epsilon, delta, load) for epsilon in caps]
    for part in _LEFT:
        mixed = _without_closed(_mixed(declared, undeclared, part), max(caps), delta)
        fit = [_runs(mixed, epsilon, delta, load) for epsilon in caps]
        if _opens(mixed, caps, delta) and all(one >= least for one, least in zip(fit, wanted, strict=True)):
            return mixed
    return declared


def load_prices(load: Mechanism, relation: str) -> dict[int, int]:
    """What the whole load costs at each order at which it is finite, in loss units. Raises: NotPriced."""
    orders = tuple(range(2, LOAD_ORDER_MAX + 1))
    pieces = [(count, price(step, relation, orders)) for count, step in to_steps(load)]
    columns = zip(orders, zip(*(units for _, units in pieces), strict=True), strict=True)
    known = {order: tuple(unit for unit in column if unit is not None) for order, column in columns}
    whole = {order: column for order, column in known.items() if len(column) == len(pieces)}
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
    tried = [_without_closed(_split(orders, split), max(caps), delta) for split in splits]
    return next((shares for shares in tried if _opens(shares, caps, delta)), tried[-1])


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


def _whole(shares: dict[int, Fraction]) -> Shares:
    """In proportion, whole thousandths, a thousand together: what rounding leaves goes to the greatest."""
    total, greatest = sum(shares.values()), max(shares, key=lambda order: shares[order])
    whole = {order: int(share * WEIGHT_ONE / total) for order, share in shares.items()}
    whole[greatest] += WEIGHT_ONE - sum(whole.values())
    return {order: share for order, share in whole.items() if share}


def _bound_at(order: int, share: int, epsilon: Fraction, delta: Fraction) -> Fraction:
    return order_bound(order, epsilon, delta * Fraction(share, WEIGHT_ONE))


def _opens(shares: Shares, caps: tuple[Fraction, ...], delta: Fraction) -> bool:
    return all(any(_bound_at(order, share, epsilon, delta) > 0 for order, share in shares.items()) for epsilon in caps)


def _runs(shares: Shares, epsilon: Fraction, delta: Fraction, load: dict[int, int]) -> int:
    """How many runs of the load fit under a cap."""
    fit = [
        int(_bound_at(order, share, epsilon, delta) * NAT) // max(1, load[order])
        for order, share in shares.items()
        if order in load
    ]
    return max(0, *fit, 0)


def _best_order(epsilon: Fraction, delta: Fraction, price: dict[int, int]) -> int:
    """The order at which most runs of this price would fit were it alone; the least closed one if none is open."""
    bounds = {order: order_bound(order, epsilon, delta) for order in range(2, ORDER_MAX + 1)}
    fit = {order: bounds[order] / max(1, unit) for order, unit in price.items() if bounds[order] > 0}
    found = fit or bounds
    return max(found, key=lambda order: (found[order], -order))
