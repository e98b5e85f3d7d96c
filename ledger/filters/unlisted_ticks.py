"""The price in ticks of a mechanism that a catalogue does not list: the least that keeps V a supermartingale.

A run may be priced as a longer one that is stopped, since steps together can cost less than a few of them. The price
is of the whole piece, which is not refunded in part. The δ of black boxes goes to the slack, and their ε to the price.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from ledger.accounting.epsilon_report import slack
from ledger.filters.step_types import StepType, laws_of, potential
from ledger.mechanisms.mechanism import STEPS_MAX, BlackBox, Composed, Mechanism, Pure, SelfComposed
from ledger.wire.exact_numbers import ceil_slack

if TYPE_CHECKING:
    from fractions import Fraction

    from ledger.accounting.loss_potential import Laws

_LONGER: Final = (1, 2, 4, 8)
"""How many times longer the run may be that it is priced as."""


class PriceLine(NamedTuple):
    """What determines a price: the potential of a catalogue, and the most ticks that an ε is reported for."""

    epsilon: Fraction
    delta: Fraction
    types: tuple[StepType, ...]
    most: int

    def laws(self, piece: Piece, longer: int) -> Laws | None:
        """The laws of loss of a run so many times longer; None if that is more steps than any run has."""
        count = piece.steps * longer
        if count > STEPS_MAX:
            return None
        return laws_of(_without_delta(_times(count, piece.step)), piece.relation, self.epsilon)


class Piece(NamedTuple):
    """Equal steps of a run."""

    steps: int
    step: Mechanism
    relation: str

    @property
    def slack(self) -> int:
        """The δ units of its black boxes."""
        return ceil_slack(slack(_times(self.steps, self.step)))


@lru_cache(maxsize=4_096)
def least_ticks(line: PriceLine, piece: Piece) -> int | None:
    """The least price found; None if there is none. Raises: NotPriced."""
    found = [laws for longer in _LONGER if (laws := line.laws(piece, longer)) is not None]
    prices = [potential(line.epsilon, line.delta, line.types).price(laws, line.most) for laws in found]
    return min((one for one in prices if one is not None), default=None)


@lru_cache(maxsize=4_096)
def pays(line: PriceLine, piece: Piece, ticks: int) -> bool:
    """Whether so many ticks pay for it, evaluated at that very number. Raises: NotPriced."""
    known = potential(line.epsilon, line.delta, line.types)
    found = (line.laws(piece, longer) for longer in _LONGER)
    return any(known.pays(laws, ticks, line.most) for laws in found if laws is not None)


def _times(count: int, step: Mechanism) -> Mechanism:
    return step if count == 1 else SelfComposed(count, step)


def _without_delta(mechanism: Mechanism) -> Mechanism:
    """A mechanism whose black boxes are pure: their δ goes to the slack."""
    match mechanism:
        case BlackBox():
            return Pure(mechanism.epsilon, mechanism.relation)
        case Composed():
            return Composed(tuple(map(_without_delta, mechanism.mechanisms)))
        case SelfComposed():
            return SelfComposed(mechanism.count, _without_delta(mechanism.mechanism))
        case _:
            return mechanism
