"""Libraries on which the rule ``renyi`` is tried: random ones, and ones searched to hurt it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations_with_replacement, product
from math import inf, log

from ledger.filters import NoRoom
from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Loss
from tests.ledger.accounting.exact import capacity
from tests.ledger.filters.adversary import Library, Mechanism
from tests.ledger.filters.game import Charging, Game, Run
from tests.ledger.filters.lattice import Pair
from tests.ledger.filters.libraries import (
    STEP,
    counted,
    curve_of,
    leaky,
    pairs,
    random_mechanism,
    random_runs,
    response,
    spike,
)

FINE = Fraction(6, 5)
"""Steps of log(6/5), on which the tuned spikes lie."""


@dataclass(frozen=True)
class Trial:
    """A library, the runs that may be asked for, and a budget under a rule."""

    mechanisms: Library
    runs: list[Run]
    rule: Renyi
    epsilon: Fraction
    step: float = STEP

    @property
    def pairs(self) -> list[Pair]:
        """The library on its lattice."""
        return pairs(self.mechanisms, self.step)

    def charging(self) -> Charging:
        """What the rule itself admits under its cap, at exact prices rounded up."""
        cap = self.rule.cap(self.epsilon)
        return self._priced(lambda loss: self.rule.admits(loss, cap))

    def _priced(self, admits: Callable[[Loss], bool]) -> Charging:
        return Charging.per_step(self.runs, [one.loss(self.rule.orders) for one in self.mechanisms], admits)

    def filtered(self, *, together: int = 2, admissions: int = 4) -> float:
        """The most that is reached under the rule, as a multiple of δ."""
        game = Game.explore(self.charging(), self.runs, together=together, admissions=admissions)
        return self._multiple(game, lambda _: float(self.epsilon))

    def by_curve(self, *, together: int = 1, admissions: int = 3) -> float:
        """The same under the unsound habit: the exact curve of all that was charged against the budget."""
        curve, width = curve_of(self.pairs), len(self.mechanisms)
        prices = [counted(*(int(at == place) for at in range(width))) for place in range(width)]
        rule = Charging.per_step(
            self.runs, prices, lambda loss: curve(loss.finite, float(self.epsilon)) <= float(self.rule.delta)
        )
        game = Game.explore(rule, self.runs, together=together, admissions=admissions)
        return self._multiple(game, lambda _: float(self.epsilon))

    def told(self, by: Renyi, *, together: int = 2, admissions: int = 3) -> float:
        """The most that is reached beyond the odometer's claim, whatever is admitted: posted and pending in full."""
        game = Game.explore(self._priced(lambda _: True), self.runs, together=together, admissions=admissions)
        return self._multiple(game, lambda loss: odometer(by, loss))

    def _multiple(self, game: Game[Loss], told: Callable[[Loss], float]) -> float:
        return game.reached(self.pairs, told) / float(self.rule.delta)


def odometer(rule: Renyi, loss: Loss) -> float:
    """What is told; nothing bounds a loss that is infinite at every order."""
    try:
        return float(rule.odometer(loss))
    except ArithmeticError:
        return inf


class Unsplit(Renyi, frozen=True, tag="unsplit"):
    """The unsound habit: the whole of δ at every order. No partition can open with such weights."""

    def __post_init__(self) -> None:
        """Weights are not held to their sum."""


def unsplit(rule: Renyi) -> Renyi:
    """The same orders, each with the whole of δ."""
    return Unsplit(rule.delta, rule.orders, (1_000,) * len(rule.orders))


def random_trial(seed: int) -> Trial:
    """Three mechanisms in runs of one to three steps, and a δ that half of all triples of runs keep."""
    source = random.Random(seed)  # noqa: S311 - the same libraries every time
    library = [random_mechanism(source, source.choice([6, 12])) for _ in range(3)]
    if source.random() < 0.25:
        library[2] = leaky(library[2], Fraction(1, source.choice([200, 2000])))
    runs, epsilon = random_runs(source, 3), Fraction(source.randint(4, 20), 10)
    curve = curve_of(pairs(tuple(library)))
    deltas = sorted(
        curve(tuple(sum(run.steps for run in three if run.mechanism == at) for at in range(3)), float(epsilon))
        for three in combinations_with_replacement(runs, 3)
    )
    delta = Fraction(min(0.2, max(1e-5, deltas[len(deltas) // 2]))).limit_denominator(10**9)
    try:
        rule = with_closed(delta, epsilon)
    except NoRoom as closed:
        epsilon = Fraction(int((closed.least + Fraction(1, 2)) * 100), 100)
        rule = with_closed(delta, epsilon)
    return Trial(tuple(library), runs, rule, epsilon)


def with_closed(delta: Fraction, epsilon: Fraction) -> Renyi:
    """Terms of a partition opened when closed orders kept their share; more orders to choose from for an analyst."""
    bounds = {order: capacity(order, epsilon, delta) for order in range(2, 257)}
    room = {order: bound / order for order, bound in bounds.items() if bound > 0} or bounds
    best = max(room, key=lambda order: (room[order], -order))
    orders = tuple(dict.fromkeys((best, max(2, best * 8 // 10), max(2, best * 6 // 10))))
    for split in ((600, 200, 200), (800, 200), (500, 500), (1_000,)):
        chosen = orders[: len(split)]
        shares = (1_000 - sum(split[1 : len(chosen)]), *split[1 : len(chosen)])
        pairs = sorted(zip(chosen, shares, strict=True))
        rule = Renyi(delta, tuple(order for order, _ in pairs), tuple(share for _, share in pairs), 0, 2)
        if any(bound and bound > 0 for bound in rule.bounds(epsilon)):
            break
    rule.cap(epsilon)
    return rule


def fitting(order: int, room: int, height: int, steps: int) -> Mechanism | None:
    """The likeliest spike of so many steps of which a run takes all the room at one order; None if none fits."""
    low, high = 0, 4 * 10**8
    while high - low > 1_000:
        middle = (low + high) // 2
        made = spike(Fraction(middle, 10**9), height, FINE)
        cost = made.loss((order,)) if min(p for p, _ in made.pairs) >= 0 else None
        fits = cost is not None and not cost.infinite[0] and steps * cost.finite[0] <= room
        low, high = (middle, high) if fits else (low, middle)
    return spike(Fraction(low, 10**9), height, FINE) if low else None


def tuned_trials(rule: Renyi, epsilon: Fraction, heights: tuple[int, ...], steps: int) -> Iterator[Trial]:
    """A response to branch on, and per order a run of spikes that takes all its capacity and together passes ε."""
    over = int(epsilon / Fraction(log(FINE))) // steps
    first = response(1, FINE)
    spent, capacity = first.loss(rule.orders).finite, rule.cap(epsilon).capacity
    spikes = [
        [fitting(order, (capacity[at] or 0) - spent[at], over + height, steps) for height in heights]
        for at, order in enumerate(rule.orders)
    ]
    for picked in product(*spikes):
        library = (first, *(one for one in picked if one is not None))
        runs = [Run(0, 1), *(Run(at, steps) for at in range(1, len(library)))]
        yield Trial(library, runs, rule, epsilon, log(FINE))
