"""A budget with δ = 0: pure losses add up, which is Rényi's rule at the order infinity alone.

Basic composition holds adaptively (Rogers, Roth, Ullman, Vadhan 2016, Theorem 3.6): the greatest loss of everything
that ran is at most the sum of the greatest losses of its parts.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from ledger.accounting.pure_dp import pure_epsilon
from ledger.filters.capacity import Cap
from ledger.filters.rule import Coordinate, Opening, Rule, order
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.loss import Loss, Segment
from ledger.mechanisms.mechanism import Mechanism
from ledger.wire.exact_numbers import NAT, ceil_units, floor_units
from ledger.wire.field_types import constant, exact


class PureSum(Rule, frozen=True, tag="pure"):
    """The terms of a partition with δ = 0."""

    takes_slack: ClassVar[bool] = False
    delta: Annotated[Fraction, exact(Fraction(0), Fraction(0)), Meta(extra_json_schema={"const": "0"})] = constant(
        Fraction(0)
    )
    v: Literal[1] = constant(1)

    @classmethod
    def choose(cls, opening: Opening) -> PureSum:  # noqa: ARG003 - nothing depends on it
        """There is nothing to choose."""
        return cls()

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """One coordinate, in loss units."""
        return (order("infinity"),)

    def segments(self, mechanism: Mechanism, relation: str) -> tuple[Segment, ...]:
        """Each step at its pure ε. Raises: NotPriced, for a mechanism that has none."""
        runs = to_steps(mechanism)
        return tuple(Segment(count, (ceil_units(pure_epsilon(step, relation)),)) for count, step in runs)

    def cap(self, epsilon: Fraction) -> Cap:
        """ε itself."""
        return Cap(epsilon, (floor_units(epsilon),))

    def odometer(self, loss: Loss) -> Fraction:
        """The sum. Raises: ArithmeticError, if a charge is infinite."""
        at = loss.at(0)
        if at is None:
            raise ArithmeticError("the account holds an infinite charge")
        return Fraction(at, NAT)
