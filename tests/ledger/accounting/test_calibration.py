"""The search for where a test turns, against counting up to it; and what calibration asks of the accountant."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.accounting import calibration
from ledger.accounting.calibration import (
    Crossing,
    calibrate_noise,
    find_crossing,
    least_noise,
    log_excess,
    most_steps,
)
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.mechanisms.mechanism import NOISE_MAX, STEPS_MAX, Laplace, Mechanism, PoissonGaussian
from ledger.wire.malformed import Malformed

RANGE = 10_000_000


@settings(max_examples=50)
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
    # The greatest noise that is permitted keeps exactly this much, and no less.
    assert least_noise(of, 1 / Fraction(NOISE_MAX), Fraction(0), "REPLACE_SPECIAL") == NOISE_MAX
    assert least_noise(of, Fraction(9, 10) / NOISE_MAX, Fraction(0), "REPLACE_SPECIAL") is None


def test_noise_is_calibrated_for_a_record_that_is_zeroed_out() -> None:
    """Unless another relation is named; what cannot be kept names ε."""
    asked = Fraction(1), 1, Fraction(1, 100), Fraction(1, 100)
    found = calibrate_noise(*asked)
    assert found == calibrate_noise(*asked, "REPLACE_SPECIAL")
    assert reported_epsilon(PoissonGaussian(Fraction(1), found, 1), asked[3], "REPLACE_SPECIAL") <= asked[2]
    with pytest.raises(Malformed) as refused:
        calibrate_noise(Fraction(1), 1, Fraction(1, 10**9), Fraction(1, 10**11))
    assert refused.value.field == "epsilon"


@pytest.mark.parametrize(
    ("value", "most", "holds", "excess"),
    [
        (Fraction(2), Fraction(1), None, math.log(2)),
        (Fraction(1, 2), Fraction(1), None, -math.log(2)),
        (Fraction(6), Fraction(3), None, math.log(2)),
        (Fraction(1), Fraction(1), None, 0.0),
        (Fraction(0), Fraction(1), None, -1e6),
        (Fraction(1), Fraction(0), None, 1e6),
        (None, Fraction(1), None, 1e6),
        (Fraction(2), Fraction(1), True, 0.0),
        (Fraction(1, 2), Fraction(1), True, -math.log(2)),
        (Fraction(1, 2), Fraction(1), False, 1e-15),
        (Fraction(2), Fraction(1), False, math.log(2)),
        (None, Fraction(1), True, -1e6),
    ],
)
def test_the_sign_of_an_excess_is_exact(
    value: Fraction | None,
    most: Fraction,
    holds: bool | None,  # noqa: FBT001 - drawn by name
    excess: float,
) -> None:
    """At most 0 where the maximum is kept, or another test says so; and about how far it is."""
    assert log_excess(value, most, holds=holds) == pytest.approx(excess, abs=0, rel=1e-12)


def test_a_search_among_many_asks_seldom() -> None:
    """Of 200 power laws, guessed up to tenfold wrong, from either side, told how far it is or on which side only."""
    asked = 0
    for at in range(200):
        turn, power, rising = 3 + int(1.06**at), 0.3 + at % 7 / 4, at % 2 == 0
        told, wrong = at % 5 != 0, (0.1, 0.9, 1.0, 1.3, 10.0)[at % 5]

        def excess(place: int, turn: int = turn, power: float = power, *, up: bool = rising, far: bool = told) -> float:
            nonlocal asked
            asked += 1
            holds = place <= turn if up else place >= turn
            size = power * abs(math.log(place / (turn + (0.5 if up else -0.5)))) if far else 1e6
            return -size if holds else max(size, 1e-15)

        good, bad = (0, RANGE + 1) if rising else (RANGE, 0)
        slope = 0.7 if rising else -1.5
        assert find_crossing(excess, good, bad, Crossing(int(turn * wrong), slope)).place == turn
    assert asked <= 1117


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
