"""Floats beside exact numbers: the nearest on the side that overstates the loss, and never on the other."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.accounting.rounding import float_down, float_up

_NUMBERS = st.one_of(
    st.fractions(min_value=0, max_value=10**6),
    # Just beside a float, where the nearest float lies on the wrong side half of the time.
    st.builds(
        lambda near, parts: Fraction(near) * (1 + Fraction(parts, 10**30)),
        st.floats(min_value=1e-9, max_value=1e6),
        st.integers(-(10**9), 10**9),
    ),
)


@given(_NUMBERS)
def test_rounding_up_gives_the_least_float_that_is_no_less(number: Fraction) -> None:
    """A probability is never understated."""
    value = float_up(number)
    assert Fraction(value) >= number
    assert value == 0 or Fraction(math.nextafter(value, -math.inf)) < number


@given(_NUMBERS)
def test_rounding_down_gives_the_greatest_float_that_is_no_more(number: Fraction) -> None:
    """Noise and δ are never overstated."""
    value = float_down(number)
    assert Fraction(value) <= number < Fraction(math.nextafter(value, math.inf))


@pytest.mark.parametrize("text", ["0.1", "0.7", "1/3", "2/3", "1/1483", "0.004", "1.1"])
def test_a_decimal_that_no_float_equals_lies_between_the_two(text: str) -> None:
    """Each rounds to its own side."""
    number = Fraction(text)
    assert Fraction(float_down(number)) < number < Fraction(float_up(number))
