"""Which numbers a column may hold: those between two bounds, or some that stand for categories."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from ledger.wire.malformed import Malformed

CATEGORIES_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """A rule of one column; of the two members one is given.

    Attributes:
        bounds: the least and the greatest number, as decimals.
        categories: the only numbers there are, as decimals.
    """

    bounds: tuple[str, str] | None = None
    categories: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """What a number that breaks it is, as it follows a column's name."""
        return "is not within its declared bounds" if self.bounds else "is none of its declared categories"

    def fits(self, numbers: NDArray[Any]) -> NDArray[np.bool_]:
        """Which numbers keep it, of the shape given; NaN never does.

        Numbers of 32 bits are compared with bounds and categories that are rounded as they were: rounding keeps order.
        """
        kind = np.float32 if numbers.dtype == np.float32 else np.float64
        if self.bounds is not None:
            lower, upper = (kind(signed_number(bound, "bounds")) for bound in self.bounds)
            within: NDArray[np.bool_] = (numbers >= lower) & (numbers <= upper)
            return within
        return np.isin(numbers, np.array([signed_number(one, "categories") for one in self.categories], kind))

    def within(self, values: Collection[float]) -> bool:
        """Whether no other number than ``values`` keeps it: never of bounds, which other numbers lie between."""
        return bool(self.categories) and all(signed_number(one, "categories") in values for one in self.categories)

    def to_json(self) -> c.Object:
        """As a sealed file's description holds it."""
        return {"bounds": [*self.bounds]} if self.bounds is not None else {"categories": [*self.categories]}

    @classmethod
    def parse(cls, value: object, where: str) -> ColumnRule:
        """The inverse. Raises: Malformed."""
        members = c.fields(value, where, (), ("bounds", "categories"))
        if len(members) != 1:
            raise Malformed(where, "must have bounds or categories")
        if "bounds" in members:
            return cls(bounds=read_bounds(members["bounds"], f"{where}.bounds"))
        return cls(categories=read_categories(members["categories"], f"{where}.categories"))


def read_bounds(value: object, where: str) -> tuple[str, str]:
    """Two decimals in rising order, as text. Raises: Malformed."""
    if not isinstance(value, list) or len(value) != 2:
        raise Malformed(where, 'must be the least and the greatest number, as ["0", "120"]')
    lower, upper = (c.string(bound, where) for bound in value)
    if signed_number(lower, where) > signed_number(upper, where):
        raise Malformed(where, "must be in rising order")
    return lower, upper


def read_categories(value: object, where: str) -> tuple[str, ...]:
    """Different decimals, as text. Raises: Malformed."""
    texts = c.strings(value, where, CATEGORIES_MAX)
    if len({signed_number(text, where) for text in texts}) != len(texts):
        raise Malformed(where, "names a number twice")
    return texts


def signed_number(value: object, where: str) -> float:
    """A decimal as text, with a sign if need be. Raises: Malformed."""
    text = c.string(value, where)
    number = float(parse_number(text.removeprefix("-"), where))
    return -number if text.startswith("-") else number
