"""Numbers as strings with one spelling each, and rounding that is never on the wrong side."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.wire import exact_numbers
from ledger.wire.malformed import Malformed

DECIMALS = st.integers(0, 10**18 - 1).flatmap(
    lambda whole: st.integers(0, 10**18 - 1).map(lambda part: whole + Fraction(part, 10**18))
)
RATIOS = st.builds(Fraction, st.integers(1, 10**18 - 1), st.integers(1, 10**18 - 1))


@given(st.one_of(DECIMALS, RATIOS))
def test_number_is_read_back_as_it_was_written(number: Fraction) -> None:
    """Each number within range has a spelling, and reading the spelling gives the number."""
    assert exact_numbers.parse_number(exact_numbers.format_number(number), "n") == number


@given(st.text("0123456789./-+e_ ", max_size=24))
def test_a_spelling_that_is_read_is_the_only_one(text: str) -> None:
    """Whatever is read at all is spelled exactly as the formatter spells it."""
    try:
        number = exact_numbers.parse_number(text, "n")
    except Malformed:
        return
    assert exact_numbers.format_number(number) == text


HOSTILE: list[Any] = [
    "1_000", " 7 ", "7 ", " 7", "7\n", "1.0", "1e-5", "1E5", "NaN", "nan", "inf", "Infinity", "-1", "-0", "+1",
    "", ".", "1.", ".5", "00", "01", "0.50", "0x10", "1,5", "2/4", "3/1", "1/2", "0/1", "1/0", "-1/3", "1/-3",
    "1 / 3", "1/3/5", "1/3.0", "٣", "１", "1" * 19, "0." + "0" * 18 + "1", "9" * 19 + "/7",
    True, False, None, 1, 0, 1.5, 1e400, float("nan"), b"1", ["1"], {"1": 1}, Fraction(1),
]  # fmt: skip


@pytest.mark.parametrize("value", HOSTILE, ids=repr)
def test_hostile_number_is_refused_by_name(value: Any) -> None:  # noqa: ANN401 - hostile on purpose
    """A second spelling, another type or no number at all: the fault names the field."""
    with pytest.raises(Malformed) as fault:
        exact_numbers.parse_number(value, "plan.noise")
    assert fault.value.field == "plan.noise"
    assert len(str(fault.value)) < 200


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (Fraction(0), "0"),
        (Fraction(5, 2), "2.5"),
        (Fraction(1, 186), "1/186"),
        (Fraction(1, 10**18), "0." + "0" * 17 + "1"),
        (Fraction(1, 2**20), "1/1048576"),
        (Fraction(100), "100"),
    ],
)
def test_known_spellings(number: Fraction, text: str) -> None:
    """A decimal when it ends within 18 places, else a ratio."""
    assert exact_numbers.format_number(number) == text
    assert exact_numbers.parse_number(text, "n") == number


def test_zero_is_a_number_but_not_a_positive_one() -> None:
    """``0`` reads as a number and is refused where something greater is needed."""
    assert exact_numbers.parse_number("0", "n") == 0
    with pytest.raises(Malformed, match="greater than 0"):
        exact_numbers.parse_positive("0", "n")


@given(st.fractions(min_value=0, max_value=1000), st.integers(0, 9))
def test_costs_round_up_and_capacities_down(nats: Fraction, places: int) -> None:
    """A cost is never below the number, a capacity never above, each by less than one unit."""
    assert nats <= Fraction(exact_numbers.ceil_units(nats), exact_numbers.NAT) < nats + Fraction(1, exact_numbers.NAT)
    assert nats - Fraction(1, exact_numbers.NAT) < Fraction(exact_numbers.floor_units(nats), exact_numbers.NAT) <= nats
    unit = Fraction(1, 10**places)
    assert nats <= Fraction(exact_numbers.ceil_decimal(nats, places)) < nats + unit


@given(st.fractions(min_value=0, max_value=1))
def test_a_part_of_delta_rounds_up(delta: Fraction) -> None:
    """By less than one unit."""
    units, one = exact_numbers.ceil_slack(delta), Fraction(1, exact_numbers.DELTA_ONE)
    assert delta <= units * one < delta + one


@given(st.fractions(min_value=-1000, max_value=0))
def test_a_negative_number_is_told_with_its_sign(number: Fraction) -> None:
    """Rounding keeps its direction below zero."""
    assert number <= Fraction(exact_numbers.ceil_decimal(number)) < number + Fraction(1, 10_000)
