"""A share of a cap admits exactly what uses at most that share of the cap, under every rule."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.filters import Cap, Opening, choose_rule
from ledger.mechanisms.loss import Loss
from ledger.mechanisms.mechanism import PoissonGaussian

STEP = PoissonGaussian(Fraction(1, 16), Fraction(2), 1)
DELTA, EPSILON = Fraction(1, 100_000), Fraction(4)
OPENINGS: dict[str, tuple[str, Opening]] = {
    "renyi": ("renyi", Opening(DELTA, (EPSILON,), None)),
    "reference": ("reference", Opening(DELTA, (EPSILON,), STEP)),
    "gaussian": ("gaussian", Opening(DELTA, (EPSILON,), None)),
    "pure": ("renyi", Opening(Fraction(0), (EPSILON,), None)),
}


@pytest.mark.parametrize("name", OPENINGS)
def test_a_part_admits_what_uses_at_most_its_share(name: str) -> None:
    """Down to the last unit, and with infinite charges."""
    rule = choose_rule(*OPENINGS[name])
    cap = rule.cap(EPSILON)

    @settings(max_examples=200, deadline=None)
    @given(st.fractions(Fraction(1, 50), 1, max_denominator=60), st.data())
    def hold(share: Fraction, data: st.DataObject) -> None:
        part = cap.part(share)
        finite = []
        for bound in cap.capacity:
            edge = 0 if bound is None else bound * share.numerator // share.denominator
            near = st.sampled_from([max(edge - 1, 0), edge, edge + 1])
            finite.append(data.draw(near | st.integers(0, 2 * (bound or 1))))
        infinite = tuple(data.draw(st.sampled_from([0, 0, 0, 1])) for _ in cap.capacity)
        loss = Loss(tuple(finite), infinite)
        assert rule.admits(loss, part) is (rule.admits(loss, cap) and rule.share(loss, cap) <= share)
        assert part.epsilon == cap.epsilon

    hold()


@settings(max_examples=200, deadline=None)
@given(st.fractions(Fraction(1, 50), 1, max_denominator=60), st.integers(0, 1 << 52))
def test_the_cap_behind_a_part_is_the_least_that_has_it(share: Fraction, bound: int) -> None:
    """Its part is at least the bound, that of one unit less is not; what is closed stays closed."""
    whole, closed = Cap(EPSILON, (bound, None)).behind(share).capacity
    assert whole is not None
    assert closed is None
    most, _ = Cap(EPSILON, (whole, None)).part(share).capacity
    assert most is not None
    assert most >= bound
    if whole:
        less, _ = Cap(EPSILON, (whole - 1, None)).part(share).capacity
        assert less is not None
        assert less < bound
