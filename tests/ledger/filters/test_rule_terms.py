"""What each rule makes of an opening, and what its terms answer at the very edge: each number by its definition."""

from __future__ import annotations

from fractions import Fraction

import pytest

from ledger.accounting.gaussian_certificates import certificate, gaussian_capacity, gaussian_epsilon
from ledger.accounting.pld_counting import count_capacity
from ledger.filters import Cap, Catalogue, NoRoom, Opening
from ledger.filters.gaussian import GaussianRule
from ledger.filters.odometer_checkpoints import Checkpoint, checkpoint
from ledger.filters.pure_dp import PureSum
from ledger.filters.reference_step_count import Reference
from ledger.filters.renyi import Renyi
from ledger.filters.renyi_orders import declared_shares, load_prices, order_bound, undeclared_shares
from ledger.filters.step_types import StepType
from ledger.mechanisms.loss import Loss, Segment
from ledger.mechanisms.mechanism import Composed, Gaussian, Group, Laplace, Mechanism, PoissonGaussian
from ledger.wire.exact_numbers import DELTA_ONE, NAT
from ledger.wire.malformed import Malformed

ZERO_OUT = "REPLACE_SPECIAL"
DELTA, SLACK = Fraction(1, 1_024), DELTA_ONE // 1_024
RENYI = Renyi(Fraction(1, 1_000), (2, 3, 4), (200, 300, 500), 7, 2)
STEP = PoissonGaussian(Fraction(1, 4), Fraction(4), 1)


def test_the_odometer_of_orders_is_the_least_and_one_unit() -> None:
    """Of r - B(α; 0, w·δ/2); at least 0."""
    for finite in ((10**12, 3 * 10**12, 2 * 10**13, 7), (10**13, 10**13, 10**13, 0), (1, 1, 1, 0)):
        shares = (RENYI.odometer_delta * Fraction(weight, 1_000) for weight in RENYI.weights)
        found = [
            Fraction(at, NAT) - order_bound(order, Fraction(0), share)
            for at, order, share in zip(finite, RENYI.orders, shares, strict=False)
        ]
        assert RENYI.odometer(Loss(finite, (0, 0, 0, 0))) == max(Fraction(0), min(found)) + Fraction(1, NAT)


def test_orders_share_what_the_slack_leaves() -> None:
    """As those of a partition that has no more; terms whose slack is all of δ are refused."""
    slack = DELTA_ONE // 1_000 * 99 // 100
    less = Fraction(1, 1_000) - Fraction(slack, DELTA_ONE)
    kept, bare = (
        Renyi.choose(Opening(delta, (Fraction(3),), None, slack=part))
        for delta, part in ((Fraction(1, 1_000), slack), (less, 0))
    )
    assert (kept.orders, kept.weights) == (bare.orders, bare.weights)
    assert kept.orders != Renyi.choose(Opening(Fraction(1, 500), (Fraction(3),), None)).orders
    for terms in (
        lambda: Renyi(DELTA, (2,), (1_000,), SLACK),
        lambda: GaussianRule(DELTA, Fraction(1), SLACK, (1,)),
    ):
        with pytest.raises(Malformed) as refused:
            terms()
        assert refused.value.field == "slack"


def test_rules_of_other_orders_have_other_hashes() -> None:
    """They are keys of caches."""
    rules = {Renyi(DELTA, (2, order), (500, 500)) for order in range(3, 20)}
    assert len({hash(one) for one in rules}) > 10


def test_no_run_fits_that_is_finite_nowhere_or_has_no_slack() -> None:
    """At every open order infinite; and with a δ of its own where none is kept for it."""
    cap, empty = Cap(Fraction(3), (100, None, 400, 0)), Loss.zero(4)
    assert RENYI.runs(empty, cap, Loss((0, 0, 0, 0), (1, 0, 1, 0))) == 0
    assert RENYI.runs(empty, cap, Loss((10, 0, 10, 1), (0, 0, 0, 0))) == 0
    assert RENYI.runs(empty, cap, Loss((10, 0, 10, 0), (0, 0, 0, 0))) == 40
    pure = PureSum()
    assert pure.runs(Loss((0,), (0,)), Cap(Fraction(1), (0,)), Loss((1,), (0,))) == 0
    assert pure.runs(Loss((0,), (0,)), Cap(Fraction(1), (5,)), Loss((0,), (0,))) == 0


def bounds(epsilon: Fraction) -> list[Fraction]:
    """Of the orders, each of which has a share of δ."""
    return [bound for bound in RENYI.bounds(epsilon) if bound is not None]


def test_a_cap_without_room_names_a_thousandth_more_than_the_least() -> None:
    """By Rényi's orders; by a Gaussian, the ε of a single unit."""
    with pytest.raises(NoRoom) as refused:
        RENYI.cap(Fraction(1, 100))
    assert refused.value.least == Fraction(1, 100) - max(bounds(Fraction(1, 100))) + Fraction(1, 1_000)
    # An order whose bound is exactly 0 is closed, and one unit opens it.
    least = -max(bounds(Fraction(0)))
    with pytest.raises(NoRoom):
        RENYI.cap(least)
    assert [one for one in RENYI.cap(least + Fraction(1, NAT)).capacity[:-1] if one is not None] == [1]
    assert None in RENYI.cap(-min(bounds(Fraction(0)))).capacity
    narrow = GaussianRule.choose(Opening(Fraction(1, 10**9), (Fraction(1),), None))
    with pytest.raises(NoRoom) as closed:
        narrow.cap(Fraction(1, 10**8))
    assert closed.value.least == gaussian_epsilon(1, narrow.certain)


def test_a_load_has_prices_at_orders_up_to_64() -> None:
    """Of a Gaussian, at each of them."""
    assert load_prices(Gaussian(Fraction(2)), ZERO_OUT) == {order: order * NAT // 8 for order in range(2, 65)}


@pytest.mark.parametrize(
    ("count", "capacity", "reached"),
    [
        (1, 1, Checkpoint(1, Fraction(1, 10))),
        (3, 100, Checkpoint(7, Fraction(1, 10))),
        (8, 100, Checkpoint(13, Fraction(1, 10))),
        (100, 100, Checkpoint(100, Fraction(1, 10))),
        (101, 100, Checkpoint(200, Fraction(3, 10))),
        (200, 100, Checkpoint(200, Fraction(3, 10))),
        (201, 100, Checkpoint(400, Fraction(3, 40))),
        (1_601, 100, Checkpoint(3_200, Fraction(3, 250))),
    ],
)
def test_checkpoints_double(count: int, capacity: int, reached: Checkpoint) -> None:
    """Five up to the budget, each with a tenth of δ; beyond it 3/10 over the square of their number."""
    assert checkpoint(count, capacity) == reached
    with pytest.raises(ArithmeticError):
        checkpoint(count, 0)


def test_a_certificate_is_chosen_for_the_most_runs() -> None:
    """Of all parts of the slack, the one at which the Gaussian and the slack together last longest."""
    rule = GaussianRule.choose(Opening(Fraction(1, 1_000), (Fraction(1),), None))
    room = gaussian_capacity(rule.epsilon, rule.certain)
    for step in (Laplace(Fraction(2)), Laplace(Fraction(30))):
        known = [(certificate(step, ZERO_OUT, 1, Fraction(tau, DELTA_ONE)), tau) for tau in rule.menu]
        _, square, tau = max(
            (min(Fraction(room, one), Fraction(rule.slack, tau)), one, tau) for one, tau in known if one
        )
        assert rule.segments(step, ZERO_OUT) == (Segment(1, (square, tau)),)
    wide = Group(2, Laplace(Fraction(1, 100)))
    assert rule.segments(wide, ZERO_OUT) == (Segment(1, (None, 0)),)


def test_a_reference_is_the_step_of_its_load() -> None:
    """One of it, with as many as keep the budget."""
    rule = Reference.choose(Opening(DELTA, (Fraction(1),), PoissonGaussian(Fraction(1, 4), Fraction(4), 30)))
    assert rule.step == STEP
    assert (rule.delta, rule.epsilon) == (DELTA, Fraction(1))
    assert rule.odometers == 2
    assert rule.capacity == count_capacity(STEP, Fraction(1), DELTA) > 3
    with pytest.raises(Malformed):
        Reference(DELTA, Fraction(1), Fraction(1, 1_000), Fraction(1, 4))


@pytest.mark.parametrize("delta", [Fraction(1), Fraction(3, 2), Fraction(1, 10**9) - Fraction(1, 10**18)])
def test_a_reference_needs_a_delta_of_a_thousand_millionth(delta: Fraction) -> None:
    """And less than one."""
    with pytest.raises(Malformed) as refused:
        Reference.choose(Opening(delta, (Fraction(1),), STEP))
    assert refused.value.field == "delta"
    assert Reference.choose(Opening(Fraction(1, 10**9), (Fraction(1),), STEP)).delta == Fraction(1, 10**9)


def test_a_run_is_charged_in_whole_blocks_of_the_type_that_costs_less() -> None:
    """Thirty-four steps are two blocks of either kind: the shorter one."""
    types = (StepType(Fraction(2), Fraction(1, 20), 33, 1), StepType(Fraction(2), Fraction(1, 21), 32, 1))
    rule = Catalogue(Fraction(1, 1_000), Fraction(2), 0, 19, types, 2)
    units = {steps: rule.segments(PoissonGaussian(Fraction(1, 30), Fraction(2), steps), ZERO_OUT) for steps in (33, 34)}
    assert units == {33: (Segment(33, (1, 0), 33),), 34: (Segment(34, (1, 0), 32),)}


def test_a_catalogue_has_what_the_slack_leaves_and_a_thousand_ticks() -> None:
    """As one of a partition that has no more δ; blocks are longer where there are several kinds."""
    slack = DELTA_ONE // 2_000
    kept, bare = (
        Catalogue.choose(Opening(delta, (Fraction(1),), STEP, ZERO_OUT, part))
        for delta, part in ((DELTA, slack), (DELTA - Fraction(slack, DELTA_ONE), 0))
    )
    assert (kept.types, kept.capacity) == (bare.types, bare.capacity)
    one, other = (PoissonGaussian(Fraction(1, 20), noise, 1) for noise in (Fraction(2), Fraction(3)))
    fit = count_capacity(one, Fraction(3), DELTA)
    alone = Catalogue.choose(Opening(DELTA, (Fraction(3),), one, ZERO_OUT))
    assert alone.types[0].steps == -(-fit // 1_024) > 1
    both = Catalogue.choose(Opening(DELTA, (Fraction(3),), Composed((one, other)), ZERO_OUT, 0, (1, 1)))
    assert both.types[0].steps == -(-fit // 256)


COVID = PoissonGaussian(Fraction(1, 186), Fraction(6_531, 10_000), 186)


@pytest.mark.parametrize(
    ("caps", "exponent", "load", "shares"),
    [
        ((1,), 3, None, {10: 750, 8: 250}),
        ((1,), 6, None, {22: 600, 17: 200, 13: 200}),
        ((3, 1), 3, None, {5: 600, 10: 200, 4: 200}),
        ((3, 1), 6, None, {9: 600, 22: 200, 7: 200}),
        (("1/10",), 3, None, {51: 750, 40: 250}),
        (("1/10",), 6, None, {166: 750, 132: 250}),
        ((2, 1, "1/2"), 3, None, {6: 600, 10: 200, 16: 200}),
        ((8,), 3, None, {3: 800, 2: 200}),
        ((8,), 6, None, {4: 750, 3: 250}),
        (("1/1000",), 3, None, {256: 1_000}),
        ((3, "1/100"), 3, None, {5: 500, 212: 500}),
        ((3, "1/100"), 6, None, {9: 1_000}),
        ((3, 1), 6, Laplace(Fraction(10)), {10: 508, 64: 28, 8: 28, 9: 262, 22: 87, 7: 87}),
        ((8,), 6, COVID, {3: 672, 4: 328}),
        ((3, "1/100"), 3, COVID, {4: 93, 256: 93, 5: 408, 212: 406}),
        ((1,), 3, COVID, {10: 750, 8: 250}),
        ((2, 1, "1/2"), 3, Gaussian(Fraction(4)), {6: 600, 10: 200, 16: 200}),
    ],
)
def test_divisions_of_delta_are_as_partitions_recorded_them(
    caps: tuple[int | str, ...], exponent: int, load: Mechanism | None, shares: dict[int, int]
) -> None:
    """With a declaration and without, for one cap and several, where it gains runs and where it moves nothing."""
    opening = tuple(map(Fraction, caps)), Fraction(1, 10**exponent)
    declared = None if load is None else declared_shares(*opening, load_prices(load, ZERO_OUT))
    assert (declared or undeclared_shares(*opening)) == shares


def test_terms_without_a_recorded_capacity_tell_the_same() -> None:
    """As old ones are; a step that no grid holds has no cap."""
    load = PoissonGaussian(Fraction(1, 4), Fraction(4), 30)
    rule = Reference.choose(Opening(DELTA, (Fraction(1),), load))
    old = Reference(DELTA, Fraction(1), Fraction(4), Fraction(1, 4), None, 2)
    assert [old.odometer(Loss((count,), (0,))) for count in (1, 4)] == [
        rule.odometer(Loss((count,), (0,))) for count in (1, 4)
    ]
    with pytest.raises(Malformed) as refused:
        Reference(DELTA, Fraction(1), Fraction(1, 100), Fraction(1, 2)).cap(Fraction(1))
    assert refused.value.field == "load"
