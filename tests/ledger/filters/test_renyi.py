"""The rule ``renyi``: capacities against 60-digit arithmetic, monotone tests, refunds, and terms that read back."""

from fractions import Fraction
from itertools import product
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from msgspec import structs

from ledger.filters import Cap, NoRoom, Opening, choose_rule, read_rule
from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.mechanisms.mechanism import Composed, Mechanism, PoissonGaussian
from ledger.wire.canonical_json import dump
from ledger.wire.exact_numbers import DELTA_ONE, NAT
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert
from tests.ledger.accounting.exact import capacity

EPSILONS = st.builds(Fraction, st.integers(1, 1280), st.integers(10, 30))
DELTAS = st.one_of(
    st.integers(1, 11).map(lambda places: Fraction(1, 10**places)),
    st.builds(Fraction, st.integers(1, 9), st.integers(10, 10**6)),
)
LOADS = st.one_of(
    st.none(),
    st.sampled_from(
        [
            PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186),
            PoissonGaussian(Fraction(256, 60_000), Fraction(11, 10), 1170),
            PoissonGaussian(Fraction(1), Fraction(1, 5), 1),
            PoissonGaussian(Fraction(1), Fraction(1, 100), 1),
        ]
    ),
)
MANY = settings(deadline=None, max_examples=50)
RULE = Renyi.choose(Opening(Fraction(1, 10**5), (Fraction(3), Fraction(1)), None))
ALONE = structs.replace(RULE, odometers=None)
"""The terms of a partition that was opened when the rule's own odometer had all of δ."""
CAP = RULE.cap(Fraction(3))
WIDTH = len(RULE.orders) + 1
CEILING = max(bound for bound in CAP.capacity if bound is not None)
PART = st.one_of(st.integers(0, CEILING // 3), st.integers(0, CEILING + 10))
LOSSES = st.builds(
    lambda finite, infinite: Loss((*finite, 0), (*infinite, 0)),
    st.lists(PART, min_size=WIDTH - 1, max_size=WIDTH - 1),
    st.lists(st.sampled_from([0, 0, 0, 1, 2]), min_size=WIDTH - 1, max_size=WIDTH - 1),
)


def fit(load: Mechanism | None, *runs: Mechanism) -> list[int]:
    """How many of each run fit alone in a partition at (3, 1/1483) with this declared load."""
    rule = Renyi.choose(Opening(Fraction(1, 1483), (Fraction(3),), load))
    empty, found = Loss.zero(len(rule.orders) + 1), []
    for segments in (rule.segments(run, "REPLACE_SPECIAL") for run in runs):
        cost = loss_of(segments, sum(part.steps for part in segments))
        chosen = rule.for_first_run(cost)
        found.append(chosen.runs(empty, chosen.cap(Fraction(3)), cost))
    return found


COVID = PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186)
MNIST = PoissonGaussian(Fraction(256, 60_000), Fraction(11, 10), 1_170)
BUNDLE = Composed((COVID, MNIST, MNIST))


def test_a_declaration_helps_what_was_declared_and_costs_other_work_little() -> None:
    """Of each alone as many as without a declaration, or more; 23 MNIST runs, not 24, once a COVID run is the first."""
    assert fit(None, COVID, MNIST, BUNDLE) == [4, 24, 2]
    assert fit(COVID, COVID, MNIST, BUNDLE) == [6, 24, 4]
    assert fit(MNIST, COVID, MNIST, BUNDLE) == [4, 24, 2]
    chosen = Renyi.choose(Opening(Fraction(1, 1483), (Fraction(3),), COVID)).divisions[1]
    segments = chosen.segments(MNIST, "REPLACE_SPECIAL")
    assert chosen.runs(Loss.zero(3), chosen.cap(Fraction(3)), loss_of(segments, MNIST.steps)) == 23


def test_a_load_that_never_fits_moves_nothing() -> None:
    """At (3, 1e-5) no COVID run fits, so the orders are those of a partition without a load."""
    opening = Opening(Fraction(1, 10**5), (Fraction(3),), COVID)
    assert Renyi.choose(opening) == Renyi.choose(opening._replace(load=None))


@MANY
@given(DELTAS, EPSILONS, EPSILONS, LOADS)
def test_no_share_is_kept_for_an_order_that_no_cap_opens(
    delta: Fraction, budget: Fraction, lineage: Fraction, load: PoissonGaussian | None
) -> None:
    """At the greatest cap every order that a division gives a share is open."""
    for rule in opened(delta, (budget, lineage), load).divisions:
        capacities = rule.cap(max(budget, lineage)).capacity[:-1]
        assert [one is not None for one in capacities] == [weight > 0 for weight in rule.weights]


def opened(delta: Fraction, caps: tuple[Fraction, ...], load: PoissonGaussian | None) -> Renyi:
    """The rule, or no example if a cap has no room."""
    try:
        rule = choose_rule("renyi", Opening(delta, caps, load))
    except NoRoom:
        reject()
    assert isinstance(rule, Renyi)
    return rule


@MANY
@given(DELTAS, EPSILONS, EPSILONS, LOADS)
def test_capacities_are_rounded_down_and_the_weights_share_delta(
    delta: Fraction, budget: Fraction, lineage: Fraction, load: PoissonGaussian | None
) -> None:
    """Each open order's capacity is at most B(α; ε, w·δ), by less than three units; the weights sum to at most 1."""
    divisions = opened(delta, (budget, lineage), load).divisions
    for rule, epsilon in product(divisions, (budget, lineage)):
        cap = rule.cap(epsilon)
        assert sum(rule.weights) == 1000
        assert any(bound is not None for bound in cap.capacity[:-1])
        assert cap.capacity[-1] == rule.slack == 0
        for order, weight, bound in zip(rule.orders, rule.weights, cap.capacity, strict=False):
            exact = capacity(order, epsilon, delta * Fraction(weight, 1000)) * NAT if weight else 0
            if bound is None:
                assert exact < 3
            else:
                assert 0 <= bound <= exact < bound + 3


@MANY
@given(DELTAS, EPSILONS, EPSILONS, EPSILONS, LOADS)
def test_a_larger_cap_allows_at_every_order_what_a_smaller_one_does(
    delta: Fraction, budget: Fraction, one: Fraction, other: Fraction, load: PoissonGaussian | None
) -> None:
    """So runs admitted under several caps, in any order, were all admitted under the largest."""
    rule = opened(delta, (budget, min(one, other)), load)
    small, large = rule.cap(min(one, other)).capacity, rule.cap(max(one, other)).capacity
    assert all(low is None or (high is not None and low <= high) for low, high in zip(small, large, strict=True))


@MANY
@given(DELTAS, EPSILONS, EPSILONS, LOADS)
def test_terms_read_back(delta: Fraction, budget: Fraction, lineage: Fraction, load: PoissonGaussian | None) -> None:
    """The rule of an open partition is the one that was opened, and so is every cap of it."""
    rule = opened(delta, (budget, lineage), load)
    again = read_rule(dump(rule.to_json()).decode())
    assert again == rule
    assert again.cap(lineage) == rule.cap(lineage)


@pytest.mark.parametrize(("delta", "epsilon"), [("1/1483", "1/1000"), ("1/100000", "1/100"), ("1/1000000000", "1/20")])
def test_a_cap_without_room_names_the_least_epsilon_that_opens(delta: str, epsilon: str) -> None:
    """The least opens, also for a partition opened with it; two thousandths less does not."""
    with pytest.raises(NoRoom, match="the least that has some is") as closed:
        Renyi.choose(Opening(Fraction(delta), (Fraction(epsilon),), None))
    assert closed.value.epsilon == Fraction(epsilon) < closed.value.least
    opens = Renyi.choose(Opening(Fraction(delta), (closed.value.least,), None))
    assert any(opens.cap(closed.value.least).capacity)
    with pytest.raises(NoRoom):
        Renyi.choose(Opening(Fraction(delta), (closed.value.least - Fraction(1, 500),), None))


def test_the_least_opens_on_the_partition_as_it_stands() -> None:
    """Orders are fixed for life: a later, tighter cap is told what these very orders can keep."""
    rule = Renyi.choose(Opening(Fraction(1, 1483), (Fraction(3),), None))
    with pytest.raises(NoRoom) as closed:
        rule.cap(Fraction(1, 2))
    assert rule.cap(closed.value.least).capacity


@MANY
@given(EPSILONS, EPSILONS)
def test_a_cap_is_a_function_of_terms_and_epsilon_alone(one: Fraction, other: Fraction) -> None:
    """Asked twice, in either order, it is the same: weights never follow what was spent."""
    rule = opened(Fraction(1, 10**5), (max(one, other), min(one, other)), None)
    first = rule.cap(one)
    rule.cap(other)
    assert convert(Renyi, rule.to_json(), "terms").cap(one) == first


@MANY
@given(LOSSES, LOSSES)
def test_every_test_is_monotone(loss: Loss, more: Loss) -> None:
    """More loss: never admitted where less was not, never a smaller share, never more runs, never a smaller ε."""
    after = loss + more
    assert RULE.admits(loss, CAP) or not RULE.admits(after, CAP)
    assert RULE.runs(after, CAP, more) <= RULE.runs(loss, CAP, more)
    if RULE.share(loss, CAP) < 1:
        assert RULE.share(after, CAP) >= RULE.share(loss, CAP)
    assert RULE.admits(loss, CAP) == (RULE.share(loss, CAP) <= 1 and not all_closed(loss))


def all_closed(loss: Loss) -> bool:
    """Whether each open order holds an infinite charge."""
    return all(loss.infinite[place] for place, bound in enumerate(CAP.capacity[:-1]) if bound is not None)


@MANY
@given(LOSSES, st.lists(st.integers(CEILING // 60, CEILING), min_size=WIDTH - 1, max_size=WIDTH - 1))
def test_the_runs_that_fit_are_those_that_are_admitted(loss: Loss, costs: list[int]) -> None:
    """Adding that many is admitted, one more is not."""
    if not RULE.admits(loss, CAP):
        return
    run = Loss((*costs, 0), (0,) * WIDTH)
    total = loss
    for _ in range(RULE.runs(loss, CAP, run)):
        total = total + run
    assert RULE.admits(total, CAP)
    assert not RULE.admits(total + run, CAP)


@MANY
@given(LOSSES)
def test_the_odometer_is_never_below_its_formula(loss: Loss) -> None:
    """The least over orders of r + log(1 - 1/α) - log(w·δ·α)/(α - 1), rounded up by under four units."""
    if not any(loss.finite) and not any(loss.infinite):
        assert RULE.odometer(loss) == 0
        return
    if all_closed(loss):
        with pytest.raises(ArithmeticError):
            RULE.odometer(loss)
        return
    for rule in (RULE, ALONE):
        exact = min(
            Fraction(loss.finite[place], NAT)
            - capacity(order, Fraction(0), rule.odometer_delta * Fraction(weight, 1000))
            for place, (order, weight) in enumerate(zip(rule.orders, rule.weights, strict=True))
            if not loss.infinite[place]
        )
        told = rule.odometer(loss)
        assert max(Fraction(0), exact) <= told < max(Fraction(0), exact) + Fraction(4, NAT)
    if RULE.admits(loss, CAP):
        assert ALONE.odometer(loss) <= CAP.epsilon + Fraction(4, NAT)


def test_the_odometer_reads_the_budget_when_an_order_is_exactly_full() -> None:
    """All but the fullest order closed, and that one at its capacity."""
    for place, bound in enumerate(CAP.capacity[:-1]):
        if bound is not None:
            infinite = tuple(int(other != place) for other in range(WIDTH - 1))
            finite = tuple(bound if other == place else 0 for other in range(WIDTH - 1))
            loss = Loss((*finite, 0), (*infinite, 0))
            assert RULE.admits(loss, CAP)
            assert RULE.share(loss, CAP) == 1
            assert abs(ALONE.odometer(loss) - CAP.epsilon) < Fraction(6, NAT)
            over = Loss((*(at + (other == place) for other, at in enumerate(finite)), 0), loss.infinite)
            assert not RULE.admits(over, CAP)


def test_an_infinite_charge_closes_an_order_until_it_is_taken_away() -> None:
    """Finite sum and infinite count are kept apart, so the order opens again with exactly what the others lost."""
    place = next(at for at, bound in enumerate(CAP.capacity) if bound is not None)
    others = tuple(CEILING + 1 if at != place else 5 for at in range(WIDTH - 1))
    loss = Loss((*others, 0), (0,) * WIDTH)
    spike = Loss((0,) * WIDTH, (*(int(at == place) for at in range(WIDTH - 1)), 0))
    assert RULE.admits(loss, CAP)
    assert not RULE.admits(loss + spike, CAP)
    assert not RULE.admits(loss + spike + spike - spike, CAP)
    assert loss + spike - spike == loss
    assert RULE.admits(loss + spike - spike, CAP)


def test_what_is_refunded_can_be_charged_again() -> None:
    """A run of which half the steps ran gives the other half back, to the unit."""
    price = RULE.segments(PoissonGaussian(Fraction(1, 10), Fraction(2), 1), "REPLACE_SPECIAL")[0].price
    segments = (Segment(100, price),)
    fit = RULE.runs(Loss.zero(WIDTH), CAP, loss_of((Segment(1, price),), 1))
    run = loss_of(segments, 100)
    full = Loss.zero(WIDTH)
    while RULE.admits(full + run, CAP):
        full = full + run
    refunded = full - run + loss_of(segments, 40)
    assert not RULE.admits(full + run, CAP)
    assert RULE.admits(refunded + loss_of(segments, 60), CAP)
    assert refunded + loss_of(segments, 60) == full
    assert RULE.runs(refunded, CAP, loss_of(segments, 1)) == fit - sum(full.finite[:1]) // run.finite[0] * 100 + 60


def test_a_loss_never_goes_below_zero() -> None:
    """Taking away what was never added is a broken invariant, and crashes."""
    with pytest.raises(AssertionError, match="cannot hold"):
        Loss.zero(2) - Loss((1, 0), (0, 0))


def test_slack_binds_and_orders_share_the_rest_of_delta() -> None:
    """A declared slack takes its part of δ from the orders and is a coordinate that must hold by itself."""
    delta = Fraction(1, 1000)
    rule = Renyi(delta, (4, 8, 16), (200, 600, 200), DELTA_ONE // 10_000)
    cap = rule.cap(Fraction(3))
    left = delta - Fraction(DELTA_ONE // 10_000, DELTA_ONE)
    for order, weight, bound in zip(rule.orders, rule.weights, cap.capacity, strict=False):
        assert bound is None or bound <= capacity(order, Fraction(3), left * Fraction(weight, 1000)) * NAT
    over = Loss((0, 0, 0, rule.slack + 1), (0,) * 4)
    assert rule.admits(Loss((0, 0, 0, rule.slack), (0,) * 4), cap)
    assert not rule.admits(over, cap)
    assert not rule.admits(Loss((0,) * 4, (0, 0, 0, 1)), cap)
    assert rule.share(over, cap) > 1
    assert tuple(one.name for one in rule.coordinates) == ("order 4", "order 8", "order 16", "delta slack")


BAD_TERMS: list[tuple[str, Any]] = [
    ("kind", "reference"), ("v", 2), ("v", True), ("delta", "0"), ("delta", "1.0"), ("delta", 1),
    ("orders", []), ("orders", [1, 2]), ("orders", [3, 2]), ("orders", [2, 2]), ("orders", [257]),
    ("orders", list(range(2, 20))), ("orders", "2"), ("orders", [2.0]), ("orders", [True]),
    ("weights", [1000]), ("weights", [-1] * 3), ("weights", [0, 0, 0]), ("weights", [600, 200, 201]),
    ("declared", {}), ("declared.weights", {"epsilons": ["3"], "weights": [1000]}), ("declared", None),
    ("declared.weights", {"epsilons": ["3"], "weights": [0, 0, 0]}),
    ("declared.epsilons", {"epsilons": [], "weights": [1, 1, 1]}),
    ("slack", -1), ("slack", DELTA_ONE + 1), ("slack", "0"), ("extra", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD_TERMS, ids=repr)
def test_hostile_terms_are_refused_by_name(name: str, value: object) -> None:
    """One change to good terms; the fault names the field."""
    with pytest.raises(Malformed, match=rf"^terms.{name}"):
        convert(Renyi, {**RULE.to_json(), name.partition(".")[0]: value}, "terms")


@pytest.mark.parametrize("weights", [[1, 0, 0], [0, 0, 1], [998, 1, 1]])
def test_weights_of_one_thousandth_and_of_a_thousand_are_terms(weights: list[int]) -> None:
    """The least and the greatest sum."""
    assert [*convert(Renyi, {**RULE.to_json(), "weights": weights}, "terms").weights] == weights


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1), Fraction(2)])
def test_a_delta_outside_its_range_is_refused(delta: Fraction) -> None:
    """Between 0 and 1, neither included."""
    with pytest.raises(Malformed, match="delta"):
        Renyi.choose(Opening(delta, (Fraction(3),), None))


def test_only_known_rules_open() -> None:
    """Another name is refused."""
    with pytest.raises(Malformed, match="rule"):
        choose_rule("counting", Opening(Fraction(1, 1000), (Fraction(3),), None))


def test_a_cap_is_recorded_in_full() -> None:
    """Capacity and ε, integers and strings only."""
    cap = Cap(Fraction(5, 2), (7, 9, None, 0))
    assert cap.to_json() == {"capacity": [7, 9, None, 0], "epsilon": "2.5"}
