"""The rule ``gaussian`` in the abstract holds, and not with certificates that look one way only."""

from fractions import Fraction
from math import exp

import pytest

from tests.ledger.filters.game import Run
from tests.ledger.filters.gaussian_trials import GaussianTrial, random_gaussian_trial
from tests.ledger.filters.lattice import below_gaussian, certificate, gaussian_delta, on_lattice
from tests.ledger.filters.libraries import STEP, response, spike

WITHIN = 1 + 1e-9


@pytest.mark.parametrize("batch", [0, *(pytest.param(batch, marks=pytest.mark.soak) for batch in range(1, 6))])
def test_random_libraries_never_break_the_rule(batch: int) -> None:
    """Twenty libraries each: up to four runs of up to three steps, two at a time, stopped, voided, refunded."""
    reached = [random_gaussian_trial(seed).reached() for seed in range(batch * 20, batch * 20 + 20)]
    assert max(reached) <= WITHIN
    assert sum(one > 0 for one in reached) >= 13
    assert max(reached) > 0.3


BACK = spike(Fraction(1, 50), 20)


def test_certificates_of_one_direction_are_broken() -> None:
    """Turned round, a spike looks like a small Gaussian from the one side, and tells nearly all on the other."""
    there = on_lattice(BACK, STEP)
    one_way = certificate([there.backward], STEP, 0.0)
    both = certificate([there.forward, there.backward], STEP, 0.0)
    assert one_way is not None
    assert both is not None
    assert both > 5 * one_way
    trial = GaussianTrial((BACK.swapped,), [Run(0, 2)], 0.6, 1e-4, 1.5)
    assert trial.reached(one_direction=True) == pytest.approx(17.154, abs=0.01)
    assert trial.reached() == pytest.approx(0)


def test_random_libraries_do_break_certificates_of_one_direction() -> None:
    """Five of the same libraries: so they are a trial, and the second direction is needed."""
    reached = [random_gaussian_trial(seed).reached(one_direction=True) for seed in (3, 9, 27, 34, 40)]
    assert min(reached) > WITHIN
    assert max(reached) > 1.5


def test_a_certificate_is_as_small_as_it_may_be() -> None:
    """It holds at every e, knots and between; a hair less does not. RR's total variation alone asks for √(π/2)·ε."""
    pair = on_lattice(response(2), STEP)
    mu = certificate([pair.forward, pair.backward], STEP, 0.0)
    assert mu is not None
    assert mu >= 1.2533 * 2 * STEP * 0.99
    for at in range(400):
        e = at * STEP / 100
        assert pair.delta(e) <= gaussian_delta(mu, e) + 1e-15
    curve = [(at * STEP, pair.delta(at * STEP)) for at in range(3)]
    assert below_gaussian(curve, mu, 0.0)
    assert not below_gaussian(curve, mu * (1 - 1e-6), 0.0)


def test_between_two_knots_the_gaussian_may_dip_below() -> None:
    """Two knots that a Gaussian clears are not enough: the chord between them lies above its curve."""
    mu, last = 0.5, 4.0
    chord = [(0.0, gaussian_delta(mu, 0.0)), (last, 0.0)]
    assert all(known <= gaussian_delta(mu, e) for e, known in chord)
    middle = chord[0][1] * (1 - (exp(2.0) - 1) / (exp(last) - 1))
    assert middle > gaussian_delta(mu, 2.0)
    assert not below_gaussian(chord, mu, 0.0)
