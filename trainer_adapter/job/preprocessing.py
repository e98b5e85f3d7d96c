"""Preprocessing before the model, as a job declares it: its constants are public or charged, or it is refused.

A constant computed from the records themselves (their mean, their vocabulary, how many are of each class) leaks
them, whatever noise the training adds later. So each constant names where it comes from:

    [[train.preprocessing]]
    kind = "normalise"
    mean = ["0.1307"]
    deviation = ["0.3081"]
    public = "published with the data set, https://example.org/mnist"

    [[train.preprocessing]]
    kind = "normalise"
    charge = "bank-a-means-1"
    model = "runs/bank-a-means-1/model.safetensors"

    [[train.preprocessing]]
    kind = "normalise"
    charge = "bank-a-statistics-1"
    model = "runs/bank-a-statistics-1/model.safetensors"
    statistic = "scale"

    [[train.preprocessing]]
    kind = "normalise"
    public = "test"

    [[train.preprocessing]]
    kind = "one_hot"
    column = 3
    values = [1, 2]
    public = "the code book of the registry"

    [[train.preprocessing]]
    kind = "one_hot"
    column = 3
    statistic = "strains"

``public`` says where the constants were published; the author of the job vouches for it, and the provider can read it.
``public = "test"`` without constants takes means and deviations from the job's public test set, which belongs to no
partition. ``charge`` names a run that this ledger charged and whose released model holds them, as tensors of the
members' names: the receipt beside the model proves it. ``statistic`` names the moments among the answers of a run of
statistics, whose tensors are ``scale.mean`` and ``scale.deviation``. Of a plan of stages ``statistic`` alone names
moments among the plan's own statistics, which the run itself takes before it trains; for ``one_hot`` its private
categories. Anything else is refused. Each of them works on one record by itself. Of inputs with several arrays,
``normalise`` is for the one of no whole numbers, ``vocabulary`` for ``input_ids``, or the one of whole numbers.

| kind | constants | what it does to a record |
|---|---|---|
| ``normalise`` | ``mean``, ``deviation``: one number, or one for each value of a record | (x - mean) / deviation |
| ``one_hot`` | ``values`` of the inputs' ``column`` | 1 or 0 for each value, behind the other columns |
| ``vocabulary`` | ``size``, a whole number | a token of this number or above becomes 0 |
| ``class_weights`` | ``weights``, one for each class | weighs the record's loss by its class |
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import parse_number
from ledger.wire.malformed import Malformed

ONE_HOT: Final = "one_hot"
CONSTANTS: Final = {"normalise": ("mean", "deviation"), "vocabulary": ("size",), "class_weights": ("weights",)}
ITEMS_MAX: Final = 8
VALUES_MAX: Final = 4_096
COLUMN_MAX: Final = 10**6
CATEGORY_MAX: Final = 1 << 24
"""Inputs are of 32 bits, which hold whole numbers up to this exactly."""
SOURCE_MAX: Final = 400
PUBLIC_TEST: Final = "test"
"""The source of constants that are computed from a job's public test set."""
_LOOKS: Final = "is computed from the records unless it says public, with its source, or charge, with its model"


@dataclass(frozen=True, slots=True)
class Charged:
    """Constants that another run released: its charge, its model's file, and of statistics the name of one."""

    charge: str
    model: Path
    statistic: str = ""


@dataclass(frozen=True, slots=True)
class OwnStatistic:
    """Constants that the run itself takes of its records, by the name of moments in its plan of stages."""

    statistic: str


@dataclass(frozen=True, slots=True)
class Constants:
    """One kind of preprocessing.

    Attributes:
        values: by member, as they were written; empty where ``source`` is charged.
        source: where they were published, the run that released them, or the run's own statistic.
        column: of ``one_hot``, the place among the inputs.
    """

    kind: str
    values: tuple[tuple[str, tuple[Fraction, ...]], ...]
    source: str | Charged | OwnStatistic
    column: int | None = None


def read_preprocessing(value: object, folder: Path) -> tuple[Constants, ...]:
    """What a run does before its model, in order. Raises: Malformed, naming the item and the rule."""
    if not isinstance(value, list) or len(value) > ITEMS_MAX:
        raise Malformed("preprocessing", f"must be a list of at most {ITEMS_MAX} items")
    return tuple(_item(item, f"preprocessing.{place}", folder) for place, item in enumerate(value))


def _item(value: object, where: str, folder: Path) -> Constants:
    kinds = tuple(sorted((*CONSTANTS, ONE_HOT)))
    kind = c.one_of(value.get("kind") if isinstance(value, dict) else None, f"{where}.kind", kinds)
    assert isinstance(value, dict)
    if kind == ONE_HOT:
        return _one_hot(value, where)
    names = CONSTANTS[kind]
    if "charge" in value and "public" not in value:
        members = c.fields(value, where, ("charge", "kind", "model"), ("statistic",))
        path = folder / c.string(members["model"], f"{where}.model")
        statistic = c.name(members["statistic"], f"{where}.statistic") if "statistic" in members else ""
        return Constants(kind, (), Charged(c.name(members["charge"], f"{where}.charge"), path, statistic))
    if value.keys() == {"kind", "statistic"}:
        c.one_of(kind, f"{where}.kind", ("normalise",))
        return Constants(kind, (), OwnStatistic(c.name(value["statistic"], f"{where}.statistic")))
    if "public" not in value or "charge" in value:
        raise Malformed(where, _LOOKS)
    if value["public"] == PUBLIC_TEST and not value.keys() & set(names):
        c.fields(value, where, ("kind", "public"))
        c.one_of(kind, f"{where}.kind", ("normalise",))
        return Constants(kind, (), PUBLIC_TEST)
    if not value.keys() & set(names):
        test = 'write "test", for those of the public test set, or ' if kind == "normalise" else ""
        raise Malformed(f"{where}.public", f"has no constants beside it: {test}list {' and '.join(names)}")
    members = c.fields(value, where, (*names, "kind", "public"))
    source = c.string(members["public"], f"{where}.public", SOURCE_MAX)
    if not source.strip():
        raise Malformed(f"{where}.public", "must say where the constants were published")
    return Constants(kind, tuple((name, _numbers(members[name], f"{where}.{name}")) for name in names), source)


def _one_hot(value: dict[str, Any], where: str) -> Constants:
    if "statistic" not in value and "public" not in value:
        raise Malformed(where, _LOOKS)
    names = ("column", "kind", "statistic") if "statistic" in value else ("column", "kind", "public", "values")
    members = c.fields(value, where, names)
    column = c.integer(members["column"], f"{where}.column", 0, COLUMN_MAX)
    if "statistic" in members:
        return Constants(ONE_HOT, (), OwnStatistic(c.name(members["statistic"], f"{where}.statistic")), column)
    source, listed = c.string(members["public"], f"{where}.public", SOURCE_MAX), members["values"]
    if not source.strip():
        raise Malformed(f"{where}.public", "must say where the categories were published")
    if not isinstance(listed, list) or not 0 < len(listed) <= VALUES_MAX:
        raise Malformed(f"{where}.values", f"must list between 1 and {VALUES_MAX} categories")
    found = [c.integer(each, f"{where}.values", -CATEGORY_MAX, CATEGORY_MAX) for each in listed]
    if len(set(found)) != len(found):
        raise Malformed(f"{where}.values", "names a category twice")
    return Constants(ONE_HOT, (("values", tuple(map(Fraction, found))),), source, column)


def _numbers(value: Any, field: str) -> tuple[Fraction, ...]:  # noqa: ANN401 - what TOML gave
    listed = value if isinstance(value, list) else [value]
    if not 0 < len(listed) <= VALUES_MAX:
        raise Malformed(field, f"must have between 1 and {VALUES_MAX} numbers")
    return tuple(Fraction(number) if type(number) is int else _number(number, field) for number in listed)


def _number(value: object, field: str) -> Fraction:
    text = c.string(value, field)
    number = parse_number(text.removeprefix("-"), field)
    return -number if text.startswith("-") else number
