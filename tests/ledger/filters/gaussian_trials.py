"""The rule ``gaussian`` in the abstract: each mechanism is certified within τ of a Gaussian, and μ² and τ add up.

``research/rules.md``, section 3. In units of 2^-40 for μ² and 2^-52 for τ; costs round up, capacities down.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor

from ledger.filters import Cap
from ledger.filters.gaussian import GaussianRule
from ledger.mechanisms.loss import Loss
from ledger.wire.exact_numbers import DELTA_ONE, NAT
from tests.ledger.filters.adversary import Library
from tests.ledger.filters.game import Charging, Game, Run
from tests.ledger.filters.lattice import Pair, certificate, gaussian_delta
from tests.ledger.filters.libraries import leaky, pairs, random_mechanism, random_runs, thinned

REFUSED = Loss((0, 0), (1, 1))


@dataclass(frozen=True)
class GaussianTrial:
    """A library and its runs, under H_ε(G_μ) + slack."""

    mechanisms: Library
    runs: list[Run]
    mu: float
    slack: float
    epsilon: float

    @property
    def delta(self) -> float:
        """The promise."""
        return gaussian_delta(self.mu, self.epsilon) + self.slack

    def reached(self, *, one_direction: bool = False) -> float:
        """The most that is reached, as a multiple of δ; with certificates that look one way only, or both."""
        library = pairs(self.mechanisms)
        delta, slack = Fraction(self.delta), floor(self.slack * DELTA_ONE)
        rule = GaussianRule(delta, Fraction(self.epsilon), slack, (slack,))
        cap = Cap(rule.epsilon, (floor(self.mu**2 * NAT), slack))

        def admits(loss: Loss) -> bool:
            return rule.admits(loss, cap)

        prices = [self._price(one, one_direction=one_direction) for one in library]
        game = Game.explore(Charging.per_step(self.runs, prices, admits), self.runs, together=2, admissions=4)
        return game.reached(library, lambda _: self.epsilon) / self.delta

    def _price(self, one: Pair, *, one_direction: bool) -> Loss:
        """Without slack where that costs at most a tenth of the capacity, else with a twelfth of the slack a step."""
        laws = [one.forward] if one_direction else [one.forward, one.backward]
        for tau in (0.0, self.slack / 12):
            mu = certificate(laws, one.step, tau)
            if mu is not None and (tau or mu * mu <= self.mu**2 / 10):
                return Loss((ceil(mu * mu * NAT), ceil(tau * DELTA_ONE)), (0, 0))
        return REFUSED


def random_gaussian_trial(seed: int) -> GaussianTrial:
    """Three mechanisms, the one or other thinned or leaking, in runs of one to three steps."""
    source = random.Random(seed)  # noqa: S311 - the same libraries every time
    library = [random_mechanism(source, source.choice([4, 8])) for _ in range(3)]
    library[0] = thinned(library[0], Fraction(source.randint(1, 16), 16))
    if source.random() < 0.5:
        library[2] = leaky(library[2], Fraction(1, source.choice([2000, 20_000])))
    mu, slack = source.choice([0.6, 0.9, 1.3]), source.choice([1e-4, 1e-3, 1e-2])
    return GaussianTrial(tuple(library), random_runs(source, 3), mu, slack, source.choice([0.3, 0.6, 1.0]))
