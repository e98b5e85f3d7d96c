"""Edges of the rules' terms, caps and coordinates: each value that a small change of the source would move."""

from __future__ import annotations

from fractions import Fraction

import pytest
from msgspec import structs

from ledger.accounting.rounding import float_down, float_up
from ledger.filters import Cap, NoRoom, read_rule
from ledger.filters.capacity import used
from ledger.filters.catalogue import Catalogue, odometers_at
from ledger.filters.catalogue_prices import DELTA_LEAST, require_delta
from ledger.filters.pure_dp import PureSum
from ledger.filters.renyi import Renyi
from ledger.filters.rule import SLACK, Coordinate, Opening
from ledger.filters.step_types import StepType, as_sampled
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import Gaussian, PoissonGaussian, Pure
from ledger.wire.exact_numbers import DELTA_ONE
from ledger.wire.malformed import Malformed

ZERO_OUT = "REPLACE_SPECIAL"
TYPE = StepType(steps=50, noise_multiplier=Fraction(2), probability=Fraction(1, 20), ticks=1)
RENYI = Renyi(Fraction(1, 1_000), (2, 3, 4), (200, 300, 500), 7, 2)
CAP = Cap(Fraction(3), (100, None, 400, 7))


def catalogue(delta: Fraction, slack: int = 0, odometers: int | None = None) -> Catalogue:
    """Terms of one type."""
    terms = Catalogue(delta, Fraction(3), slack, 10, (TYPE,))
    return terms if odometers is None else structs.replace(terms, odometers=odometers)


@pytest.mark.parametrize("terms", ["{", "7", '{"kind":"renyi"}', "{}"])
def test_terms_that_cannot_be_read_are_named(terms: str) -> None:
    """Whatever is wrong with them."""
    with pytest.raises(Malformed) as refused:
        read_rule(terms)
    assert refused.value.field.partition(".")[0] == "terms"


def test_what_has_no_room_names_the_least_that_has_some() -> None:
    """Rounded up to a thousandth."""
    error = NoRoom(Fraction(1, 4), Fraction(10_001, 10_000))
    assert str(error) == "an ε of 0.25 has no room at any coordinate; the least that has some is 1.001"
    assert (error.epsilon, error.least) == (Fraction(1, 4), Fraction(10_001, 10_000))


def test_a_closed_coordinate_is_full_at_once() -> None:
    """And empty while nothing is charged."""
    assert [used(at, bound) for at, bound in ((0, 0), (1, 0), (1, None), (None, 5), (2, 5))] == [
        0,
        1,
        1,
        1,
        Fraction(2, 5),
    ]


def test_the_potential_needs_a_millionth_and_two_odometers_twice_that() -> None:
    """Exactly, and less than one."""
    for certain in (DELTA_LEAST, Fraction(999, 1_000)):
        require_delta(certain)
    for certain in (DELTA_LEAST - Fraction(1, 10**12), Fraction(1), Fraction(3, 2)):
        with pytest.raises(Malformed) as refused:
            require_delta(certain)
        assert refused.value.field == "delta"
    assert [odometers_at(one * DELTA_LEAST) for one in (Fraction(2), Fraction(199, 100), Fraction(5, 2))] == [
        2,
        None,
        2,
    ]


def test_terms_with_two_odometers_that_have_too_little_are_refused() -> None:
    """Of what is left beside the slack."""
    assert catalogue(2 * DELTA_LEAST, odometers=2).odometer_delta == DELTA_LEAST
    with pytest.raises(Malformed) as refused:
        structs.replace(catalogue(2 * DELTA_LEAST, slack=1), odometers=2).__post_init__()
    assert refused.value.field == "odometers"


def test_a_catalogue_counts_ticks_and_slack() -> None:
    """One tick is one unit; what is certain is δ less the slack."""
    terms = catalogue(Fraction(1, 1_000), slack=DELTA_ONE // 4_000)
    assert terms.coordinates == (Coordinate("ticks", 1, ""), SLACK)
    assert terms.certain == Fraction(1, 1_000) - Fraction(DELTA_ONE // 4_000, DELTA_ONE)
    assert terms.price_line.most == 20


@pytest.mark.parametrize(
    ("finite", "infinite", "decisive"),
    [
        # The order that is used least; the closed one is none of them.
        ((50, 0, 100, 0), (0, 0, 0, 0), 2),
        ((10, 0, 100, 7), (0, 0, 0, 0), 0),
        # An infinite charge leaves the others.
        ((10, 0, 399, 0), (1, 0, 0, 0), 2),
        ((0, 0, 0, 0), (1, 1, 1, 0), None),
        # The slack where it does not hold, unless nothing finite does.
        ((10, 0, 100, 8), (0, 0, 0, 0), 3),
        ((10, 0, 100, 8), (0, 1, 1, 0), 3),
        ((10, 0, 100, 0), (0, 0, 0, 1), None),
    ],
)
def test_the_decisive_order_is_the_emptiest_open_one(
    finite: tuple[int, ...], infinite: tuple[int, ...], decisive: int | None
) -> None:
    """Of three orders, the second closed, and the slack."""
    assert RENYI.decisive(Loss(finite, infinite), CAP) == decisive


def test_the_share_of_orders_that_are_all_infinite_is_one() -> None:
    """Neither more, nor what the slack has."""
    assert RENYI.share(Loss((0, 0, 0, 0), (1, 0, 1, 0)), CAP) == 1
    assert RENYI.share(Loss((50, 0, 100, 0), (0, 0, 0, 0)), CAP) == Fraction(1, 4)
    assert RENYI.share(Loss((50, 0, 100, 7), (0, 0, 0, 0)), CAP) == 1


@pytest.mark.parametrize(
    ("capacity", "finite", "share", "decisive"),
    [
        # All of them: full with the first unit, and empty before.
        ((0, None, 0, 0), (0, 0, 0, 0), Fraction(0), 0),
        ((0, None, 0, 0), (3, 3, 3, 0), Fraction(1), 0),
        # One that has some is the emptier one.
        ((0, None, 4, 0), (3, 3, 3, 0), Fraction(3, 4), 2),
    ],
)
def test_an_order_whose_part_is_nothing_is_full_at_once(
    capacity: tuple[int | None, ...], finite: tuple[int, ...], share: Fraction, decisive: int
) -> None:
    """As the part of a tiny quota rounds to: no division by it."""
    cap, loss = Cap(Fraction(3), capacity), Loss(finite, (0, 0, 0, 0))
    assert (RENYI.share(loss, cap), RENYI.decisive(loss, cap)) == (share, decisive)
    assert RENYI.admits(loss, cap) is (share < 1)


def test_a_number_that_is_a_float_stays_it() -> None:
    """Nothing is added on either side."""
    for number in (Fraction(1, 4), Fraction(3), Fraction(0)):
        assert float_up(number) == float_down(number) == number


def test_a_pure_sum_reports_itself() -> None:
    """In nats."""
    rule = PureSum()
    loss = loss_of(rule.segments(Pure(Fraction(3, 8), ZERO_OUT), ZERO_OUT), 1)
    assert rule.odometer(loss.times(5)) == Fraction(15, 8)


def test_a_gaussian_is_one_sampled_step_that_takes_every_record() -> None:
    """And one that a type of that noise dominates."""
    assert as_sampled(Gaussian(Fraction(3))) == PoissonGaussian(Fraction(1), Fraction(3), 1)
    assert as_sampled(Pure(Fraction(1), ZERO_OUT)) is None


@pytest.mark.parametrize(
    ("delta", "slack", "field"),
    [(Fraction(1), 0, "delta"), (Fraction(0), 0, "delta"), (Fraction(1, 1_024), DELTA_ONE // 1_024, "slack")],
)
def test_what_orders_cannot_share_is_named(delta: Fraction, slack: int, field: str) -> None:
    """A δ that is none, and a slack that leaves nothing of it."""
    with pytest.raises(Malformed) as refused:
        Renyi.choose(Opening(delta, (Fraction(1),), None, slack=slack))
    assert refused.value.field == field
