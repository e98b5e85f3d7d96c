"""A cap as integers, and the tests of a rule whose coordinates must all hold."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ledger.mechanisms.loss import Loss
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal, format_number


class NoRoom(ValueError):  # noqa: N818 - what is the case, not an error of the program
    """A cap under which nothing fits; ``least`` is the least ε that would leave room."""

    def __init__(self, epsilon: Fraction, least: Fraction) -> None:
        """Name both."""
        super().__init__(
            f"an ε of {format_number(epsilon)} has no room at any coordinate; the least that has some is "
            f"{ceil_decimal(least, 3)}"
        )
        self.epsilon = epsilon
        self.least = least


@dataclass(frozen=True, slots=True)
class Cap:
    """A bound on an account as integers: per coordinate; None where the coordinate is closed for this ε."""

    epsilon: Fraction
    capacity: tuple[int | None, ...]

    def part(self, share: Fraction) -> Cap:
        """A share of it, rounded down at every coordinate."""
        held = (None if bound is None else bound * share.numerator // share.denominator for bound in self.capacity)
        return Cap(self.epsilon, tuple(held))

    def behind(self, share: Fraction) -> Cap:
        """The least cap of which this is that share."""
        whole = (None if bound is None else -(-bound * share.denominator // share.numerator) for bound in self.capacity)
        return Cap(self.epsilon, tuple(whole))

    def within(self, other: Cap) -> bool:
        """Whether it is at most another, coordinate by coordinate. Raises: ValueError, for other coordinates."""
        pairs = zip(self.capacity, other.capacity, strict=True)
        return all(bound is None or (most is not None and bound <= most) for bound, most in pairs)

    def to_json(self) -> c.Object:
        """As it is recorded with each charge it bound."""
        return {
            "capacity": list(self.capacity),
            "epsilon": format_number(self.epsilon),
        }


class Additive:
    """A rule whose coordinates add up and must all stay within their capacities."""

    def admits(self, loss: Loss, cap: Cap) -> bool:
        """Whether no charge is infinite and every sum is within capacity."""
        pairs = zip(range(len(cap.capacity)), cap.capacity, strict=True)
        return all((at := loss.at(place)) is not None and bound is not None and at <= bound for place, bound in pairs)

    def share(self, loss: Loss, cap: Cap) -> Fraction:
        """The greatest share used over the coordinates; at least 1 where one holds an infinite charge."""
        shares = [used(loss.at(place), bound) for place, bound in enumerate(cap.capacity)]
        return max(shares, default=Fraction(0))

    def decisive(self, loss: Loss, cap: Cap) -> int | None:
        """The coordinate with the greatest share used; None if one holds an infinite charge."""
        if any(loss.infinite):
            return None
        return max(range(len(cap.capacity)), key=lambda place: used(loss.finite[place], cap.capacity[place]))

    def runs(self, loss: Loss, cap: Cap, run: Loss) -> int:
        """The fewest runs that fit at one coordinate."""
        if any(run.infinite) or not self.admits(loss, cap):
            return 0
        fit = [
            ((bound or 0) - at) // cost
            for at, bound, cost in zip(loss.finite, cap.capacity, run.finite, strict=True)
            if cost
        ]
        return min(fit, default=0)


def used(at: int | None, bound: int | None) -> Fraction:
    """The share of a capacity that a loss takes; a closed coordinate is full at once."""
    if at is None:
        return Fraction(1)
    return Fraction(at, bound) if bound else Fraction(int(at > 0))
