"""Certificates and capacities to the last unit: where they begin, where they end, and what margin each keeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy.special import ndtr

from ledger.accounting.gaussian_certificates import (
    MARGIN,
    PURE_MARGIN,
    certificate,
    certified,
    exact_square,
    exact_square_covers,
    gaussian_capacity,
    gaussian_epsilon,
    gaussian_keeps,
)
from ledger.accounting.pld_mechanisms import repeated
from ledger.mechanisms import mechanism as m
from ledger.mechanisms.price_proofs import NotPriced
from ledger.wire.exact_numbers import NAT

WIDE = mpmath.mp.clone()
WIDE.dps = 50
ZERO_OUT, REPLACED = "REPLACE_SPECIAL", "REPLACE_ONE"
LAPLACE = m.Laplace(Fraction(2))
SMALL = Fraction(1, 10**15)


def pure(epsilon: Fraction) -> m.Mechanism:
    """What may lose ε at once: of a group, because a single record loses 256 nat at most."""
    return m.Group(10, m.Pure(epsilon / 10, ZERO_OUT))


def pure_square(epsilon: Fraction, margin: float) -> int:
    """μ² at which log Φ(-μ/2) is -log(1 + e^ε) and so much more of it, at 50 digits and in units."""
    wanted = -WIDE.log1p(WIDE.exp(WIDE.mpf(epsilon.numerator) / epsilon.denominator)) * (1 + WIDE.mpf(margin))
    low, high = WIDE.mpf(0), WIDE.mpf(200)
    for _ in range(120):
        middle = (low + high) / 2
        low, high = (low, middle) if WIDE.log(WIDE.erfc(middle / WIDE.sqrt(8)) / 2) <= wanted else (middle, high)
    return int(high * high * NAT)


def least(holds: Callable[[int], bool], most: int) -> int:
    """The least number for which something holds that holds for every greater one."""
    low = 0
    while most - low > 1:
        middle = (low + most) // 2
        low, most = (low, middle) if holds(middle) else (middle, most)
    return most


@pytest.mark.parametrize("epsilon", [Fraction(1, 5), Fraction(20), Fraction(300), Fraction(600)])
def test_a_pure_loss_is_issued_with_its_margin_and_accepted_with_half(epsilon: Fraction) -> None:
    """To a few units of 2^-40, by 50 digits."""
    issued = exact_square(pure(epsilon), ZERO_OUT)
    assert issued is not None
    rounding = 3 + issued * 1e-15
    assert abs(issued - pure_square(epsilon, PURE_MARGIN)) <= rounding
    accepted = least(lambda square: bool(exact_square_covers(pure(epsilon), ZERO_OUT, square)), 128 * 128 * NAT)
    assert abs(accepted - pure_square(epsilon, PURE_MARGIN / 2)) <= rounding


def test_a_pure_loss_beyond_600_nat_is_beyond_every_capacity() -> None:
    """And so is all that covers it."""
    beyond = exact_square(pure(Fraction(601)), ZERO_OUT)
    assert beyond == 128 * 128 * NAT
    assert exact_square_covers(pure(Fraction(601)), ZERO_OUT, beyond)
    assert not exact_square_covers(pure(Fraction(601)), ZERO_OUT, beyond - 1)
    assert exact_square(pure(Fraction(600)), ZERO_OUT) != beyond


def test_noise_is_covered_from_its_own_square_on() -> None:
    """Twice as far where a record is replaced; what needs a certificate is covered by no square alone."""
    for relation, square in ((ZERO_OUT, NAT // 16), (REPLACED, NAT // 4)):
        noise = m.Gaussian(Fraction(4))
        assert [exact_square_covers(noise, relation, square + more) for more in (-1, 0, 1)] == [False, True, True]
    assert exact_square_covers(LAPLACE, ZERO_OUT, NAT) is None
    assert exact_square(LAPLACE, ZERO_OUT) is None


def test_what_has_no_proof_under_a_relation_is_not_priced() -> None:
    """Sampled steps of which one is replaced."""
    step = m.PoissonGaussian(Fraction(1, 2), Fraction(1), 1)
    questions: tuple[Callable[[], object], ...] = (
        lambda: exact_square(step, REPLACED),
        lambda: exact_square_covers(step, REPLACED, NAT),
        lambda: certificate(step, REPLACED, 1, Fraction(1, 10)),
        lambda: certified(step, REPLACED, 1, Fraction(1, 10), NAT),
    )
    for ask in questions:
        with pytest.raises(NotPriced):
            ask()


@pytest.mark.parametrize("count", [1, 6])
def test_a_certificate_needs_a_tau_beyond_its_noise(count: int) -> None:
    """To issue one takes eight times the noise and two margins, to accept one the noise and one margin."""
    noise, margin = Fraction(repeated(LAPLACE, ZERO_OUT, count, 1e-4).noise), Fraction(MARGIN)
    for part, has in ((Fraction(3, 2), False), (Fraction(5, 2), True)):
        assert (certificate(LAPLACE, ZERO_OUT, count, 8 * noise + part * margin) is not None) is has
    for part, has in ((Fraction(1, 2), False), (Fraction(3, 2), True)):
        assert certified(LAPLACE, ZERO_OUT, count, noise + part * margin, 60 * 60 * NAT) is has


def test_a_certificate_is_accepted_and_hardly_a_lesser_one() -> None:
    """What is issued, and a thousandth less; nothing is covered by no Gaussian at all."""
    tau = Fraction(1, 10_000)
    for step, count in ((LAPLACE, 1), (LAPLACE, 6), (m.Laplace(Fraction(1, 9)), 1), (m.Laplace(Fraction(99)), 1)):
        square = certificate(step, ZERO_OUT, count, tau)
        assert square is not None
        accepted = [certified(step, ZERO_OUT, count, tau, one) for one in (0, square * 9_990 // 10_000, square)]
        assert accepted == [False, False, True]


@pytest.mark.parametrize(
    ("step", "count"),
    [(LAPLACE, 6), (m.PoissonGaussian(Fraction(1, 100), Fraction(1), 1), 200)],
    ids=str,
)
def test_a_certificate_leaves_room_for_what_another_machine_computes(step: m.Mechanism, count: int) -> None:
    """The bound for issuing lies above the curve. It is covered at every point, and not by a billionth less."""
    tau, curves = Fraction(1, 1_000), repeated(step, ZERO_OUT, count, 1e-4)
    left = float(tau) - 2 * MARGIN
    last = curves.epsilon(left)
    width = 2.0 ** math.floor(math.log2(last / 2_000))
    grid = np.arange(math.ceil(last / width) + 1) * width
    square = certificate(step, ZERO_OUT, count, tau)
    assert square is not None
    issued = curves.issued(grid[:-1])
    for units, covers in ((square, True), (square - square // 10**9 - 2, False)):
        mu = math.sqrt(units / NAT)
        gaussian = ndtr(-grid[1:] / mu + mu / 2) - np.exp(grid[1:]) * ndtr(-grid[1:] / mu - mu / 2)
        assert bool(np.all(issued <= left + gaussian + 1e-15)) is covers


def test_a_grid_that_is_too_large_has_no_certificate() -> None:
    """It is neither issued nor accepted."""
    step = m.Group(2, m.Laplace(Fraction(1, 100)))
    assert certificate(step, ZERO_OUT, 1, Fraction(1, 1_000)) is None
    assert not certified(step, ZERO_OUT, 1, Fraction(1, 1_000), 60 * 60 * NAT)


def test_capacities_begin_at_nothing_and_reach_the_greatest_budget() -> None:
    """Nothing keeps a δ that rounding decides, but nothing at all; ε 128 has more room than a μ² of 128."""
    assert gaussian_capacity(Fraction(1, 10**9), SMALL) == 0
    assert [gaussian_keeps(Fraction(1), SMALL, square) for square in (-1, 0, 1)] == [True, True, False]
    great = gaussian_capacity(Fraction(128), Fraction(1, 1_000))
    assert 128 * NAT < great < 256 * NAT
    assert gaussian_keeps(Fraction(128), Fraction(1, 1_000), great)
    assert not gaussian_keeps(Fraction(128), Fraction(1, 1_000), great + great // 10**6)


def test_an_epsilon_is_reported_up_to_4096_nat() -> None:
    """None beyond; 0 of nothing, and of what δ alone covers."""
    assert gaussian_epsilon(0, SMALL) == 0
    assert gaussian_epsilon(NAT // 10**6, Fraction(1, 1_000)) == 0
    for mu, about in ((1, 4.377_2), (80, 3_540.0)):
        found = gaussian_epsilon(mu * mu * NAT, Fraction(1, 10**5))
        assert found is not None
        assert float(found) == pytest.approx(about, rel=1e-3)
        assert gaussian_keeps(found, Fraction(1, 10**5), mu * mu * NAT)
        assert not gaussian_keeps(found * Fraction(999_999, 10**6), Fraction(1, 10**5), mu * mu * NAT)
    assert gaussian_epsilon(100 * 100 * NAT, Fraction(1, 10**5)) is None
