"""Analysts against the odometer of an account: the rule's own, and while one run has begun that run's own curve.

The state of the game is what was charged and which runs have begun: a run that is given back before its first step has
not. Curves are those of the lattice itself, computed apart from the product's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import inf
from typing import NamedTuple

from ledger.mechanisms.loss import Loss
from tests.ledger.filters.game import Charging, Game, Run
from tests.ledger.filters.lattice import Pair

Begun = tuple[Loss, tuple[int, ...]]
"""What is charged, and the runs that have begun, by place."""


@dataclass(frozen=True)
class WithRuns:
    """A rule that adds up charges, and the runs that have begun."""

    charging: Charging

    def start(self) -> Begun:
        """Nothing is charged, and no run has begun."""
        return self.charging.start(), ()

    def admit(self, spent: Begun, run: int) -> Begun | None:
        """Charge the whole run; it may begin at once."""
        after = self.charging.admit(spent[0], run)
        return None if after is None else (after, tuple(sorted((*spent[1], run))))

    def settle(self, spent: Begun, run: int, ran: int) -> Begun:
        """Refund what did not run; without a step the run has never begun."""
        begun = list(spent[1])
        if not ran:
            begun.remove(run)
        return self.charging.settle(spent[0], run, ran), tuple(begun)


class Claim(NamedTuple):
    """What is told: the rule's own ε of a loss, and the first run's curve at its share of δ."""

    own: Callable[[Loss], float]
    share: float


def reached(
    charging: Charging,
    runs: Sequence[Run],
    library: Sequence[Pair],
    claim: Claim,
    width: int | None = None,
    **limits: int,
) -> float:
    """The most that is reached beyond the smaller of two claims; ``width`` and ``limits`` are those of the game."""

    @cache
    def curve(run: int) -> float:
        mechanism, steps = runs[run]
        try:
            return library[mechanism].times(steps).epsilon(claim.share)
        except ValueError:
            return inf

    def told(state: Begun) -> float:
        loss, begun = state
        return min(claim.own(loss), curve(begun[0])) if len(begun) == 1 else claim.own(loss)

    return Game.explore(WithRuns(charging), runs, **limits).reached(library, told, width)
