"""Which accountant an ε is told by, at which δ it is told at all, and what is written of it."""

from __future__ import annotations

import math
from fractions import Fraction
from importlib.metadata import version

import pytest

from ledger.accounting.epsilon_report import estimate_epsilon, report_epsilon, report_up, reported_epsilon, slack
from ledger.accounting.pld import OutputsNotFound
from ledger.accounting.pld_mechanisms import INTERVALS, compose
from ledger.mechanisms import mechanism as m
from ledger.mechanisms.price_proofs import NotPriced
from ledger.wire.exact_numbers import DELTA_MIN
from ledger.wire.malformed import Malformed

ZERO_OUT = "REPLACE_SPECIAL"
GAUSSIAN = m.Gaussian(Fraction(5))
SMALL = m.Pure(Fraction(1, 300), ZERO_OUT)
BOX = m.BlackBox(Fraction(1, 1_000), Fraction(1, 2), ZERO_OUT)


@pytest.mark.parametrize(
    ("mechanism", "delta", "accountant"),
    [
        (SMALL, Fraction(0), "basic"),
        # On no grid: every discretisation rounds it up.
        (SMALL, DELTA_MIN, "basic"),
        (GAUSSIAN, Fraction(1, 10**5), "PLD"),
        # Beyond every budget: no grid is tried.
        (m.Gaussian(Fraction(1, 50)), Fraction(1, 10**5), "Rényi"),
    ],
)
def test_the_least_is_reported_by_its_name(mechanism: m.Mechanism, delta: Fraction, accountant: str) -> None:
    """Of three accountants, with the version of the library."""
    report = report_epsilon(mechanism, delta, ZERO_OUT)
    assert (report.accountant, report.delta, report.relation) == (accountant, delta, ZERO_OUT)
    assert report.version == f"dp-accounting {version('dp-accounting')}"
    assert report.epsilon == reported_epsilon(mechanism, delta, ZERO_OUT)
    if accountant == "basic":
        assert report.epsilon == Fraction(3_333_334, 10**9)


def test_what_is_written_of_it() -> None:
    """Rounded up to a billionth."""
    assert report_epsilon(SMALL, Fraction(0), ZERO_OUT).to_json() == {
        "accountant": "basic",
        "delta": "0",
        "epsilon": "0.003333334",
        "relation": ZERO_OUT,
        "version": f"dp-accounting {version('dp-accounting')}",
    }
    assert [report_up(one) for one in (Fraction(1, 2), Fraction(2, 3), Fraction(0))] == [
        Fraction(1, 2),
        Fraction(666_666_667, 10**9),
        0,
    ]


@pytest.mark.parametrize("delta", [Fraction(1), Fraction(3, 2), DELTA_MIN - Fraction(1, 10**15), Fraction(-1, 2)])
def test_a_delta_outside_its_range_is_named(delta: Fraction) -> None:
    """One that is no probability, or too small for a grid; 0 and the least are not."""
    with pytest.raises(Malformed) as refused:
        report_epsilon(GAUSSIAN, delta, ZERO_OUT)
    assert refused.value.field == "delta"
    assert report_epsilon(SMALL, DELTA_MIN, ZERO_OUT).epsilon > 0


def test_at_delta_0_only_a_pure_loss_has_an_epsilon() -> None:
    """Noise without bound is not priced; and no proof is borrowed from another relation."""
    for tell in (report_epsilon, estimate_epsilon):
        with pytest.raises(NotPriced):
            tell(GAUSSIAN, Fraction(0), ZERO_OUT)
        with pytest.raises(NotPriced):
            tell(m.PoissonGaussian(Fraction(1, 2), Fraction(1), 1), Fraction(1, 10**5), "REPLACE_ONE")
    assert estimate_epsilon(SMALL, Fraction(0), ZERO_OUT) == Fraction(1, 300)


def test_an_estimate_is_an_upper_bound_near_the_report() -> None:
    """Of a mechanism that a grid holds, of one that none does, and of one that has no finite ε."""
    delta = Fraction(1, 10**5)
    near, reported = estimate_epsilon(GAUSSIAN, delta, ZERO_OUT), reported_epsilon(GAUSSIAN, delta, ZERO_OUT)
    assert near is not None
    assert reported <= near + Fraction(1, 10**9)
    assert near <= reported * Fraction(11, 10)
    ruinous = estimate_epsilon(m.Gaussian(Fraction(1, 50)), delta, ZERO_OUT)
    assert ruinous is not None
    assert report_up(ruinous) == reported_epsilon(m.Gaussian(Fraction(1, 50)), delta, ZERO_OUT)
    assert estimate_epsilon(BOX, Fraction(1, 10_000), ZERO_OUT) is None
    # Concentrated losses have no grid.
    curve = m.Zcdp(ZERO_OUT, rho=Fraction(1, 8), xi=Fraction(0))
    assert estimate_epsilon(curve, delta, ZERO_OUT) == pytest.approx(float(reported_epsilon(curve, delta, ZERO_OUT)))


def test_black_boxes_leave_their_delta_to_the_slack() -> None:
    """Wherever they are held, as often as they run, and in a group by what it multiplies δ by."""
    delta = Fraction(1, 1_000)
    assert slack(GAUSSIAN) == slack(SMALL) == 0
    assert slack(BOX) == delta
    assert slack(m.SelfComposed(7, BOX)) == 7 * delta
    assert slack(m.Composed((BOX, GAUSSIAN, m.SelfComposed(3, BOX)))) == 4 * delta
    group = slack(m.Group(3, BOX))
    assert float(group) == pytest.approx(0.001 * (1 + math.exp(0.5) + math.exp(1.0)), rel=1e-12)
    assert slack(m.Group(3, m.SelfComposed(2, BOX))) == 2 * group
    assert slack(m.Group(3, GAUSSIAN)) == 0


def test_the_whole_delta_of_a_box_leaves_no_epsilon() -> None:
    """A hair more does."""
    with pytest.raises(Malformed) as refused:
        report_epsilon(BOX, BOX.delta, ZERO_OUT)
    assert refused.value.field == "noise_multiplier"
    assert report_epsilon(BOX, 2 * BOX.delta, ZERO_OUT).epsilon <= Fraction(501, 1_000)


@pytest.mark.parametrize(
    ("mechanism", "grids"),
    [
        (m.PoissonGaussian(Fraction(1, 10), Fraction(20), 200), 2),
        (m.PoissonGaussian(Fraction(1, 100), Fraction(20), 200), 3),
    ],
)
def test_a_grid_is_refined_until_that_changes_less_than_a_hundredth(mechanism: m.Mechanism, grids: int) -> None:
    """So many were looked at, and the least ε of them is told; an estimate is of the first one."""
    found = [compose(mechanism, ZERO_OUT, interval).epsilon(1e-5) for interval in INTERVALS]
    delta = Fraction(1, 10**5)
    assert reported_epsilon(mechanism, delta, ZERO_OUT) == report_up(Fraction(min(found[:grids])))
    assert estimate_epsilon(mechanism, delta, ZERO_OUT) == Fraction(found[0])


def test_an_estimate_of_many_tiny_steps_is_by_renyi() -> None:
    """Its grid is too coarse for them."""
    tiny, delta = m.PoissonGaussian(Fraction(1, 100), Fraction(50), 10_000), Fraction(1, 10**5)
    coarse = compose(tiny, ZERO_OUT, INTERVALS[0]).epsilon(1e-5)
    near = estimate_epsilon(tiny, delta, ZERO_OUT)
    assert near is not None
    assert 0 < near < Fraction(coarse) * 2 / 3


@pytest.mark.parametrize(("epsilon", "count"), [(250, 5)])
def test_a_loss_beyond_what_floats_hold_is_not_reported_as_less(epsilon: int, count: int) -> None:
    """Boxes whose δ together is more than δ, but for the runs in which two leak; they lose some thousand nats."""
    boxes = m.SelfComposed(count, m.BlackBox(Fraction(1, 100), Fraction(epsilon), ZERO_OUT))
    delta = Fraction(count, 100) - Fraction(count * (count - 1) // 4, 10_000)
    with pytest.raises(Malformed) as refused:
        report_epsilon(boxes, delta, ZERO_OUT)
    assert refused.value.field == "noise_multiplier"


@pytest.mark.parametrize(("noise", "k"), [(10**4, 8), (10**4, 64), (10**5, 32), (10**6, 64)])
def test_a_plan_whose_outputs_are_not_found_is_reported_by_renyi(noise: int, k: int) -> None:
    """Large groups at much noise: searches and reports have a number, and a charge has none, as recorded ones had."""
    group = m.Group(k, m.PoissonGaussian(Fraction(3, 10), Fraction(noise), 1))
    delta = Fraction(1, 10**6)
    with pytest.raises(OutputsNotFound):
        report_epsilon(group, delta, ZERO_OUT)
    reported = reported_epsilon(group, delta, ZERO_OUT)
    estimate = estimate_epsilon(group, delta, ZERO_OUT)
    assert estimate is not None
    assert reported == report_up(estimate)
    # No more than all records of the group in each step lose, by Rényi too, and never nothing.
    least = max(Fraction(0), min(_renyi_of_all(k, noise, delta)))
    assert 0 <= reported <= report_up(least)


def _renyi_of_all(k: int, noise: int, delta: Fraction) -> list[Fraction]:
    return [
        Fraction(order * k * k, 2 * noise * noise)
        + Fraction((math.log(1 / delta) + math.log1p(-1 / order) * (order - 1) - math.log(order)) / (order - 1))
        for order in range(2, 65)
    ]
