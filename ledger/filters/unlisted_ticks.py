"""The price in ticks of a mechanism that a catalogue does not list: the least that keeps V a supermartingale.

The price is of the whole piece, which is not refunded in part. It is also the least over this piece and every longer
run of the same steps, since a run costs no less than its beginning (:mod:`ledger.accounting.loss_potential`). The δ of
black boxes goes to the slack, and their ε to the price.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ledger.accounting.epsilon_report import slack
from ledger.filters.step_types import StepType, laws_of, potential
from ledger.mechanisms.mechanism import BlackBox, Composed, Mechanism, Pure, SelfComposed
from ledger.wire.exact_numbers import ceil_slack

if TYPE_CHECKING:
    from fractions import Fraction

    from ledger.accounting.loss_potential import Laws


class PriceLine(NamedTuple):
    """The input of a price: the potential of a catalogue, and the most ticks that an ε is reported for."""

    epsilon: Fraction
    delta: Fraction
    types: tuple[StepType, ...]
    most: int

    def laws(self, piece: Piece) -> Laws:
        """The laws of loss of a piece, but for the δ of black boxes. Raises: NotPriced."""
        return laws_of(_without_delta(_times(piece.steps, piece.step)), piece.relation, self.epsilon)


class Piece(NamedTuple):
    """A piece: equal steps of a run."""

    steps: int
    step: Mechanism
    relation: str

    @property
    def slack(self) -> int:
        """The δ units of its black boxes."""
        return ceil_slack(slack(_times(self.steps, self.step)))


@lru_cache(maxsize=4_096)
def least_ticks(line: PriceLine, piece: Piece) -> int | None:
    """The least price; None if there is none. Raises: NotPriced."""
    return potential(line.epsilon, line.delta, line.types).price(line.laws(piece), line.most)


@lru_cache(maxsize=4_096)
def pays(line: PriceLine, piece: Piece, ticks: int) -> bool:
    """Whether ``ticks`` pay for it, evaluated at that very number. Raises: NotPriced."""
    return potential(line.epsilon, line.delta, line.types).pays(line.laws(piece), ticks, line.most)


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
