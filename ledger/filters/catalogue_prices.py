"""Prices for a catalogue: how many ticks a block of each type costs, for the mix of runs that a provider declares.

The price line decides what a capacity admits: the more a type costs, the more runs of the others fit. A provider
chooses a corner by the numbers of runs that it admits; without a choice, the prices are those that admit the most loads
like the declared one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Final

from ledger.accounting.pld_counting import count_capacity, estimate_count
from ledger.filters.rule import Opening
from ledger.filters.step_types import PRICE_MAX, TYPES_MAX, StepType, dominating, potential
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.mechanism import Mechanism, PoissonGaussian
from ledger.mechanisms.price_proofs import REPLACE
from ledger.wire.canonical_json import Object
from ledger.wire.exact_numbers import DELTA_ONE, format_number
from ledger.wire.malformed import Malformed

DELTA_LEAST: Final = Fraction(1, 10**6)
"""An odometer's checkpoint has a tenth of δ: below a tenth of this the rounding of convolutions would decide."""
TICKS_MAX: Final = 1_024
"""The most ticks of a capacity. For twice as many a potential takes seconds, and at an ε of 3 about sixty megabytes."""
BLOCKS: Final = 80
"""About how many blocks of one type fit alone: a block is a small part of a budget."""
_PRICED: Final = 4
"""With several types, blocks are this many times longer, so that prices of several ticks have room."""
_PRICES: Final = 12
"""The greatest price that the search tries, in ticks."""
_FEW: Final = 2
"""With more kinds of steps than this the search is coarser, so that eight take five seconds of a core at most:
rougher counts of what fits alone, one round, prices of fewer ticks until the last, and a coarser lattice."""
_COARSER: Final = 4
"""How many times fewer points the lattice of such a search has. It ranks price lines, and every one that is returned is
computed anew on the lattice of the rule."""
_PRICES_OF_MANY: Final = 24
"""With more kinds the greatest price is this many ticks divided by their number, and at least four."""
_OFFERED: Final = TYPES_MAX + 1
"""Price lines of many kinds that are offered: each is computed anew."""
_ROUNDS: Final = 2
_MOVES: Final = (1.0, 0.6, 0.8, 1.25, 1.6)
"""Factors by which one kind's price is moved."""


@dataclass(frozen=True, slots=True)
class Corner:
    """A choice of prices, and what it admits.

    Attributes:
        types: the kinds of steps, each with its block and its price.
        capacity: how many ticks keep the budget at these prices.
        alone: how many runs of each kind fit if there is no other: as much of each kind's steps as the load has.
        loads: how many whole loads fit.
    """

    types: tuple[StepType, ...]
    capacity: int
    alone: tuple[int, ...]
    loads: int

    @property
    def prices(self) -> tuple[int, ...]:
        """The price in ticks of a block of each type."""
        return tuple(step_type.ticks for step_type in self.types)

    def to_json(self) -> Object:
        """The form in a planning report."""
        return {
            "alone": list(self.alone),
            "blocks": [step_type.steps for step_type in self.types],
            "loads": self.loads,
            "prices": list(self.prices),
            "ticks": self.capacity,
        }


def choose_prices(opening: Opening) -> Corner:
    """The declared corner, or the one that admits the most loads. Raises: Malformed."""
    search = _Search(opening)
    prices = search.best() if opening.prices is None else _declared(opening.prices, len(search.blocks))
    return search.corner(prices)


def corners(opening: Opening) -> list[Corner]:
    """Price lines to choose from, in descending order of the first kind's runs. Raises: Malformed."""
    offered = _Search(opening).corners()
    different = {corner.alone: corner for corner in offered if max(corner.prices) <= corner.capacity}
    return sorted(different.values(), key=lambda one: one.alone, reverse=True)


class _Search:
    """Tries price lines around the one at which each kind alone fills the budget; moves one kind's price at a time."""

    def __init__(self, opening: Opening) -> None:
        self._epsilon = opening.caps[0]
        self._certain = opening.delta - Fraction(opening.slack, DELTA_ONE)
        require_delta(self._certain)
        _require_added(opening.relation)
        runs: dict[PoissonGaussian, list[int]] = {}
        for count, step in to_steps(opening.load) if opening.load else ():
            runs.setdefault(_sampled(step), []).append(count)
        if not 1 <= len(runs) <= TYPES_MAX:
            raise Malformed(
                "load", f"must be of 1 to {TYPES_MAX} kinds of Poisson-sampled Gaussian steps: they are the types"
            )
        self._many = len(runs) > _FEW
        self._coarser = _COARSER if self._many else 1
        self._runs = tuple(runs.values())
        self._fit = [self._fits(step) for step in runs]
        most = TICKS_MAX if len(runs) == 1 else TICKS_MAX // _PRICED
        self.blocks = tuple(
            _block(step, min(counts), fit, most) for (step, counts), fit in zip(runs.items(), self._fit, strict=True)
        )
        self._tried: dict[tuple[int, ...], Corner] = {}
        """On the lattice of the search."""

    def _fits(self, step: PoissonGaussian) -> int:
        """How many of these steps keep the budget alone."""
        fit = estimate_count(step, self._epsilon, self._certain) if self._many else 0
        fit = fit or count_capacity(step, self._epsilon, self._certain)
        if not fit:
            raise Malformed("epsilon", f"has no room for one step of noise {format_number(step.noise_multiplier)}")
        return fit

    def best(self) -> tuple[int, ...]:
        """The prices that admit the most loads, of all that the search tries."""
        return max(self._search(), key=self.loads).prices

    def corners(self) -> list[Corner]:
        """The corner of every price line that was tried; of many kinds, of the best lines for each and for all."""
        if not self._many:
            return self._search()
        tried = sorted(self._search(), key=self.loads, reverse=True)
        most = [max(tried, key=lambda one: one.alone[kind]).prices for kind in range(len(self.blocks))]
        lines = dict.fromkeys((tried[0].prices, *most, *(one.prices for one in tried)))
        return [self.corner(prices) for prices in islice(lines, _OFFERED)]

    def _search(self) -> list[Corner]:
        """Try price lines. Raises: Malformed."""
        if self._tried:
            return list(self._tried.values())
        ratios = [block.steps / fit for block, fit in zip(self.blocks, self._fit, strict=True)]
        self._corner_near(ratios)
        for _ in range(1 if self._many else _ROUNDS):
            for place in range(1, len(ratios)):
                moved = [[*ratios[:place], ratios[place] * by, *ratios[place + 1 :]] for by in _MOVES]
                ratios = max(moved, key=lambda candidate: self.loads(self._corner_near(candidate)))
        if self._many:
            self._try(whole_prices(ratios, _PRICES))
        return list(self._tried.values())

    def _corner_near(self, ratios: Sequence[float]) -> Corner:
        return self._try(whole_prices(ratios, max(4, _PRICES_OF_MANY // len(ratios)) if self._many else _PRICES))

    def _try(self, prices: tuple[int, ...]) -> Corner:
        if prices not in self._tried:
            self._tried[prices] = self._evaluated(prices, self._coarser)
        return self._tried[prices]

    def corner(self, prices: tuple[int, ...]) -> Corner:
        """The corner of these prices, on the lattice of the rule. Raises: Malformed."""
        found = self._tried.get(prices) if self._coarser == 1 else None
        found = found or self._evaluated(prices, 1)
        if found.capacity < min(prices):
            raise Malformed("prices", f"leave no room for a block: the budget is {found.capacity} ticks")
        return found

    def _evaluated(self, prices: tuple[int, ...], coarser: int) -> Corner:
        types = tuple(
            StepType(block.noise_multiplier, block.probability, block.steps, price)
            for block, price in zip(self.blocks, prices, strict=True)
        )
        induction = potential(self._epsilon, self._certain, types, coarser)
        capacity = induction.capacity(self._epsilon, self._certain, TICKS_MAX)
        costs = self._costs(types)
        return Corner(types, capacity, tuple(capacity // cost for cost in costs), capacity // sum(costs))

    def loads(self, corner: Corner) -> Fraction:
        """How many loads fit, and the part of one more."""
        return Fraction(corner.capacity, sum(self._costs(corner.types)))

    def _costs(self, types: Sequence[StepType]) -> list[int]:
        """Ticks of each kind's part of a load."""
        pairs = zip(self._runs, types, strict=True)
        return [
            sum(math.ceil(count / step_type.steps) for count in runs) * step_type.ticks for runs, step_type in pairs
        ]


def require_delta(certain: Fraction) -> None:
    """Raises: Malformed, if the part of δ that is not slack is too small for the rounding of convolutions."""
    if not DELTA_LEAST <= certain < 1:
        raise Malformed("delta", "must be at least 1e-6 beyond the slack, and less than 1, for the rule catalogue")


def _require_added(relation: str) -> None:
    if relation == REPLACE:
        raise Malformed("relation", f"{relation} has no proven dominating pair for the rule catalogue")


def _sampled(step: Mechanism) -> PoissonGaussian:
    sampled = dominating(step)
    if sampled is None:
        raise Malformed("load", f"must be of Poisson-sampled Gaussian steps, and holds a step of {step.kind}")
    return sampled


def _block(step: PoissonGaussian, count: int, fit: int, most: int) -> PoissonGaussian:
    """The steps of a block: a run of ``count`` is whole blocks, and a block is a small part of what fits."""
    in_run = max(1, round(count * BLOCKS / fit))
    steps = max(math.ceil(count / in_run), math.ceil(fit / most))
    return PoissonGaussian(step.probability, step.noise_multiplier, steps)


def _declared(prices: Sequence[int], kinds: int) -> tuple[int, ...]:
    if len(prices) != kinds:
        raise Malformed("prices", f"must be {kinds}, one for each kind of step in the load")
    if not all(1 <= price <= PRICE_MAX for price in prices):
        raise Malformed("prices", f"must be 1 to {PRICE_MAX} ticks each")
    return tuple(prices)


def whole_prices(ratios: Sequence[float], most: int) -> tuple[int, ...]:
    """The smallest whole prices in about these ratios, the greatest at most ``most`` ticks."""

    def rounded(greatest: int) -> tuple[int, ...]:
        return tuple(max(1, round(ratio * greatest / max(ratios))) for ratio in ratios)

    def error(prices: tuple[int, ...]) -> float:
        scale = max(prices) / max(ratios)
        return max(abs(math.log(price / (ratio * scale))) for price, ratio in zip(prices, ratios, strict=True))

    candidates = [rounded(greatest) for greatest in range(1, most + 1)]
    return next((prices for prices in candidates if error(prices) < 0.05), min(candidates, key=error))
