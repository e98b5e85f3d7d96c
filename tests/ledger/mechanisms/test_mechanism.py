"""The vocabulary of mechanisms: exact inverses, hostile ones refused by name, n-fold equals n times."""

import json
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger.accounting.epsilon_report import report_epsilon, slack
from ledger.accounting.renyi import price
from ledger.mechanisms import mechanism as m
from ledger.mechanisms.decomposition import (
    DEPTH_MAX,
    PIECES_MAX,
    SELECTIONS_MAX,
    count_selections,
    first_steps,
    group_privacy,
    kinds_of,
    to_steps,
)
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.wire.canonical_json import dump, parse_canonical
from ledger.wire.exact_numbers import DELTA_ONE
from ledger.wire.malformed import Malformed
from tests.factories.mechanisms import parse_mechanism

ORDERS = (2, 5, 16)


def ratio(low: Fraction, high: Fraction) -> st.SearchStrategy[Fraction]:
    """Rationals between two bounds, of few digits."""
    return st.fractions(low, high, max_denominator=10**6)


NOISE = ratio(Fraction(1, 2), Fraction(50))
RELATION = st.sampled_from(m.RELATIONS)
ATOMS: st.SearchStrategy[m.Mechanism] = st.one_of(
    st.builds(m.Gaussian, NOISE),
    st.builds(m.Laplace, NOISE),
    st.builds(m.DiscreteGaussian, NOISE),
    st.builds(m.RandomisedResponse, st.integers(2, 50), ratio(Fraction(1, 100), Fraction(1))),
    st.builds(m.Zcdp, RELATION, ratio(Fraction(1, 1000), Fraction(2)), ratio(Fraction(0), Fraction(1))),
    st.builds(m.Pure, ratio(Fraction(1, 1000), Fraction(3)), RELATION),
    st.builds(m.GaussianPrivate, ratio(Fraction(1, 1000), Fraction(3)), RELATION),
    st.builds(m.BoundedRange, ratio(Fraction(1, 1000), Fraction(3)), RELATION),
    st.builds(
        m.BlackBox, ratio(Fraction(1, 10**6), Fraction(1, 1000)), ratio(Fraction(1, 1000), Fraction(3)), RELATION
    ),
    st.builds(m.PoissonGaussian, ratio(Fraction(1, 1000), Fraction(1)), NOISE, st.integers(1, 50)),
    st.builds(m.SampledWithoutReplacement, NOISE, st.integers(100, 1000), st.integers(1, 100), st.integers(1, 50)),
    st.builds(m.FullBatchEpochs, st.integers(1, 50), NOISE),
)
MECHANISMS: st.SearchStrategy[m.Mechanism] = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.builds(m.Group, st.integers(1, 3), inner),
        st.builds(m.RepeatAndSelect, ratio(Fraction(1), Fraction(20)), inner, st.sampled_from(m.SHAPES)),
        st.builds(m.Composed, st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(m.SelfComposed, st.integers(1, 5), inner),
    ),
    max_leaves=4,
)


def depth(mechanism: m.Mechanism) -> int:
    """How deep mechanisms hold one another."""
    inner = getattr(mechanism, "mechanisms", None) or (getattr(mechanism, "mechanism", None),)
    return 1 + max((depth(one) for one in inner if one is not None), default=0)


@settings(deadline=None)
@given(MECHANISMS.filter(lambda one: depth(one) <= DEPTH_MAX))
def test_a_mechanism_reads_back(mechanism: m.Mechanism) -> None:
    """Through its canonical bytes; or, with more in it than can be priced soon, is refused."""
    try:
        to_steps(mechanism)
        too_much = count_selections(mechanism) > SELECTIONS_MAX
    except Malformed:
        too_much = True
    if too_much:
        with pytest.raises(Malformed):
            parse_mechanism(mechanism.to_json())
        return
    assert parse_mechanism(parse_canonical(dump(mechanism.to_json()), 32_768)) == mechanism


GAUSSIAN = {"kind": "gaussian", "noise_multiplier": "2", "v": 1}
GOOD: dict[str, dict[str, Any]] = {
    "gaussian": GAUSSIAN,
    "laplace": {**GAUSSIAN, "kind": "laplace"},
    "discrete_gaussian": {**GAUSSIAN, "kind": "discrete_gaussian"},
    "randomised_response": {"buckets": 4, "kind": "randomised_response", "noise": "0.5", "v": 1},
    "zcdp": {"kind": "zcdp", "relation": "REPLACE_SPECIAL", "rho": "0.1", "v": 1, "xi": "0"},
    "pure": {"epsilon": "1", "kind": "pure", "relation": "REPLACE_SPECIAL", "v": 1},
    "gdp": {"kind": "gdp", "mu_square": "0.25", "relation": "REPLACE_SPECIAL", "v": 1},
    "bounded_range": {"epsilon": "1", "kind": "bounded_range", "relation": "REPLACE_SPECIAL", "v": 1},
    "black_box": {"delta": "0.001", "epsilon": "1", "kind": "black_box", "relation": "REPLACE_SPECIAL", "v": 1},
    "poisson_gaussian": {**GAUSSIAN, "kind": "poisson_gaussian", "probability": "0.1", "steps": 5},
    "sampled_without_replacement": {
        **GAUSSIAN, "kind": "sampled_without_replacement", "population": 100, "sample": 10, "steps": 5
    },
    "full_batch_epochs": {**GAUSSIAN, "epochs": 3, "kind": "full_batch_epochs"},
    "group": {"k": 3, "kind": "group", "mechanism": GAUSSIAN, "v": 1},
    "repeat_and_select": {"kind": "repeat_and_select", "mean": "4", "mechanism": GAUSSIAN, "shape": "1", "v": 1},
    "composed": {"kind": "composed", "mechanisms": [GAUSSIAN, GAUSSIAN], "v": 1},
    "self_composed": {"count": 3, "kind": "self_composed", "mechanism": GAUSSIAN, "v": 1},
}  # fmt: skip
WORSE: dict[str, list[object]] = {
    "noise_multiplier": ["0", "-1", "NaN", "1.0", 1, 1.5, "0.001", "1000001", None, "inf", "1e3", True],
    "noise": ["0", "1.5", 0.5, "1/3000000"],
    "buckets": [1, 0, -2, 2.0, True, "4", 1_000_001],
    "probability": ["0", "2", 0.1],
    "rho": ["0", "-1", "257"],
    "xi": ["-1", "257", 0],
    "epsilon": ["0", "-1", "300", 1],
    "mu_square": ["0", "-1", "1000001", "1/1000000000001", 1],
    "delta": ["0", "1", "0.6", 0.001],
    "relation": ["REPLACE", "", 1, None],
    "steps": [0, -1, 2.0, True, "5", m.STEPS_MAX + 1],
    "epochs": [0, -1, m.STEPS_MAX + 1],
    "population": [0, -1, 5],
    "sample": [0, 101],
    "k": [0, -1, m.GROUP_MAX + 1, True],
    "mean": ["0.5", "0", "-1", "1000001"],
    "shape": ["2", "", 1, "Poisson"],
    "count": [0, -1, 0.5, m.STEPS_MAX + 1],
    "mechanism": [None, {}, [], "gaussian", {**GAUSSIAN, "noise_multiplier": "NaN"}],
    "mechanisms": [None, {}, [], [None], [GAUSSIAN, {}]],
    "kind": ["non_private", "NonPrivate", "no_op", "dp_accounting.NonPrivateDpEvent", "", None, 1, ["gaussian"]],
    "v": [0, 2, True, "1", 1.0, None],
    "extra": [1],
}  # fmt: skip
HOSTILE = [
    (kind, name, value)
    for kind, good in GOOD.items()
    for name, values in WORSE.items()
    for value in values
    if name in good or name == "extra"
]


def test_every_kind_has_a_good_one() -> None:
    """The table of hostile changes covers the vocabulary."""
    assert list(GOOD) == list(m.KINDS)
    for kind, good in GOOD.items():
        assert parse_mechanism(good).to_json() == good
        assert parse_mechanism(good).kind == kind


@pytest.mark.parametrize(("kind", "name", "value"), HOSTILE, ids=repr)
def test_one_hostile_value_is_refused_by_name(kind: str, name: str, value: object) -> None:
    """One change to a good mechanism; the fault names the field, or the one that it contradicts."""
    with pytest.raises(Malformed) as fault:
        parse_mechanism({**GOOD[kind], name: value})
    assert fault.value.field.split(".")[0].split("[")[0] in {name, "sample" if name == "population" else name}


@pytest.mark.parametrize("kind", GOOD)
def test_a_missing_value_is_refused_by_name(kind: str) -> None:
    """Nothing has a default."""
    for name in GOOD[kind]:
        with pytest.raises(Malformed) as fault:
            parse_mechanism({other: value for other, value in GOOD[kind].items() if other != name})
        assert fault.value.field == name


def nested(levels: int) -> dict[str, Any]:
    """Groups of groups."""
    found: dict[str, Any] = GAUSSIAN
    for _ in range(levels - 1):
        found = {"k": 1, "kind": "group", "mechanism": found, "v": 1}
    return found


def test_depth_and_size_are_bounded() -> None:
    """The last that is read, and the first that is not, on each bound."""
    assert depth(parse_mechanism(nested(DEPTH_MAX))) == DEPTH_MAX
    with pytest.raises(Malformed, match="deeper"):
        parse_mechanism(nested(DEPTH_MAX + 1))
    many = {"kind": "composed", "mechanisms": [GAUSSIAN] * m.LEAVES_MAX, "v": 1}
    assert len(to_steps(parse_mechanism(many))) == m.LEAVES_MAX == PIECES_MAX
    with pytest.raises(Malformed, match="mechanisms"):
        parse_mechanism({**many, "mechanisms": [GAUSSIAN] * (m.LEAVES_MAX + 1)})
    with pytest.raises(Malformed, match="more than 16 mechanisms"):
        parse_mechanism({"kind": "composed", "mechanisms": [many, GAUSSIAN], "v": 1})
    with pytest.raises(Malformed, match="steps"):
        parse_mechanism({"count": m.STEPS_MAX, "kind": "self_composed", "mechanism": GOOD["poisson_gaussian"], "v": 1})
    tuned = {"kind": "composed", "mechanisms": [GOOD["repeat_and_select"]] * (SELECTIONS_MAX + 1), "v": 1}
    with pytest.raises(Malformed, match="selections"):
        parse_mechanism({"count": 2, "kind": "self_composed", "mechanism": tuned, "v": 1})
    with pytest.raises(Malformed, match="k"):
        parse_mechanism({"k": m.GROUP_MAX, "kind": "group", "mechanism": GOOD["group"], "v": 1})


@settings(deadline=None, max_examples=60)
@given(ATOMS, st.integers(2, 7), st.sampled_from([1, 2, 3]))
def test_n_fold_equals_n_times(mechanism: m.Mechanism, count: int, k: int) -> None:
    """Self-composed, composed of n, in a group or not: the same loss to the unit, and the same slack."""
    relation = getattr(mechanism, "relation", None) or (
        "REPLACE_ONE" if "without" in mechanism.kind else m.RELATIONS[0]
    )
    one = group_privacy(k, mechanism)
    fold, listed = m.SelfComposed(count, one), m.Composed((one,) * count)
    losses = [sum_of(folded, relation) for folded in (fold, listed)]
    single = sum_of(one, relation)
    times = Loss.zero(len(ORDERS) + 1)
    for _ in range(count):
        times = times + single
    assert losses == [times, times]


def sum_of(mechanism: m.Mechanism, relation: str) -> Loss:
    """The loss of all pieces added up, beyond 256 nat too, so that infinities do not hide a difference."""
    total = Loss.zero(len(ORDERS) + 1)
    for count, step in to_steps(mechanism):
        units = (*price(step, relation, ORDERS), -(-(slack(step) * DELTA_ONE) // 1))
        finite = tuple(0 if unit is None else count * int(unit) for unit in units)
        total = total + Loss(finite, tuple(count * int(unit is None) for unit in units))
    return total


@pytest.mark.parametrize("kind", GOOD)
def test_n_fold_is_told_as_n_times(kind: str) -> None:
    """What people are told of five-fold is what they are told of five."""
    one = parse_mechanism(GOOD[kind])
    relation = "REPLACE_ONE" if kind == "sampled_without_replacement" else "REPLACE_SPECIAL"
    fold = report_epsilon(m.SelfComposed(5, one), Fraction(1, 100), relation)
    listed = report_epsilon(m.Composed((one,) * 5), Fraction(1, 100), relation)
    assert float(fold.epsilon) == pytest.approx(float(listed.epsilon), rel=2e-3)
    assert fold.epsilon > report_epsilon(one, Fraction(1, 100), relation).epsilon


ROUNDS = m.SelfComposed(4, m.Composed((m.Gaussian(Fraction(3)), m.Laplace(Fraction(5)))))


def test_pieces_are_what_is_settled() -> None:
    """Steps are counted through pieces in order; a repeated round and a selection are whole steps."""
    plan = m.Composed((m.PoissonGaussian(Fraction(1, 10), Fraction(2), 7), ROUNDS, m.Gaussian(Fraction(9))))
    assert [count for count, _ in to_steps(plan)] == [7, 4, 1]
    tuned = m.RepeatAndSelect(Fraction(3), m.PoissonGaussian(Fraction(1, 10), Fraction(2), 50), "0")
    assert to_steps(tuned) == ((1, tuned),)
    assert to_steps(m.Group(2, plan))[0] == (7, m.Group(2, m.PoissonGaussian(Fraction(1, 10), Fraction(2), 1)))
    assert group_privacy(2, m.Group(3, tuned)) == m.Group(6, tuned)
    assert kinds_of(m.Composed((tuned, ROUNDS))) == ("repeat_and_select", "poisson_gaussian", "gaussian", "laplace")


@settings(deadline=None)
@given(st.integers(0, 12))
def test_the_first_steps_cost_what_is_settled_for_them(steps: int) -> None:
    """The mechanism of what ran and the loss that is posted for it are one."""
    plan = m.Composed((m.PoissonGaussian(Fraction(1, 10), Fraction(2), 7), ROUNDS, m.Gaussian(Fraction(9))))
    segments = tuple(Segment(count, price(step, "REPLACE_SPECIAL", ORDERS)) for count, step in to_steps(plan))
    ran = first_steps(plan, steps)
    if ran is None:
        assert steps == 0
        assert loss_of(segments, 0).empty
        return
    again = tuple(Segment(count, price(step, "REPLACE_SPECIAL", ORDERS)) for count, step in to_steps(ran))
    assert loss_of(again, steps) == loss_of(segments, steps)


def test_a_price_of_several_steps_counts_once_any_of_them_began() -> None:
    """A certificate of a whole run cannot be cut."""
    segments = (Segment(10, (7,), unit=10), Segment(9, (5,), unit=4))
    assert [loss_of(segments, steps).finite[0] for steps in (0, 1, 10, 11, 14, 15, 19)] == [0, 7, 7, 12, 12, 17, 22]


def test_json_is_plain() -> None:
    """Integers and strings only, so that any implementation reads it alike."""
    text = json.dumps(m.Composed((ROUNDS, m.Pure(Fraction(1, 3), m.RELATIONS[0]))).to_json(), sort_keys=True)
    assert json.loads(text)["mechanisms"][1] == {
        "epsilon": "1/3", "kind": "pure", "relation": "REPLACE_SPECIAL", "v": 1,
    }  # fmt: skip
