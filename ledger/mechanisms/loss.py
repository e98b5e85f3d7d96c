"""A loss: one non-negative integer per coordinate of a rule, and how many infinite charges it holds there.

Keeping the two apart makes an account the plain sum over its runs: when a charge that was infinite at an
order is voided, the order opens again with exactly the finite sum of the others.
"""

from __future__ import annotations

from functools import lru_cache
from operator import add, mul, sub
from typing import Any, NamedTuple

from ledger.wire.canonical_json import Object, parse, spelled
from ledger.wire.exact_numbers import LOSS_MAX

Price = tuple[int | None, ...]
"""The cost of one step at each coordinate, in the coordinate's units; None where it is infinite."""


class Loss(NamedTuple):
    """The sum of charges. ``finite`` and ``infinite`` have one item per coordinate."""

    finite: tuple[int, ...]
    infinite: tuple[int, ...]

    @classmethod
    def zero(cls, coordinates: int) -> Loss:
        """The zero loss."""
        return cls((0,) * coordinates, (0,) * coordinates)

    def __add__(self, other: Loss) -> Loss:  # type: ignore[override]  # losses are added up, and no longer tuple is made
        """Both together."""
        finite, infinite = other
        if len(self.finite) != len(finite):
            raise _unlike(self, other)
        # Few charges are infinite at any coordinate.
        counts = tuple(map(add, self.infinite, infinite)) if any(infinite) else self.infinite
        return Loss(tuple(map(add, self.finite, finite)), counts)

    def __sub__(self, other: Loss) -> Loss:
        """The loss less a part that was added before. Raises: AssertionError, rather than go below zero."""
        finite, infinite = other
        if len(self.finite) != len(finite):
            raise _unlike(self, other)
        counts = tuple(map(sub, self.infinite, infinite)) if any(infinite) else self.infinite
        rest = Loss(tuple(map(sub, self.finite, finite)), counts)
        if min(rest.finite, default=0) < 0 or (counts is not self.infinite and min(counts) < 0):
            message = f"a loss of {self} cannot hold {other}"
            raise AssertionError(message)
        return rest

    @classmethod
    def parse(cls, value: Any) -> Loss:  # noqa: ANN401 - JSON as recorded
        """Read the recorded form; the exact inverse of :meth:`to_json`."""
        return cls(tuple(value["finite"]), tuple(value["infinite"]))

    def to_json(self) -> Object:
        """The form in a decree's entry."""
        return {"finite": list(self.finite), "infinite": list(self.infinite)}

    def times(self, count: int) -> Loss:
        """So many of it."""
        counts = (count,) * len(self.finite)
        return Loss(tuple(map(mul, self.finite, counts)), tuple(map(mul, self.infinite, counts)))

    @property
    def empty(self) -> bool:
        """Whether it is zero at every coordinate."""
        return not any(self.finite) and not any(self.infinite)

    def at(self, coordinate: int) -> int | None:
        """The loss at one coordinate, None while a charge there is infinite."""
        return None if self.infinite[coordinate] else self.finite[coordinate]


def _unlike(loss: Loss, other: Loss) -> ValueError:
    # ``map`` silently stops at the end of the shorter of two sequences.
    return ValueError(f"a loss at {len(loss.finite)} coordinates and one at {len(other.finite)} are of two rules")


class Segment(NamedTuple):
    """``steps`` equal steps of a run, settled by themselves: ``price`` for every ``unit`` steps begun.

    The unit is 1 unless the price is of steps together, which cannot be distinguished afterwards.
    """

    steps: int
    price: Price
    unit: int = 1

    def covers(self, least: Segment) -> bool:
        """Whether it is of the same steps and costs at least as much at every coordinate. Raises: ValueError."""
        pairs = zip(self.price, least.price, strict=True)
        return (self.steps, self.unit) == (least.steps, least.unit) and all(
            high is None or (low is not None and high >= low) for high, low in pairs
        )

    def to_json(self) -> Object:
        """The form in a charge's entry."""
        return {"price": list(self.price), "steps": self.steps, "unit": self.unit}


@lru_cache(maxsize=4_096)
def parse_segments(recorded: bytes) -> tuple[Segment, ...]:
    """The prices of one partition from the canonical JSON of a charge's entry; equal ones are one object."""
    segments: Any = parse(recorded, len(recorded))
    return tuple(Segment(segment["steps"], tuple(segment["price"]), segment["unit"]) for segment in segments)


def read_segments(segments: Any) -> tuple[Segment, ...]:  # noqa: ANN401 - JSON as recorded
    """The same from a JSON value that was parsed already."""
    return parse_segments(spelled(segments))


def cover(segments: tuple[Segment, ...], least: tuple[Segment, ...]) -> bool:
    """Whether each piece costs at least the given price. Raises: ValueError, for other coordinates."""
    return len(segments) == len(least) and all(map(Segment.covers, segments, least))


@lru_cache(maxsize=4_096)
def loss_of(segments: tuple[Segment, ...], steps: int) -> Loss:
    """The loss of the first ``steps`` steps of a run.

    An infinite price counts once per run, not per step; a finite sum beyond ``LOSS_MAX``, for which no budget has room,
    counts as infinite.
    """
    width = len(segments[0].price)
    total = Loss.zero(width)
    for segment in segments:
        ran = min(steps, segment.steps)
        steps -= ran
        if ran == 0:
            break
        begun = -(-ran // segment.unit)
        total += Loss(
            tuple(0 if cost is None else begun * cost for cost in segment.price),
            tuple(int(cost is None) for cost in segment.price),
        )
    far = tuple(at > LOSS_MAX for at in total.finite)
    return Loss(
        tuple(0 if beyond else at for at, beyond in zip(total.finite, far, strict=True)),
        tuple(max(count, int(beyond)) for count, beyond in zip(total.infinite, far, strict=True)),
    )
