"""Two odometers of the runs that a model descends from, computed from their plans: tighter than a partition's rule.

A partition's rule knows few orders, or a count, chosen for what the partition was opened for. Of the runs that one
model descends from the plans are known, and they are often one plan repeated, or a plan and shorter ones. Each
odometer has a part d of δ that was fixed beforehand, and is valid at every moment, whatever the plan of the next run
and whether there is one depend on.

**Rényi orders.** With K fixed orders, L the loss of all runs and r_α the sum of their divergences at α, the sum Σ_α
exp((α - 1)(L - r_α))/K is a supermartingale (as for the rule ``renyi``), and (1 - e^(ε - L))_+ is at most d times it
for ε = min_α r_α + log(1 - 1/α) - log(d·α/K)/(α - 1). So E[(1 - e^(ε - L))_+] <= d. The δ of black boxes, whose sum
may depend on outputs, has no place in it: with one of them this odometer proves nothing.

**Repeated steps.** The runs are grouped by the step that they repeat. In each group a quarter of the first run is a
*unit*, and every run counts as so many whole units as cover it. The g-th group, in the order of their first charges,
has d·2^-g, and its count of n units has the weight w_n of that, Σw_n <= 1 (:func:`weight`: half for whole multiples
of the first run, half for all). Reported is the sum over the groups of the ε that n units of a group keep at
d·2^-g·w_n, by the privacy loss distribution of so many steps. A group's step and unit are fixed when its first run is
charged. Draw for it, one after the other, samples of the step's dominating pair, and let each of its runs be a
post-processing of the next ones (what a run leaves unused of its units is drawn and not looked at), the same for both
neighbours. Then the loss of all runs is that of a post-processing of these samples. For fixed n, with L_g(n) the loss
of the first n units,

    E[(1 - e^(ε_g(n) - L_g(n)))_+] <= d·2^-g·w_n.

The n_g units that were counted in the end depend on outputs, and the sum over all n bounds what they reach: d·2^-g.
From 1 - Πx_g <= Σ(1 - x_g) with x_g = min(1, e^(ε_g(n_g) - L_g(n_g))), and since a post-processing reaches no more,

    E[(1 - e^(Σε_g(n_g) - L))_+] <= Σ_g E[(1 - e^(ε_g(n_g) - L_g(n_g)))_+] <= Σ_g d·2^-g <= d.

With the whole of δ for every count of units, or for every second plan that might be chosen, an analyst who stops
where the number is exceeded reaches more than δ; the tests play both. Runs of others between these are part of what
the analyst sees. Both bound runs that were chosen one after the other. An analyst who compares finished runs, and lets
a model descend from the one whose outputs reveal most, chooses among several such numbers, which do not hold at one δ
together; an account's does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ledger.accounting.epsilon_report import reported_epsilon, slack
from ledger.accounting.renyi import divergence
from ledger.accounting.renyi_closed_forms import conversion
from ledger.filters import Rule
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.loss import Loss
from ledger.mechanisms.mechanism import STEPS_MAX, Mechanism, SelfComposed
from ledger.mechanisms.price_proofs import NotPriced
from ledger.wire.exact_numbers import DELTA_MIN
from ledger.wire.malformed import Malformed

ORDERS: Final = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128)
"""Fixed for all partitions, with equal weights."""
GROUPS_MAX: Final = 8
"""Kinds of steps that are computed together; a privacy loss distribution for each."""
UNITS: Final = 4
"""How many units the first run of a group has."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """Runs of one kind of step.

    Attributes:
        first: steps of the first run.
        units: quarters of it that the runs count as, together.
    """

    step: Mechanism
    first: int
    units: int

    def epsilon(self, delta: Fraction, relation: str) -> Fraction | None:
        """The ε that all units keep at this part of δ, before their count's weight; None if none is proven."""
        count, share = -(-self.first * self.units // UNITS), delta * weight(self.units)
        if share < DELTA_MIN or count > STEPS_MAX:
            return None
        try:
            return reported_epsilon(SelfComposed(count, self.step), share, relation)
        except (Malformed, NotPriced):
            return None


def weight(units: int) -> Fraction:
    """The weight of a count of units: Σ 1/(n(n+1)) is 1 from 1 on, and 1/4 from 4 on; each half sums to 1/2."""
    whole, rest = divmod(units, UNITS)
    every = Fraction(UNITS, 2 * units * (units + 1))
    return every if rest else every + Fraction(1, 2 * whole * (whole + 1))


def repeated(runs: Sequence[Mechanism]) -> tuple[Repeated, ...]:
    """The groups of runs, in the order of their first ones. A run of several kinds of steps is one step of its own."""
    groups: dict[Mechanism, Repeated] = {}
    for run in runs:
        pieces = to_steps(run)
        count, step = pieces[0] if len(pieces) == 1 else (1, run)
        group = groups.get(step, Repeated(step, count, 0))
        groups[step] = Repeated(step, group.first, group.units - (-UNITS * count // group.first))
    return tuple(groups.values())


def repeated_epsilon(runs: Sequence[Mechanism], delta: Fraction, relation: str) -> Fraction | None:
    """The odometer of repeated steps at its part of δ, of runs in the order of their charges.

    None if it proves no finite ε. Slow for plans that are new, cached afterwards.
    """
    groups = repeated(runs)
    if len(groups) > GROUPS_MAX:
        return None
    bounds = [group.epsilon(delta / 2**place, relation) for place, group in enumerate(groups, 1)]
    finite = [epsilon for epsilon in bounds if epsilon is not None]
    return sum(finite, Fraction(0)) if len(finite) == len(bounds) else None


def least_odometer(rule: Rule, total: Loss, runs: Sequence[Mechanism], relation: str) -> tuple[str, Fraction | None]:
    """The name and ε of the least of three odometers of a partition's runs; None if none proves a finite ε.

    The rule's own has half of δ less slack, as its terms say, and those of the plans a quarter each. On the event that
    one of them is the least it fails with at most its part: the least keeps δ, the slack included. Terms that leave all
    of δ to the rule's odometer leave nothing to others.

    Args:
        total: the sum of the runs' prices, each in full.
        runs: in the order of their charges.
    """
    bounds: dict[str, Fraction | None] = {f"{rule.kind()} odometer": _own(rule, total)}
    if rule.odometers is not None:
        share = rule.odometer_delta / 2
        bounds["Rényi odometer of the plans"] = orders_epsilon(runs, share, relation)
        bounds["PLD odometer of the plans"] = repeated_epsilon(runs, share, relation)
    return min(bounds.items(), key=lambda item: (item[1] is None, item[1] or 0))


def _own(rule: Rule, total: Loss) -> Fraction | None:
    try:
        return rule.odometer(total)
    except ArithmeticError:
        return None


def orders_epsilon(runs: Sequence[Mechanism], delta: Fraction, relation: str) -> Fraction | None:
    """The odometer of Rényi orders at its part of δ; None if a run is infinite at all of them, or holds a black box."""
    if any(slack(run) for run in runs):
        return None
    bounds = []
    for order in ORDERS:
        rhos = [divergence(run, relation, order) for run in runs]
        finite = [rho for rho in rhos if rho is not None]
        if len(finite) == len(rhos):
            bounds.append(sum(finite, Fraction(0)) - conversion(order, delta / len(ORDERS)))
    return max(Fraction(0), min(bounds)) if bounds else None
