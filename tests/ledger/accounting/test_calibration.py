"""The search for where a test turns, against counting up to it; and what calibration asks of the accountant."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.accounting import calibration
from ledger.accounting.calibration import Crossing, find_crossing, least_noise, most_steps
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.mechanism import STEPS_MAX, Laplace, Mechanism, PoissonGaussian

RANGE = 10_000_000


@given(
    st.integers(1, RANGE - 1),
    st.integers(1, RANGE),
    st.floats(0.05, 20),
    st.floats(0.05, 20),
    st.booleans(),
    st.booleans(),
)
def test_an_edge_is_where_the_test_turns(  # noqa: PLR0913, PLR0917 - what a search depends on
    turn: int,
    guess: int,
    power: float,
    slope: float,
    rising: bool,  # noqa: FBT001 - drawn by name
    told: bool,  # noqa: FBT001 - drawn by name
) -> None:
    """From either side, whatever is guessed of place and steepness, told how far it is or only on which side."""
    asked: list[int] = []

    def excess(place: int) -> float:
        asked.append(place)
        holds = place <= turn if rising else place >= turn
        far = abs(power * math.log(place / (turn + (0.5 if rising else -0.5)))) if told else 1e6
        return -far if holds else max(far, 1e-15)

    good, bad = (0, RANGE + 1) if rising else (RANGE, 0)
    assert find_crossing(excess, good, bad, Crossing(guess, slope if rising else -slope)).place == turn
    assert len(set(asked)) == len(asked) <= 130, "nothing is asked twice, and never much"


def test_few_evaluations_find_the_edge_where_the_guess_is_near() -> None:
    """A power law guessed within a hundredth: a handful of evaluations in ten million places."""
    for turn in (3, 186, 2_435, 138_477, 9_000_000):
        asked: list[int] = []

        def excess(place: int, turn: int = turn, asked: list[int] = asked) -> float:
            asked.append(place)
            return 0.5 * math.log(place / (turn + 0.5))

        assert find_crossing(excess, 0, RANGE + 1, Crossing(turn + turn // 100, 0.7)).place == turn
        assert len(asked) <= 6


def test_noise_is_found_for_any_mechanism_that_has_some() -> None:
    """Laplace under δ = 0: ε is one over the noise, exactly."""

    def of(noise: int) -> Mechanism:
        return Laplace(Fraction(noise, 10_000))

    assert least_noise(of, Fraction(4, 5), Fraction(0), "REPLACE_SPECIAL") == Fraction(5, 4)
    assert least_noise(of, Fraction(3), Fraction(0), "REPLACE_SPECIAL") == Fraction(3_334, 10_000)
    assert least_noise(of, Fraction(1, 10**9), Fraction(0), "REPLACE_SPECIAL") is None
    assert least_noise(of, Fraction(1_000), Fraction(0), "REPLACE_SPECIAL") == Fraction(1, 100)


def test_steps_are_found_up_to_a_limit() -> None:
    """None where one is too many; the limit where it fits; else the greatest that was itself told to fit."""
    delta, relation = Fraction(1, 10**5), "REPLACE_SPECIAL"

    def of(steps: int) -> Mechanism:
        return PoissonGaussian(Fraction(1, 16), Fraction(2), steps)

    assert most_steps(of, Fraction(1, 100), delta, relation, 100) == 0
    assert most_steps(of, Fraction(2), delta, relation, 100) == 100
    found = most_steps(of, Fraction(2), delta, relation, 10_000)
    assert reported_epsilon(of(found), delta, relation) <= 2 < reported_epsilon(of(found + 1), delta, relation)


def test_a_calibration_evaluates_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes tenths of a second: at most six for DEPA's COVID plan, where halving alone takes eleven."""
    told: list[Mechanism] = []

    def counted(mechanism: Mechanism, delta: Fraction, relation: str) -> Fraction:
        told.append(mechanism)
        return reported_epsilon(mechanism, delta, relation)

    monkeypatch.setattr(calibration, "reported_epsilon", counted)

    def of(count: int) -> Mechanism:
        return PoissonGaussian(Fraction(1, 186), Fraction(6_531, 10_000), count)

    assert most_steps(of, Fraction(1), Fraction(1, 1_483), "REPLACE_SPECIAL", STEPS_MAX) == 186
    assert len(told) <= 6
