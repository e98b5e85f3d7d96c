"""A cap (ε, δ) as integers: the capacity of an account at each coordinate."""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated

from msgspec import Meta

from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.exact_numbers import ceil_decimal, format_number
from ledger.wire.field_types import between
from ledger.wire.records import Record


class NoRoom(ValueError):  # noqa: N818 - what is the case, not an error of the program
    """Nothing fits under a cap; ``least`` is the least ε that would leave room."""

    def __init__(self, epsilon: Fraction, least: Fraction) -> None:
        """Name both."""
        super().__init__(
            f"an ε of {format_number(epsilon)} has no room at any coordinate; the least that has some is "
            f"{ceil_decimal(least, 3)}"
        )
        self.epsilon = epsilon
        self.least = least


class Cap(Record, frozen=True):
    """An ε, and its capacity at each coordinate of the partition's rule; null where the coordinate is closed."""

    epsilon: Annotated[Fraction, Meta(description="an exact decimal or ratio")]
    capacity: tuple[Annotated[int, between(0, INTEGER_MAX)] | None, ...]

    def part(self, share: Fraction) -> Cap:
        """A share of the capacity, rounded down at every coordinate."""
        held = (None if bound is None else bound * share.numerator // share.denominator for bound in self.capacity)
        return Cap(self.epsilon, tuple(held))

    def behind(self, share: Fraction) -> Cap:
        """The least cap of which this capacity is that share."""
        whole = (None if bound is None else -(-bound * share.denominator // share.numerator) for bound in self.capacity)
        return Cap(self.epsilon, tuple(whole))

    def within(self, other: Cap) -> bool:
        """Whether it is at most ``other``, coordinate by coordinate. Raises: ValueError, for other coordinates."""
        pairs = zip(self.capacity, other.capacity, strict=True)
        return all(bound is None or (most is not None and bound <= most) for bound, most in pairs)


def used(at: int | None, bound: int | None) -> Fraction:
    """The share of a capacity that a loss takes; a closed coordinate is full at once."""
    if at is None:
        return Fraction(1)
    return Fraction(at, bound) if bound else Fraction(int(at > 0))
