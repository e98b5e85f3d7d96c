"""Strategies of correlated noise: their norms to 40 digits, and what undoing any of them does to noise."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import mpmath
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.mechanisms.correlated.strategies import (
    BANDS_MAX,
    BUFFERS_MAX,
    Banded,
    Buffered,
    Strategy,
    root_above,
    square_root,
)
from ledger.wire.malformed import Malformed

PARTS = 1_000
shares = st.integers(0, PARTS).map(lambda part: Fraction(part, PARTS))
decays = st.integers(0, PARTS - 1).map(lambda part: Fraction(part, PARTS))
banded = st.lists(shares, min_size=1, max_size=12).map(lambda found: Banded(tuple(sorted(found, reverse=True))))


@st.composite
def buffered(draw: st.DrawFn) -> Buffered:
    """Of one to four buffers, whose scales are at most 1 together."""
    left = draw(st.lists(decays, min_size=1, max_size=4))
    parts = [draw(shares) for _ in left]
    return Buffered(tuple(left), tuple(part / len(left) for part in parts))


def column(strategy: Strategy, rows: int) -> list[Fraction]:
    """c_0 to c_(rows - 1), term by term as their definition has them."""
    if isinstance(strategy, Banded):
        return [Fraction(1), *strategy.coefficients, *[Fraction(0)] * rows][:rows]
    assert isinstance(strategy, Buffered)
    pairs = [*zip(strategy.decays, strategy.scales, strict=True)]
    return [
        Fraction(1),
        *(sum((scale * decay**row for decay, scale in pairs), Fraction(0)) for row in range(rows - 1)),
    ][:rows]


@given(st.one_of(banded, buffered()), st.integers(1, 40))
def test_a_norm_is_that_of_the_column_rounded_up(strategy: Strategy, rows: int) -> None:
    """Against the coefficients one by one, exactly; and their root to 40 digits."""
    exact = sum(one * one for one in column(strategy, rows))
    above = strategy.column_square(rows) - exact
    assert 0 <= above < Fraction(1, 2**160)
    with mpmath.workdps(60):
        root = mpmath.sqrt(mpmath.mpf(exact.numerator) / exact.denominator)
        norm = root_above(strategy.column_square(rows))
        assert 0 <= mpmath.mpf(norm.numerator) / norm.denominator - root < mpmath.mpf(2) ** -78


@given(st.one_of(banded, buffered()))
def test_what_undoes_a_strategy_has_no_entry_beyond_one(strategy: Strategy) -> None:
    """The inverse's first column by elimination, exactly: so its noise is never longer than all that was drawn."""
    rows = 24
    known = column(strategy, rows)
    assert all(before >= after >= 0 for before, after in pairwise(known))
    inverse: list[Fraction] = []
    for row in range(rows):
        rest = sum((known[row - place] * value for place, value in enumerate(inverse)), Fraction(0))
        inverse.append(int(row == 0) - rest)
        assert abs(inverse[-1]) <= 1


@pytest.mark.parametrize("rows", [1, 2, 3, 1_000, 9_999_999])
def test_a_long_stream_of_slow_buffers_is_never_priced_below(rows: int) -> None:
    """Near 1 and at 0, against the closed form at 60 digits; the price is above it by less than 10^-40."""
    strategy = Buffered(
        (Fraction(10**17 - 1, 10**17), Fraction("0.999"), Fraction(0)),
        (Fraction("0.001"), Fraction("0.25"), Fraction("0.125")),
    )
    with mpmath.workdps(120):
        pairs = [
            (mpmath.mpf(one.numerator) / one.denominator, mpmath.mpf(two.numerator) / two.denominator)
            for one, two in zip(strategy.decays, strategy.scales, strict=True)
        ]
        exact = mpmath.mpf(1)
        for decay, scale in pairs:
            for other, another in pairs:
                ratio = decay * other
                terms = (1 - ratio ** (rows - 1)) / (1 - ratio) if ratio else mpmath.mpf(min(1, rows - 1))
                exact += scale * another * terms
        found = strategy.column_square(rows)
        above = mpmath.mpf(found.numerator) / found.denominator - exact
        assert 0 <= above < mpmath.mpf(10) ** -40


def test_the_square_root_is_a_strategy() -> None:
    """At every number of bands."""
    for bands in (2, 3, BANDS_MAX):
        assert len(square_root(bands).coefficients) == bands - 1


@pytest.mark.parametrize(
    ("make", "field"),
    [
        (lambda: Banded((Fraction(1, 2), Fraction(2, 3))), "coefficients[1]"),
        (lambda: Banded((Fraction(3, 2),)), "coefficients[0]"),
        (lambda: Banded((Fraction(-1, 2),)), "coefficients[0]"),
        (lambda: Buffered((Fraction(1),), (Fraction(1, 2),)), "decays[0]"),
        (lambda: Buffered((Fraction(-1, 2),), (Fraction(1, 2),)), "decays[0]"),
        (lambda: Buffered((Fraction(1, 2),) * 2, (Fraction(1, 2),)), "scales"),
        (lambda: Buffered((Fraction(1, 2),) * 2, (Fraction(2, 3),) * 2), "scales"),
    ],
)
def test_a_strategy_built_by_a_program_is_held_to_its_bounds(make: type[Strategy], field: str) -> None:
    """As one that is read."""
    with pytest.raises(Malformed) as refused:
        make()
    assert refused.value.field == field


def test_as_many_buffers_as_there_may_be_are_priced_soon() -> None:
    """Of ten million steps, exactly bounded: no term has more digits than were asked for."""
    decays = tuple(Fraction(10**17 - 3**place, 10**17) for place in range(1, BUFFERS_MAX + 1))
    strategy = Buffered(decays, (Fraction(1, BUFFERS_MAX),) * BUFFERS_MAX)
    assert strategy.column_square(10_000_000).denominator <= 2**250
