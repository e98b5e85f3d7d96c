"""Plans of ensembles: exact inverses, refusals by name, prices by mpmath and the library, sensitivities by search."""

from fractions import Fraction
from itertools import product
from typing import Any

import mpmath
import pytest
from dp_accounting import GaussianDpEvent, NeighboringRelation, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant
from hypothesis import given
from hypothesis import strategies as st

from ledger.accounting.epsilon_report import report_epsilon
from ledger.accounting.renyi import divergence
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.ensembles import ClippedMean, EnsemblePlan, Interval, Plurality, chunks_moved, mu_square
from ledger.mechanisms.mechanism import RELATIONS, BoundedRange, Composed, GaussianPrivate, SelfComposed
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.price_proofs import ADD_REMOVE, REPLACE, ZERO_OUT
from ledger.mechanisms.run_plan import group_of
from ledger.mechanisms.statistics import Coordinate
from ledger.wire.canonical_json import dump, parse_canonical
from ledger.wire.malformed import Malformed

DELTA = Fraction(1, 10**5)
VOTES: dict[str, Any] = {"classes": 10, "kind": "plurality", "noise": "40"}
MEAN: dict[str, Any] = {"kind": "mean", "noise": "40", "outputs": [{"lower": "-1", "upper": "1"}]}
MEDIAN: dict[str, Any] = {"epsilon": "0.1", "grid": ["-1", "0", "1/3"], "kind": "median"}
SCREENED: dict[str, Any] = {"answers": 286, "noise": "40", "threshold": "150"}
PLAN: dict[str, Any] = {
    "answer": VOTES,
    "chunks_by": "position",
    "kind": "ensemble",
    "questions": 286,
    "relation": ZERO_OUT,
    "teachers": 250,
    "v": 1,
}
REFUSED: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"teachers": 1}, "teachers", "must lie between 2 and 5000"),
    ({"teachers": 5001}, "teachers", "must lie between 2 and 5000"),
    ({"questions": 0}, "questions", "must lie between 1 and 1000000"),
    ({"answer": {**VOTES, "classes": 1}}, "answer.classes", "must lie between 2"),
    ({"answer": {**VOTES, "noise": "0"}}, "answer.noise", "must"),
    ({"answer": {**VOTES, "kind": "lottery"}}, "answer.kind", "'plurality', 'mean' or 'median'"),
    ({"answer": {**MEAN, "outputs": []}}, "answer.outputs", "1 to 256"),
    ({"answer": {**MEAN, "outputs": [{"lower": "1", "upper": "1"}]}}, "answer.outputs[0].upper", "greater than lower"),
    ({"answer": {**MEDIAN, "grid": ["0"]}}, "answer.grid", "2 to 1024"),
    ({"answer": {**MEDIAN, "grid": ["1", "0"]}}, "answer.grid", "must rise"),
    ({"relation": ADD_REMOVE}, "chunks_by", "would move all that come after it"),
    ({"chunks_by": "size"}, "chunks_by", "must be one of position, content, user"),
    ({"screening": {**SCREENED, "answers": 287}}, "screening.answers", "at most the questions"),
    ({"screening": {**SCREENED, "threshold": "5001"}}, "screening.threshold", "5000"),
    ({"screening": SCREENED, "answer": MEAN}, "screening", "is for votes"),
)


def of(**changes: object) -> EnsemblePlan:
    """The plan, changed."""
    return EnsemblePlan.of(parse_plan({**PLAN, **changes}))


@pytest.mark.parametrize("answer", [VOTES, MEAN, MEDIAN], ids=lambda one: one["kind"])
def test_a_plan_reads_back(answer: dict[str, Any]) -> None:
    """Through its canonical bytes; a question is a step, and other kinds of run do not take it."""
    plan = of(answer=answer)
    assert parse_plan(parse_canonical(dump(plan.to_json()), 10_000)) == plan
    assert plan.to_json() == {**PLAN, "answer": answer}
    assert (plan.steps, plan.mechanism(286)) == (286, plan.whole)
    with pytest.raises(Malformed, match="at least 1"):
        plan.mechanism(0)
    with pytest.raises(Malformed, match="another kind of plan"):
        Plan.of(plan)


@pytest.mark.parametrize(("change", "field", "words"), REFUSED)
def test_what_is_refused(change: dict[str, Any], field: str, words: str) -> None:
    """By the field and the rule."""
    with pytest.raises(Malformed) as refused:
        of(**change)
    assert refused.value.field == field
    assert words in str(refused.value)


def _by_mpmath(square: Fraction) -> float:
    """The ε of one Gaussian of this μ² at δ, from the closed formula of its curve to 30 digits."""
    with mpmath.workdps(30):
        mu, delta = mpmath.sqrt(mpmath.mpf(square.numerator) / square.denominator), mpmath.mpf(10) ** -5

        def left(epsilon: Any) -> Any:  # noqa: ANN401 - a number of mpmath
            at = epsilon / mu
            return mpmath.ncdf(mu / 2 - at) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - at) - delta

        return float(mpmath.findroot(left, (0, 20), solver="bisect", tol=1e-20))


def _by_library(square: Fraction, times: int) -> float:
    """The same of ``times`` Gaussian sums, composed by dp_accounting's own accountant."""
    accountant = PLDAccountant(neighboring_relation=NeighboringRelation.REPLACE_SPECIAL)
    accountant.compose(SelfComposedDpEvent(GaussianDpEvent(1 / float(square) ** 0.5), times))
    return float(accountant.get_epsilon(1e-5))


@pytest.mark.parametrize(
    ("change", "times", "squares", "published"),
    [
        ({}, 286, 2, "2.44"),
        ({"questions": 1000}, 1000, 2, "4.99"),
        ({"screening": SCREENED}, 286, 3, "3.07"),
        ({"relation": REPLACE}, 286, 2, "2.44"),
        ({"relation": ADD_REMOVE, "chunks_by": "user"}, 286, 2, "2.44"),
        ({"relation": REPLACE, "chunks_by": "content"}, 286, 8, "5.4"),
    ],
    ids=["286", "1000", "screened", "replaced-in-place", "users", "replaced-in-another-chunk"],
)
def test_the_reported_epsilon(change: dict[str, Any], times: int, squares: int, published: str) -> None:
    """A vote moves by √2; two of them by 2√2. Rounded up to a hundredth, 3.0625 with screening is 3.07."""
    plan = of(**change)
    reported = report_epsilon(plan.whole, DELTA, plan.relation).epsilon
    truth = _by_mpmath(Fraction(squares * times, 40**2))
    assert truth <= float(reported) <= truth * (1 + 1e-6)
    assert float(reported) == pytest.approx(_by_library(Fraction(squares, 40**2), times), rel=1e-3)
    places = 100 if len(published) == 4 else 10
    assert Fraction(-(-reported * places // 1), places) == Fraction(published)


def test_screening_is_charged_at_both_caps() -> None:
    """First the questions that may all be answered, then those that are screened alone."""
    plan = of(screening={**SCREENED, "answers": 100, "noise": "80"})
    both, alone = Fraction(2, 1600) + Fraction(1, 6400), Fraction(1, 6400)
    assert plan.whole == Composed(
        (SelfComposed(100, GaussianPrivate(both, ZERO_OUT)), SelfComposed(186, GaussianPrivate(alone, ZERO_OUT)))
    )
    # However many questions ran, and whichever of them were answered, their price covers them.
    for asked, answered in ((1, 1), (100, 100), (150, 100), (286, 100)):
        spent = asked * alone + answered * Fraction(2, 1600)
        assert divergence(plan.mechanism(asked), ZERO_OUT, 4) == 4 * spent / 2


@pytest.mark.parametrize("k", [1, 3])
def test_groups_change_as_many_chunks(k: int) -> None:
    """A user whose records are in k chunks moves k votes; one that is in a single chunk moves one."""
    plan = of()
    assert group_of(plan, "user", 3) == 3
    assert group_of(of(chunks_by="user"), "user", 3) == 1
    with pytest.raises(Malformed, match="no price holds where"):
        group_of(of(chunks_by="user"), "record", 1)
    seen = report_epsilon(group_privacy(k, plan.whole), DELTA, ZERO_OUT).epsilon
    truth = _by_mpmath(Fraction(2 * 286 * k * k, 1600))
    assert truth <= float(seen) <= truth * (1 + 1e-6)


def _histograms(votes: tuple[int, ...], moved: int, classes: int) -> list[tuple[int, ...]]:
    """All counts after at most ``moved`` of the teachers vote otherwise, by trying each."""
    found = []
    for places in product(range(len(votes)), repeat=moved):
        for chosen in product(range(classes), repeat=moved):
            changed = list(votes)
            for place, other in zip(places, chosen, strict=True):
                changed[place] = other
            found.append(tuple(changed.count(one) for one in range(classes)))
    return found


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("chunks_by", ["position", "content"])
def test_sensitivities_are_those_of_every_small_vote(relation: str, chunks_by: str) -> None:
    """Of four teachers and three classes, all votes and all changes: the greatest distances are the table's."""
    if (chunks_by, relation) == ("position", ADD_REMOVE):
        return
    plan = of(relation=relation, chunks_by=chunks_by)
    farthest = greatest = 0
    for votes in product(range(3), repeat=4):
        counts = [votes.count(one) for one in range(3)]
        for other in _histograms(votes, chunks_moved(plan), 3):
            farthest = max(farthest, sum((one - two) ** 2 for one, two in zip(counts, other, strict=True)))
            greatest = max(greatest, abs(max(counts) - max(other)))
    screened = of(relation=relation, chunks_by=chunks_by, screening=SCREENED)
    assert screened.screening is not None
    assert mu_square(plan, Plurality(classes=3, noise=Fraction(40))) == Fraction(farthest, 1600)
    assert mu_square(screened, screened.screening) == Fraction(greatest**2, 1600)


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(1, 50)), min_size=1, max_size=4), st.integers(2, 9))
def test_a_mean_moves_by_the_diameter_over_k(boxes: list[tuple[int, int]], teachers: int) -> None:
    """The noise is in units of it, so the price does not depend on the box."""
    outputs = tuple(Interval(Coordinate(low), Coordinate(low + wide)) for low, wide in boxes)
    plan = of(answer=ClippedMean(noise=Fraction(5), outputs=outputs).to_json(), teachers=teachers)
    assert plan.whole == SelfComposed(286, GaussianPrivate(Fraction(1, 25), ZERO_OUT))


def test_a_median_has_bounded_range() -> None:
    """Each of three weights e^(-ε|rank - k/2|/2): log-ratios of neighbours differ by at most ε, and can by nearly ε."""
    plan = of(answer=MEDIAN, questions=1)
    assert plan.whole == BoundedRange(Fraction(1, 10), ZERO_OUT)
    assert of(answer=MEDIAN, relation=REPLACE, chunks_by="content").whole == SelfComposed(
        286, BoundedRange(Fraction(1, 5), REPLACE)
    )
    # ε²/8-zCDP at small orders, ε itself at large ones.
    at_two, at_many = (divergence(plan.whole, ZERO_OUT, order) for order in (2, 250))
    assert at_two == Fraction(2, 800)
    assert at_many is not None
    assert at_many <= Fraction(1, 10)
