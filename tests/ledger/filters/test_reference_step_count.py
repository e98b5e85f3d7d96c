"""The rule ``reference``: as many runs as PLD allows its own plan, and nothing it does not dominate."""

from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as library
from scipy.stats import norm

from ledger.accounting.pld_counting import count_capacity, count_epsilon
from ledger.filters import NoRoom, Opening, choose_rule
from ledger.filters.reference_step_count import Reference
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import Composed, Gaussian, Group, Mechanism, PoissonGaussian, SelfComposed
from ledger.mechanisms.price_proofs import NotPriced

COVID = PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186)
MNIST = PoissonGaussian(Fraction(256, 60_000), Fraction(11, 10), 1170)


@pytest.mark.parametrize(
    ("plan", "delta", "runs"), [(COVID, Fraction(1, 1483), 13), (MNIST, Fraction(1, 100_000), 18)], ids=repr
)
def test_as_many_runs_fit_as_a_fixed_list_would(plan: PoissonGaussian, delta: Fraction, runs: int) -> None:
    """DEPA COVID's plan at ε 3: thirteen; an MNIST-like one: eighteen. One more would pass δ, by the library itself."""
    rule = choose_rule("reference", Opening(delta, (Fraction(3),), plan))
    cap = rule.cap(Fraction(3))
    cost = loss_of(rule.segments(plan, "REPLACE_SPECIAL"), plan.steps)
    assert cost == Loss((plan.steps,), (0,))
    assert rule.runs(Loss.zero(1), cap, cost) == runs
    (count,) = cap.capacity
    assert count is not None
    one = library.from_gaussian_mechanism(
        float(plan.noise_multiplier), sampling_prob=float(plan.probability), value_discretization_interval=1e-4
    )
    at = [one.self_compose(steps).get_delta_for_epsilon(3) for steps in (count, count + 1 + count // 10_000)]
    assert at[0] <= float(delta) < at[1] * 1.001


def by_grid(count: int, noise: float, probability: float, epsilon: float) -> float:
    """A lower bound on δ by brute force: a few steps' outputs on a grid, cells merged by rounding losses down."""
    width = 1e-3
    cuts = np.arange(-12 * noise, 1 + 12 * noise, noise / 400)
    q = np.diff(norm.cdf(cuts, scale=noise))
    p = probability * np.diff(norm.cdf(cuts, loc=1, scale=noise)) + (1 - probability) * q
    keep = (p > 1e-14) & (q > 1e-14)
    worst = 0.0
    for first, second in ((p[keep], q[keep]), (q[keep], p[keep])):
        losses = np.floor(np.log(first / second) / width).astype(int)
        law = np.bincount(losses - losses.min(), weights=first)
        low, total, start = losses.min(), law, losses.min()
        for _ in range(count - 1):
            total = np.convolve(total, law)
            start += low
        values = (start + np.arange(len(total))) * width
        worst = max(worst, float(np.sum(total * np.maximum(0, -np.expm1(epsilon - values)))))
    return worst


@pytest.mark.parametrize(
    ("noise", "probability", "epsilon"),
    [
        (2.0, 0.5, 1.0),
        pytest.param(1.0, 0.3, 2.0, marks=pytest.mark.soak),
        pytest.param(0.8, 0.1, 2.5, marks=pytest.mark.soak),
    ],
)
def test_the_capacity_is_the_greatest_count_by_brute_force(noise: float, probability: float, epsilon: float) -> None:
    """An independent composition of output laws agrees: the count keeps δ, and a little less δ would not."""
    step = PoissonGaussian(Fraction(str(probability)), Fraction(str(noise)), 1)
    for count in (2, 5, 9):
        delta = Fraction(by_grid(count, noise, probability, epsilon)).limit_denominator(10**12)
        assert count_capacity(step, Fraction(str(epsilon)), delta * Fraction(98, 100)) < count
        assert count_capacity(step, Fraction(str(epsilon)), delta * Fraction(103, 100)) >= count
        reported = count_epsilon(step, count, delta)
        assert reported is not None
        assert epsilon - 0.001 <= float(reported) <= epsilon + 0.05


Q, S = COVID.probability, COVID.noise_multiplier
HAIR = Fraction(1, 10**12)
DOMINATED: list[Mechanism] = [
    COVID,
    PoissonGaussian(Q, S, 1),
    PoissonGaussian(Q / 2, S, 9),
    PoissonGaussian(Q - HAIR, S + HAIR, 9),
    SelfComposed(3, PoissonGaussian(Q, S * 2, 5)),
    Composed((COVID, PoissonGaussian(Q / 3, S * 3, 14))),
]
NOT_DOMINATED: list[Mechanism] = [
    PoissonGaussian(Q + HAIR, S, 1),
    PoissonGaussian(Q, S - HAIR, 1),
    PoissonGaussian(Q + HAIR, S * 100, 1),
    PoissonGaussian(Q / 100, S - HAIR, 1),
    Gaussian(Fraction(1000)),
    Composed((COVID, PoissonGaussian(Q, S - HAIR, 1))),
    Group(2, PoissonGaussian(Q / 100, S * 100, 1)),
]


@pytest.fixture(scope="module")
def rule() -> Reference:
    """Of DEPA COVID's plan."""
    return Reference.choose(Opening(Fraction(1, 1483), (Fraction(3),), COVID))


@pytest.mark.parametrize("mechanism", DOMINATED, ids=repr)
def test_each_dominated_step_counts_as_one(rule: Reference, mechanism: Mechanism) -> None:
    """However much lighter it is; by exact rationals."""
    segments = rule.segments(mechanism, "ADD_OR_REMOVE_ONE")
    steps = sum(one.steps for one in segments)
    assert loss_of(segments, steps) == Loss((steps,), (0,))


@pytest.mark.parametrize("mechanism", NOT_DOMINATED, ids=repr)
def test_what_is_not_dominated_is_refused_by_name(rule: Reference, mechanism: Mechanism) -> None:
    """By a trillionth of its noise or probability, by its kind, or by one part of it."""
    with pytest.raises(NotPriced, match=r"dominated|no proven price"):
        rule.segments(mechanism, "REPLACE_SPECIAL")


def test_replaced_records_have_no_dominating_pair(rule: Reference) -> None:
    """The library's pair for it is not proven to dominate."""
    with pytest.raises(NotPriced, match="REPLACE_ONE"):
        rule.segments(COVID, "REPLACE_ONE")


def test_a_cap_without_room_for_one_step_names_the_least_that_has() -> None:
    """And that one opens."""
    step = PoissonGaussian(Fraction(1), Fraction(1), 1)
    with pytest.raises(NoRoom) as closed:
        choose_rule("reference", Opening(Fraction(1, 10_000), (Fraction(1),), step)).cap(Fraction(1))
    least = closed.value.least + Fraction(1, 100)
    assert choose_rule("reference", Opening(Fraction(1, 10_000), (least,), step)).cap(least).capacity == (1,)
