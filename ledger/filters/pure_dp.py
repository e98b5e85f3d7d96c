"""A budget with δ = 0: pure losses add up, which is Rényi's rule at the order infinity alone.

Basic composition holds adaptively (Rogers, Roth, Ullman, Vadhan 2016, Theorem 3.6): the greatest loss of everything
that ran is at most the sum of the greatest losses of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ledger.accounting import pure_epsilon
from ledger.filters.capacity import Additive, Cap
from ledger.mechanisms.decomposition import runs_of
from ledger.mechanisms.loss import Loss, Segment, cover
from ledger.mechanisms.mechanism import Mechanism
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import NAT, ceil_units, floor_units

KIND: Final = "pure"


@dataclass(frozen=True, slots=True)
class PureSum(Additive):
    """The terms of a partition with δ = 0."""

    delta: Fraction = Fraction(0)

    @classmethod
    def parse(cls, value: object) -> PureSum:
        """Read recorded terms; the exact inverse of :meth:`to_json`. Raises: Malformed."""
        known = c.fields(value, "terms", ("delta", "kind", "v"))
        c.one_of(known["kind"], "terms.kind", (KIND,))
        c.integer(known["v"], "terms.v", 1, 1)
        c.one_of(known["delta"], "terms.delta", ("0",))
        return cls()

    def to_json(self) -> c.Object:
        """The terms, as the entry that opens the partition records them."""
        return {"delta": "0", "kind": KIND, "v": 1}

    @property
    def coordinates(self) -> tuple[str, ...]:
        """One, in loss units."""
        return ("order infinity",)

    @property
    def searched(self) -> bool:
        """Nothing is."""
        return False

    def segments(self, mechanism: Mechanism, relation: str) -> tuple[Segment, ...]:
        """Each step at its pure ε. Raises: NotPriced, for what has none."""
        runs = runs_of(mechanism)
        return tuple(Segment(count, (ceil_units(pure_epsilon(step, relation)),)) for count, step in runs)

    def covers(self, segments: tuple[Segment, ...], mechanism: Mechanism, relation: str) -> bool:
        """Against the same pure ε: rational, or to 60 digits, on every machine. Raises: NotPriced, ValueError."""
        return cover(segments, self.segments(mechanism, relation))

    def cap(self, epsilon: Fraction) -> Cap:
        """ε itself."""
        return Cap(epsilon, (floor_units(epsilon),))

    def keeps(self, cap: Cap) -> bool:
        """At most ε. Raises: ValueError."""
        return cap.within(self.cap(cap.epsilon))

    def odometer(self, loss: Loss) -> Fraction:
        """The sum. Raises: ArithmeticError, if a charge is infinite."""
        at = loss.at(0)
        if at is None:
            raise ArithmeticError("the account holds an infinite charge")
        return Fraction(at, NAT)
