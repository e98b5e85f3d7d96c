"""Numbers issued on one machine are accepted on another whose floats differ, and what is beyond the margin on none."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cache
from typing import Any, Final

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library

from ledger.accounting.gaussian_certificates import certified, exact_square_covers, gaussian_capacity, gaussian_keeps
from ledger.accounting.pld_counting import count_capacity, count_keeps
from ledger.accounting.pld_mechanisms import repeated
from ledger.accounting.renyi import ACCEPTED, price
from ledger.filters import Cap, Opening, Rule, choose_rule
from ledger.mechanisms import mechanism as m
from ledger.mechanisms.loss import Segment, cover
from ledger.wire.exact_numbers import DELTA_ONE, NAT
from tests.ledger.accounting.exact import sampled_gaussian
from tests.ledger.accounting.other_machine import forget, other_machine
from tests.ledger.filters.test_gaussian import EPSILONS, gaussian_curve, laplace_curve, pure_curve

ZERO_OUT: Final = "REPLACE_SPECIAL"
DELTA: Final = Fraction(1, 100_000)
EPSILON: Final = Fraction(3)
STEPS: Final = m.PoissonGaussian(Fraction(1, 16), Fraction(4), 40)
STEP: Final = m.PoissonGaussian(Fraction(1, 16), Fraction(4), 1)
ROUNDS: Final = m.SelfComposed(4, m.Composed((m.Laplace(Fraction(20)), m.RandomisedResponse(4, Fraction(19, 20)))))
NOISY: Final[tuple[m.Mechanism, ...]] = (STEPS, m.Laplace(Fraction(7, 2)), ROUNDS, m.Pure(Fraction(1, 3), ZERO_OUT))
BOX: Final = m.BlackBox(Fraction(1, 10**7), Fraction(1, 10), ZERO_OUT)
TAKEN: Final[dict[str, tuple[m.Mechanism, ...]]] = {
    "gaussian": (*NOISY, m.Gaussian(Fraction(7)), BOX),
    "reference": (STEPS,),
    "catalogue": (STEPS, m.Laplace(Fraction(7, 2)), m.Gaussian(Fraction(7)), BOX),
    "renyi": (*NOISY, m.Group(2, STEPS), m.RepeatAndSelect(Fraction(5), STEPS, "1")),
    "pure": (m.Laplace(Fraction(7, 2)), m.RandomisedResponse(4, Fraction(19, 20))),
}
Issued = tuple[list[tuple[Segment, ...]], Cap]


@cache
def rule_of(kind: str) -> Rule:
    """A rule of this kind, for a budget of ε 3: its terms are recorded, so every machine has the same."""
    load = STEPS if kind in {"reference", "catalogue"} else None
    return choose_rule(
        "renyi" if kind == "pure" else kind, Opening(Fraction(0) if kind == "pure" else DELTA, (EPSILON,), load)
    )


def issued(kind: str) -> Issued:
    """The prices of everything that a rule takes, and its capacity."""
    rule = rule_of(kind)
    return [rule.segments(one, ZERO_OUT) for one in TAKEN[kind]], rule.cap(EPSILON)


def accepted(kind: str, one: Issued) -> list[bool]:
    """Of each of them, whether it is."""
    prices, cap = one
    rule = rule_of(kind)
    pairs = zip(prices, TAKEN[kind], strict=True)
    return [*(rule.covers(segments, mechanism, ZERO_OUT) for segments, mechanism in pairs), rule.keeps(cap)]


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 8))])
@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.soak] if kind == "catalogue" else []) for kind in TAKEN]
)
def test_what_one_machine_issues_another_accepts(kind: str, seed: int) -> None:
    """Of every rule, either way round, each with nothing remembered."""
    here = issued(kind)
    with other_machine(seed):
        there = issued(kind)
        assert all(accepted(kind, here))
    forget()
    assert all(accepted(kind, there))


def test_to_search_again_and_compare_would_refuse_an_honest_book() -> None:
    """The certificate that is found elsewhere is greater on one machine than here."""
    (here, *_), _ = issued("gaussian")
    found = []
    for seed in (1, 2, 3):
        with other_machine(seed):
            (there, *_), _ = issued("gaussian")
            found.append(there)
    assert not all(cover(here, there) for there in found)


SINGLE: Final[list[tuple[m.Mechanism, Callable[[float], float]]]] = [
    (m.Laplace(Fraction(1)), laplace_curve(1.0)),
    (m.Laplace(Fraction(7, 2)), laplace_curve(3.5)),
]


@pytest.mark.parametrize(("mechanism", "curve"), SINGLE)
def test_the_least_certificate_that_is_accepted_is_one(mechanism: m.Mechanism, curve: Callable[[float], float]) -> None:
    """By the exact curve and 40 digits; one unit less is refused, and it is within a thousandth of what is issued."""
    terms: Any = rule_of("gaussian").to_json()
    tau: int = terms["menu"][0]
    part = Fraction(tau, DELTA_ONE)
    least = find_crossing(lambda square: certified(mechanism, ZERO_OUT, 1, part, square), 64 * NAT)
    assert all(curve(epsilon) <= float(part) + gaussian_curve(epsilon, least) for epsilon in EPSILONS)
    rule = rule_of("gaussian")
    assert rule.covers((Segment(1, (least, tau), 1),), mechanism, ZERO_OUT)
    assert not rule.covers((Segment(1, (least - 1, tau), 1),), mechanism, ZERO_OUT)
    assert not rule.covers((Segment(1, (least, tau + 1), 1),), mechanism, ZERO_OUT)
    less = least * 199 // 200
    assert any(curve(epsilon) > float(part) + gaussian_curve(epsilon, less) for epsilon in EPSILONS)


def find_crossing(holds: Callable[[int], bool], most: int) -> int:
    """The least number up to ``most`` for which something holds that holds for every greater one."""
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def test_the_least_gaussian_that_covers_a_pure_loss_is_one() -> None:
    """Its total variation by 40 digits; what is issued is within 1e-11 of it."""
    pure = m.Pure(Fraction(1, 3), ZERO_OUT)
    least = find_crossing(lambda square: bool(exact_square_covers(pure, ZERO_OUT, square)), 64 * NAT)
    assert pure_curve(1 / 3)(0.0) <= gaussian_curve(0.0, least) + 1e-16
    assert pure_curve(1 / 3)(0.0) > gaussian_curve(0.0, least * 999_999 // 1_000_000)
    rule = rule_of("gaussian")
    (own,) = rule.segments(pure, ZERO_OUT)
    square, _ = own.price
    assert square is not None
    assert least <= square <= least + least // 10**11 + 1
    assert not rule.covers((Segment(1, (least - 1, 0)),), pure, ZERO_OUT)


@pytest.mark.parametrize("delta", [Fraction(1, 1000), Fraction(1, 10**9)])
def test_the_greatest_gaussian_that_is_accepted_keeps_the_budget(delta: Fraction) -> None:
    """By 40 digits; one unit more is refused, and what is issued is at most 1e-14 of δ away."""
    most = find_crossing(lambda square: not gaussian_keeps(EPSILON, delta, square), 64 * NAT) - 1
    exact = Fraction(str(gaussian_curve(3.0, most)))
    assert delta - 2 * Fraction(1, 10**14) <= exact <= delta
    own = gaussian_capacity(EPSILON, delta)
    assert own < most
    assert Fraction(str(gaussian_curve(3.0, own))) >= delta - 3 * Fraction(1, 10**14)


def test_the_greatest_count_that_is_accepted_keeps_the_budget() -> None:
    """By the library's own δ at it; and a little more is refused, by it and here."""
    step = m.PoissonGaussian(Fraction(1, 16), Fraction(4), 1)
    own = count_capacity(step, EPSILON, DELTA)
    most = own + find_crossing(lambda more: not count_keeps(step, EPSILON, DELTA, own + more), own // 100) - 1
    one = library.from_gaussian_mechanism(4.0, sampling_prob=1 / 16, value_discretization_interval=1e-4)
    assert one.self_compose(most).get_delta_for_epsilon(3.0) <= float(DELTA)
    assert one.self_compose(most + most // 1_000 + 1).get_delta_for_epsilon(3.0) > float(DELTA)
    rule = rule_of("reference")
    assert [rule.keeps(Cap(EPSILON, (count,))) for count in (1, own, most, most + 1, 10**9 + 1)] == [
        True,
        True,
        True,
        False,
        False,
    ]


def test_the_least_sampled_price_that_is_accepted_is_above_the_loss() -> None:
    """By 60 digits and a quarter of the margin; one unit less is refused, at each order alone."""
    rule = rule_of("renyi")
    (own,) = rule.segments(STEPS, ZERO_OUT)
    orders: Any = rule.to_json()["orders"]
    least = price(m.PoissonGaussian(STEPS.probability, STEPS.noise_multiplier, 1), ZERO_OUT, tuple(orders), ACCEPTED)
    for place, (order, floor, issue) in enumerate(zip(orders, least, own.price, strict=False)):
        assert floor is not None
        assert issue is not None
        exact = sampled_gaussian(STEPS.probability, STEPS.noise_multiplier, order) * NAT
        assert exact * (1 + Fraction(1, 4 * 10**9)) + Fraction(NAT, 4 * 10**12) <= floor <= issue
        for unit, enough in ((floor, True), (floor - 1, False)):
            changed = (*own.price[:place], unit, *own.price[place + 1 :])
            assert rule.covers((Segment(STEPS.steps, changed),), STEPS, ZERO_OUT) is enough


@pytest.mark.parametrize("kind", TAKEN)
def test_a_capacity_beyond_the_margin_or_at_other_coordinates_is_refused(kind: str) -> None:
    """By one part in a hundred, at each coordinate alone; less, or none at all, is accepted."""
    rule = rule_of(kind)
    capacity = rule.cap(EPSILON).capacity
    for place, bound in enumerate(capacity):
        if bound is not None:
            more, less = (
                Cap(EPSILON, (*capacity[:place], one, *capacity[place + 1 :])) for one in (bound * 101 // 100 + 1, None)
            )
            assert not rule.keeps(more)
            assert rule.keeps(less)


def test_what_is_between_issuing_and_accepting_is_needed_and_enough() -> None:
    """What a δ is issued by here is at least what it is checked by there; the same on both sides it would not be."""
    points = np.linspace(0.1, 6.0, 60)
    once = []
    here = {count: repeated(STEP, ZERO_OUT, count, 1e-4) for count in (40, 4_000)}
    for seed in (1, 2):
        with other_machine(seed):
            there = {count: repeated(STEP, ZERO_OUT, count, 1e-4).curve(points) for count in here}
        for count, own in here.items():
            assert np.all(own.issued(points) >= there[count])
            once.append(bool(np.all(own.curve(points) >= there[count])))
    assert not all(once)
