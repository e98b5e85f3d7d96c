"""Adult incomes as numbers, by public knowledge alone: category lists from the data set's own page, ranges set here.

No count, mean, minimum or list is taken from the records, so that reading them costs no privacy. A value outside its
range is brought to its end; "?" is no category and gives zeros. The census's own weight of a record is left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from ledger.wire.malformed import Malformed
from tests.bench import datasets

if TYPE_CHECKING:
    from numpy.typing import NDArray

RANGES: Final[dict[str, tuple[float, float]]] = {
    "age": (17, 90),
    "education-num": (1, 16),
    "hours-per-week": (0, 100),
}
LOGARITHMS: Final = {"capital-gain": 100_000.0, "capital-loss": 5_000.0}
"""Amounts, most of them 0: the logarithm of one more, over that of the range's end."""
LEFT_OUT: Final = ("fnlwgt",)
CONTINUOUS: Final = "continuous"
LABELS: Final = {"<=50K": 0.0, ">50K": 1.0}
RECORDS: Final = {"data": 32_561, "test": 16_281}


def attributes(page: str) -> dict[str, tuple[str, ...]]:
    """Name and categories of each attribute, none for a number, from the page's last lines. Raises: Malformed."""
    known: dict[str, tuple[str, ...]] = {}
    for line in page.splitlines():
        if line.startswith("|") or ": " not in line or not line.endswith("."):
            continue
        name, _, listed = line[:-1].partition(": ")
        known[name] = () if listed == CONTINUOUS else tuple(listed.split(", "))
    numbers = {name for name, listed in known.items() if not listed}
    if numbers != {*RANGES, *LOGARITHMS, *LEFT_OUT}:
        raise Malformed("adult.names", "must name the numbers that ranges are set for, and no other")
    return known


def encoded(
    text: str, known: dict[str, tuple[str, ...]], name: str = "adult"
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Inputs (records, columns), each from 0 to 1, and whether the income is above 50,000 (records,).

    Raises:
        Malformed: for a line that has not one value for each attribute and a label, or a value that is none of its.
    """
    lines = [line for line in text.splitlines() if line and not line.startswith("|")]
    places = {key: {value: at for at, value in enumerate(listed)} for key, listed in known.items() if listed}
    width = sum(len(listed) or 1 for key, listed in known.items() if key not in LEFT_OUT)
    inputs, targets = np.zeros((len(lines), width), dtype=np.float32), np.zeros(len(lines), dtype=np.float32)
    for row, line in enumerate(lines):
        *values, label = line.rstrip(".").split(", ")
        if len(values) != len(known) or label not in LABELS:
            raise Malformed(f"{name}, record {row + 1}", f"must have {len(known)} values and an income")
        targets[row], column = LABELS[label], 0
        for key, value in zip(known, values, strict=True):
            if key in LEFT_OUT:
                continue
            if key in places:
                if value != "?":
                    inputs[row, column + _place(places[key], value, f"{name}, record {row + 1}: {key}")] = 1
                column += len(places[key])
            else:
                inputs[row, column] = _number(key, value, f"{name}, record {row + 1}: {key}")
                column += 1
    return inputs, targets


def load(part: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Inputs and incomes of ``data`` or ``test``. Raises: Malformed; OSError."""
    page, text = datasets.members(datasets.ADULT, "adult.names", f"adult.{part}")
    found = encoded(text.decode("ascii"), attributes(page.decode("ascii")), f"adult.{part}")
    if len(found[1]) != RECORDS[part]:
        raise Malformed(f"adult.{part}", f"must hold {RECORDS[part]} records, not {len(found[1])}")
    return found


def _place(listed: dict[str, int], value: str, where: str) -> int:
    if value not in listed:
        raise Malformed(where, "is none of its categories")
    return listed[value]


def _number(key: str, value: str, where: str) -> float:
    if not value.isdecimal() or not value.isascii():
        raise Malformed(where, "must be a whole number")
    number = float(value)
    if key in LOGARITHMS:
        return min(1.0, math.log1p(number) / math.log1p(LOGARITHMS[key]))
    low, high = RANGES[key]
    return min(1.0, max(0.0, (number - low) / (high - low)))
