"""What a declared load may cost other work in ``renyi``: nothing, unless the first run gains by the declaration."""

from collections.abc import Callable, Sequence
from fractions import Fraction

import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from ledger.filters import NoRoom, Opening, Rule
from ledger.filters.gaussian import GaussianRule
from ledger.filters.reference_step_count import Reference
from ledger.filters.renyi import DeclaredDivision, Renyi
from ledger.filters.renyi_orders import declared_shares
from ledger.mechanisms.loss import Loss, loss_of
from ledger.mechanisms.mechanism import Gaussian, Laplace, Mechanism, PoissonGaussian
from ledger.wire.exact_numbers import NAT

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
COVID = PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 186)
LONG = PoissonGaussian(Fraction(1, 186), Fraction(6531, 10_000), 4 * 186)
"""Four of those in one: by a declaration of them it is cheaper, and yet one fits either way."""
Curve = Callable[[int], int | None]
"""The loss at an order; None where it is infinite."""
MANY = settings(deadline=None, max_examples=30)


def opened(delta: Fraction, caps: tuple[Fraction, ...], load: Mechanism | None) -> Renyi:
    """The rule, or no example if a cap has no room."""
    try:
        return Renyi.choose(Opening(delta, caps, load, RELATION))
    except NoRoom:
        reject()


def loss(rule: Rule, work: Mechanism) -> Loss:
    """Of one run."""
    segments = rule.segments(work, RELATION)
    return loss_of(segments, sum(one.steps for one in segments))


def admitted_in_order(rule: Rule, epsilon: Fraction, works: Sequence[Mechanism]) -> list[bool]:
    """Which of these runs a partition admits, as its book does: the first one that it admits chooses the division."""
    total, found = Loss.zero(len(rule.coordinates)), list[bool]()
    for work in works:
        cost = loss(rule, work)
        after = rule.for_first_run(cost)
        found.append(after.admits(total + cost, after.cap(epsilon)))
        if found[-1]:
            rule, total = after, total + cost
    return found


def repeated(rule: Rule, epsilon: Fraction, work: Mechanism, most: int = 60) -> int:
    """How many of them a division admits one after the other, up to ``most``."""
    cost, cap, total = loss(rule, work), rule.cap(epsilon), Loss.zero(len(rule.coordinates))
    for count in range(most):
        total += cost
        if not rule.admits(total, cap):
            return count
    return most


def fits(rule: Renyi, epsilon: Fraction, curve: Curve) -> bool:
    """Whether a loss is admitted, given by its curve."""
    at = [curve(order) for order in rule.orders]
    whole = Loss((*(one or 0 for one in at), 0), (*(int(one is None) for one in at), 0))
    return rule.admits(whole, rule.cap(epsilon))


@MANY
@given(DELTAS, EPSILONS, EPSILONS, ANY, ANY, st.lists(ANY, max_size=12))
@example(Fraction(1, 100_000), Fraction(6), Fraction(6), HEAVY, LIGHT, [HEAVY, LIGHT] * 6)
@example(Fraction(1, 1000), Fraction(4), Fraction(4), HEAVY, LIGHT, [LIGHT] * 12)
@example(Fraction(1, 1483), Fraction(3), Fraction(3), COVID, LONG, [LIGHT, LONG])
def test_a_declaration_costs_nothing_unless_the_first_run_gains(  # noqa: PLR0913, PLR0917 - one example
    delta: Fraction, budget: Fraction, lineage: Fraction, load: Mechanism, first: Mechanism, works: list[Mechanism]
) -> None:
    """Of whole sequences the same runs are admitted; where the first admitted one gains, more runs like it are."""
    none, declared = (opened(delta, (budget, lineage), one) for one in (None, load))
    works = [first, *works]
    begun = admitted_in_order(declared, budget, works)
    chosen = declared.for_first_run(loss(declared, works[begun.index(True)])) if True in begun else None
    if chosen in {None, declared.divisions[0]}:
        assert begun == admitted_in_order(none, budget, works)
    else:
        work = works[begun.index(True)]
        gains = [repeated(chosen, cap, work) - repeated(none, cap, work) for cap in (budget, lineage)]
        assert min(gains) >= 0
        assert max(gains) > 0 or repeated(none, max(budget, lineage), work) == 60


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
                assert fits(declared.divisions[-1], epsilon, proportional(order, most * 3 // 4))
                assert fits(declared.divisions[-1], epsilon, flat(order, most // 2))


def proportional(order: int, most: int) -> Curve:
    """A loss that grows in proportion to the order, up to this one."""
    return lambda at: None if at > order else most * at // order


def flat(order: int, most: int) -> Curve:
    """A loss that is the same at every order, up to this one."""
    return lambda at: None if at > order else most


@MANY
@given(DELTAS, EPSILONS, EPSILONS, ANY)
@example(Fraction(1, 100_000), Fraction(6), Fraction(2), HEAVY)
def test_a_declaration_gains_runs_or_there_is_one_division(
    delta: Fraction, budget: Fraction, lineage: Fraction, load: Mechanism
) -> None:
    """Of what is declared never fewer fit under any cap; and where no more do, there is nothing to choose."""
    none, declared = (opened(delta, (budget, lineage), one) for one in (None, load))
    chosen = declared.for_first_run(loss(declared, load))
    assert chosen == declared.divisions[-1]
    gained = [repeated(chosen, cap, load, 4_000) - repeated(none, cap, load, 4_000) for cap in (budget, lineage)]
    assert min(gained) >= 0
    assert declared == none or any(gained)


@MANY
@given(DELTAS, EPSILONS, ANY)
@example(Fraction(1, 1483), Fraction(3), COVID)
def test_no_fixed_division_is_never_worse_than_none(delta: Fraction, epsilon: Fraction, load: Mechanism) -> None:
    """Where a declaration moves anything, the declared division refuses a loss that the undeclared one admits."""
    none, declared = (opened(delta, (epsilon,), one) for one in (None, load))
    capacities = zip(none.orders, none.cap(epsilon).capacity, strict=False)
    filling = [flat(order, most) for order, most in capacities if most is not None]
    first, last = declared.divisions[0], declared.divisions[-1]
    assert all(fits(one, epsilon, curve) for one in (none, first) for curve in filling)
    assert (declared == none) is all(fits(last, epsilon, one) for one in filling)


def test_a_right_declaration_gets_nine_tenths_of_what_it_could() -> None:
    """At (6, 1e-5) a plan of little noise fits 34 times, 37 times if it had all of δ, and 12 times undeclared."""
    rule = Renyi.choose(Opening(Fraction(1, 100_000), (Fraction(6),), HEAVY, RELATION))
    assert [repeated(one, Fraction(6), HEAVY) for one in rule.divisions] == [12, 34]
    wrong = [LIGHT, *[HEAVY] * 40]
    assert sum(admitted_in_order(rule, Fraction(6), wrong)) == sum(
        admitted_in_order(rule.divisions[0], Fraction(6), wrong)
    )


def test_the_first_run_chooses_where_a_declaration_gains_and_nowhere_else() -> None:
    """Neither without one, nor once it has chosen, nor under a rule that has no division of δ."""
    one = Opening(Fraction(1, 100_000), (Fraction(6),), HEAVY, RELATION)
    declared = Renyi.choose(one)
    assert declared.first_run_chooses
    assert not declared.for_first_run(loss(declared, HEAVY)).first_run_chooses
    for rule in (Renyi, Reference, GaussianRule):
        assert not rule.choose(one._replace(load=None if rule is Renyi else LIGHT)).first_run_chooses


def test_a_run_that_takes_as_much_under_one_cap_and_gains_under_another_chooses_the_declaration() -> None:
    """As dear at the order that the great cap opens; the small one opens the other alone, and two fit there."""
    caps = Fraction(6), Fraction(2)
    rule = Renyi(Fraction(1, 100_000), (3, 12), (500, 200), 0, 2, DeclaredDivision(caps, (500, 500)))
    run = Loss((NAT * 9 // 100, NAT * 6 // 10, 0), (0, 0, 0))
    without, declared = rule.divisions
    assert without.share(run, without.cap(caps[0])) == declared.share(run, declared.cap(caps[0]))
    assert [one.runs(Loss.zero(3), one.cap(caps[1]), run) for one in rule.divisions] == [1, 2]
    assert rule.for_first_run(run) == declared


CLOSED: tuple[Fraction, tuple[Fraction, ...]] = Fraction(1, 20), (Fraction(323, 50), Fraction(68, 25), Fraction(6, 25))
"""δ and caps of which the least stays closed without a declaration."""


def test_a_cap_that_is_closed_without_a_declaration_is_opened_by_one_of_which_no_run_fits() -> None:
    """There is nothing to be worse than; without one the cap is refused."""
    delta, caps = CLOSED
    with pytest.raises(NoRoom):
        Renyi.choose(Opening(delta, caps, None, RELATION))
    assert declared_shares(caps, delta, dict.fromkeys(range(2, 65), 1_000 * NAT)) is not None
