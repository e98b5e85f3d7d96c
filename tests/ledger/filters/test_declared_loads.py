"""What a declared load may cost other work: ``renyi`` never admits much less than it would without a declaration."""

from collections.abc import Callable
from fractions import Fraction

from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from ledger.filters import NoRoom, Opening
from ledger.filters.renyi import Renyi
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import Gaussian, Laplace, Mechanism, PoissonGaussian

RELATION = "REPLACE_SPECIAL"
DELTAS = st.sampled_from([Fraction(1, 1483), Fraction(1, 1000), Fraction(1, 10**5), Fraction(1, 10**7)])
EPSILONS = st.builds(Fraction, st.integers(5, 80), st.just(10))
NOISES = st.sampled_from([Fraction(1, 2), Fraction(6531, 10_000), Fraction(11, 10), Fraction(4)])
RATES = st.sampled_from([Fraction(1, 1000), Fraction(1, 186), Fraction(1, 20), Fraction(1, 4)])
GAUSSIAN: st.SearchStrategy[Mechanism] = st.one_of(
    st.builds(PoissonGaussian, RATES, NOISES, st.sampled_from([1, 20, 200, 1_000])), st.builds(Gaussian, NOISES)
)
ANY: st.SearchStrategy[Mechanism] = GAUSSIAN | st.builds(Laplace, st.sampled_from([Fraction(1), Fraction(8)]))
HEAVY = PoissonGaussian(Fraction(1, 1000), Fraction(1, 2), 200)
"""Little noise, so that its best order is far below that of other work."""
LIGHT = PoissonGaussian(Fraction(256, 60_000), Fraction(11, 10), 1_170)
Curve = Callable[[int], int | None]
"""The loss at an order; None where it is infinite."""
MANY = settings(deadline=None, max_examples=30)


def opened(delta: Fraction, caps: tuple[Fraction, ...], load: Mechanism | None) -> Renyi:
    """The rule, or no example if a cap has no room."""
    try:
        return Renyi.choose(Opening(delta, caps, load, RELATION))
    except NoRoom:
        reject()


def runs(rule: Renyi, epsilon: Fraction, work: Mechanism) -> int:
    """How many of them fit."""
    segments = rule.segments(work, RELATION)
    run = loss_of(segments, sum(one.steps for one in segments))
    return rule.runs(Loss.zero(len(rule.coordinates)), rule.cap(epsilon), run)


def admitted(rule: Renyi, epsilon: Fraction, curve: Curve) -> bool:
    """Whether a loss is admitted, given by its curve."""
    at = [curve(order) for order in rule.orders]
    loss = Loss((*(one or 0 for one in at), 0), (*(int(one is None) for one in at), 0))
    return rule.admits(loss, rule.cap(epsilon))


@MANY
@given(DELTAS, EPSILONS, EPSILONS, ANY, GAUSSIAN)
@example(Fraction(1, 1000), Fraction(4), Fraction(4), HEAVY, LIGHT)
def test_gaussian_work_keeps_nine_tenths_of_its_runs(
    delta: Fraction, budget: Fraction, lineage: Fraction, load: Mechanism, work: Mechanism
) -> None:
    """Whatever was declared, under the budget and under a lineage's cap."""
    none, declared = (opened(delta, (budget, lineage), one) for one in (None, load))
    for epsilon in (budget, lineage):
        assert runs(declared, epsilon, work) >= runs(none, epsilon, work) * 9 // 10


@MANY
@given(DELTAS, EPSILONS, EPSILONS, ANY)
@example(Fraction(1, 1000), Fraction(22, 5), Fraction(22, 5), HEAVY)
@example(Fraction(1, 1000), Fraction(4), Fraction(4), HEAVY)
def test_no_work_at_all_loses_more_than_the_docstring_says(
    delta: Fraction, budget: Fraction, lineage: Fraction, load: Mechanism
) -> None:
    """The worst curves: at an order exactly what fits, infinite above it; below in proportion, or as much."""
    none, declared = (opened(delta, (budget, lineage), one) for one in (None, load))
    for epsilon in (budget, lineage):
        for order, most in zip(none.orders, none.cap(epsilon).capacity, strict=False):
            if most is not None:
                assert admitted(declared, epsilon, proportional(order, most * 9 // 10))
                assert admitted(declared, epsilon, flat(order, most * 3 // 4))


def proportional(order: int, most: int) -> Curve:
    """A loss that grows in proportion to the order, up to this one."""
    return lambda at: None if at > order else most * at // order


def flat(order: int, most: int) -> Curve:
    """A loss that is the same at every order, up to this one."""
    return lambda at: None if at > order else most


@MANY
@given(DELTAS, EPSILONS, ANY)
def test_a_declaration_gains_runs_or_moves_nothing(delta: Fraction, epsilon: Fraction, load: Mechanism) -> None:
    """Of what is declared never fewer fit; and where no more do, the partition is one without a declaration."""
    none, declared = (opened(delta, (epsilon,), one) for one in (None, load))
    gained = runs(declared, epsilon, load) - runs(none, epsilon, load)
    assert gained >= 0
    assert declared == none or gained


COVID = PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186)


@MANY
@given(DELTAS, EPSILONS, ANY)
@example(Fraction(1, 1483), Fraction(3), COVID)
def test_what_a_declaration_moves_some_work_loses(delta: Fraction, epsilon: Fraction, load: Mechanism) -> None:
    """Never worse than none is to move nothing: else a loss is refused that would be admitted without a declaration."""
    none, declared = (opened(delta, (epsilon,), one) for one in (None, load))
    capacities = zip(none.orders, none.cap(epsilon).capacity, strict=False)
    filling = [flat(order, most) for order, most in capacities if most is not None]
    assert all(admitted(none, epsilon, one) for one in filling)
    assert (declared == none) is all(admitted(declared, epsilon, one) for one in filling)
