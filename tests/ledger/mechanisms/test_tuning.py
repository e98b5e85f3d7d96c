"""Plans of trials: read strictly, and never below what a cut law of trials costs, computed output by output."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import mpmath
import pytest

from ledger.accounting.private_selection import OTHER_ORDERS
from ledger.accounting.renyi import divergence
from ledger.filters import renyi_orders
from ledger.mechanisms.decomposition import to_steps
from ledger.mechanisms.mechanism import Composed, Pure, RandomisedResponse, RepeatAndSelect
from ledger.mechanisms.plan import MechanismPlan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.price_proofs import NotPriced, require_priced
from ledger.mechanisms.tuning import CUT_MAX, GEOMETRIC, LAWS, ORDER_MAX, POISSON, TuningPlan, charged_mean, cut_share
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

WIDE = mpmath.mp.clone()
WIDE.dps = 60
TRAINING: c.Object = {
    "batch_size_expected": 64,
    "clipping_norm": "1",
    "kind": "dp_sgd",
    "noise_multiplier": "2.25",
    "sampler": {"kind": "poisson", "probability": "16/175"},
    "steps": 120,
    "v": 1,
}
PLAN: c.Object = {
    "kind": "tuning",
    "training": TRAINING,
    "trials": {"law": "poisson", "mean": "10", "most": 34},
    "v": 1,
}


SCORE: c.Object = {
    "held_out": "0.25",
    "metric": {
        "classes": 10,
        "epsilon": "0.05",
        "kind": "confusion_matrix",
        "name": "right",
        "predicted": "predictions",
        "truth": "targets",
    },
    "relation": "REPLACE_SPECIAL",
}


def _trials(**changes: c.Json) -> c.Object:
    return {**PLAN, "trials": {"law": "poisson", "mean": "10", "most": 34, **changes}}


def _wide(value: Fraction) -> Any:  # noqa: ANN401 - mpmath has no types
    return WIDE.mpf(value.numerator) / value.denominator


def _law(law: str, mean: Fraction, number: int) -> Any:  # noqa: ANN401 - mpmath has no types
    """P[K = number], straight from the definition."""
    expected = _wide(mean)
    if law == GEOMETRIC:
        return (1 - 1 / expected) ** (number - 1) / expected if number else WIDE.mpf(0)
    return WIDE.exp(-expected) * expected**number / WIDE.factorial(number)


def test_a_plan_of_trials_is_one_step_and_its_own_inverse() -> None:
    """Read and written alike; what is charged is private selection over the trial that costs most."""
    plan = TuningPlan.of(parse_plan(PLAN))
    assert plan.to_json() == PLAN
    assert (plan.steps, plan.unit) == (1, "record")
    whole = plan.whole
    assert isinstance(whole, RepeatAndSelect)
    assert (whole.mechanism, whole.shape) == (plan.training.whole, "poisson")
    assert Fraction(10) < whole.mean < Fraction(10) * (1 + Fraction(1, 10**5))
    assert to_steps(whole) == ((1, whole),)
    # A program of before reads what was charged as a mechanism.
    stated: c.Object = {"kind": "mechanism", "mechanism": MechanismPlan(whole).to_json()["mechanism"], "v": 1}
    assert parse_plan(stated).whole == whole


def test_a_private_score_is_composed_with_the_training_of_each_trial() -> None:
    """Read and written alike; absent where there is none, so that plans of before keep their bytes and digests."""
    plan = TuningPlan.of(parse_plan({**PLAN, "score": SCORE}))
    assert plan.to_json() == {**PLAN, "score": SCORE}
    assert plan.steps == 1
    trial = Composed((plan.training.whole, Pure(Fraction(1, 20), "REPLACE_SPECIAL")))
    assert isinstance(plan.whole, RepeatAndSelect)
    assert plan.whole == RepeatAndSelect(plan.whole.mean, trial, "poisson")
    require_priced(plan.whole, "REPLACE_SPECIAL", "renyi")
    with pytest.raises(NotPriced, match="holds under REPLACE_SPECIAL"):
        require_priced(plan.whole, "ADD_OR_REMOVE_ONE", "renyi")
    assert "score" not in TuningPlan.of(parse_plan(PLAN)).to_json()
    without = TuningPlan.of(parse_plan(PLAN)).whole
    for order in (2, 8, 32):
        dear, cheap = (divergence(one, "REPLACE_SPECIAL", order) for one in (plan.whole, without))
        assert dear is not None
        assert cheap is not None
        assert dear > cheap


@pytest.mark.parametrize(
    ("field", "value", "refusal"),
    [
        ("held_out", "0", r"score\.held_out"),
        ("held_out", "1", r"score\.held_out"),
        ("relation", "OTHER", r"score\.relation"),
        (
            "metric",
            {"epsilon": "0.1", "kind": "count", "name": "rows"},
            r"score\.metric|metric: must be a confusion_matrix",
        ),
        ("metric", {**SCORE["metric"], "predicted": "targets"}, "metric: must be of what the model gives"),  # type: ignore[dict-item] # as JSON
        ("metric", {**SCORE["metric"], "rho": "0.1"}, "epsilon"),  # type: ignore[dict-item] # as JSON
    ],
)
def test_a_score_that_judges_nothing_is_refused(field: str, value: c.Json, refusal: str) -> None:
    """A share of no records or all, another relation, and a metric that is no number or not of the model."""
    with pytest.raises(Malformed, match=refusal):
        parse_plan({**PLAN, "score": {**SCORE, field: value}})


@pytest.mark.parametrize(
    ("trials", "refusal"),
    [
        ({"law": "binomial"}, "law"),
        ({"mean": "0.5"}, "mean"),
        ({"mean": "101"}, "mean"),
        ({"most": 0}, "most"),
        ({"most": 10_001}, "most"),
        ({"most": 20}, "most: must be at least 33"),
        ({"law": "geometric"}, "most: must be at least 204"),
        ({"more": 1}, "more"),
    ],
)
def test_trials_that_no_price_covers_are_refused(trials: c.Object, refusal: str) -> None:
    """A law that has no theorem, and a greatest number that would cut off more than the charged mean covers."""
    with pytest.raises(Malformed, match=refusal):
        parse_plan(_trials(**trials))


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("mean", [Fraction(1), Fraction(5, 2), Fraction(10), Fraction(60)])
def test_the_share_that_a_cut_takes_is_never_understated(law: str, mean: Fraction) -> None:
    """E[K; K > most] over the mean, by summing the law at 60 digits; and at most ten times it, near the limit."""
    for most in (1, 3, 12, 40, 200):
        exact = 1 - WIDE.fsum(number * _law(law, mean, number) for number in range(most + 1)) / _wide(mean)
        found = cut_share(law, mean, most)
        assert found >= exact or abs(exact) < WIDE.mpf(10) ** -50
        if found < CUT_MAX:
            assert found <= 10 * exact + WIDE.mpf(10) ** -30


def _best(law: str, mean: Fraction, most: int, each: list[Any]) -> list[Any]:
    """The law of what leaves: the default, and each output of a trial, the best last."""
    ends = [WIDE.fsum(each[: place + 1]) for place in range(len(each))]

    def best(share: Any) -> Any:  # noqa: ANN401 - mpmath has no types
        return WIDE.fsum(_law(law, mean, number) * share**number for number in range(1, most + 1))

    outputs = [best(end) - (best(ends[place - 1]) if place else 0) for place, end in enumerate(ends)]
    return [1 - WIDE.fsum(outputs), *outputs]


def _response(drawn: random.Random) -> tuple[RandomisedResponse, list[list[Any]]]:
    """Randomised response, and its law for two true answers."""
    buckets, noise = drawn.randint(2, 4), Fraction(drawn.randint(3, 9), 10)
    laws = [
        [_wide(noise / buckets + (1 - noise if place == truth else 0)) for place in range(buckets)]
        for truth in (0, buckets - 1)
    ]
    return RandomisedResponse(buckets, noise), laws


def _uncovered(charged: RepeatAndSelect, laws: list[list[Any]]) -> list[int]:
    """The orders at which the price is less than the divergence of the laws."""
    found = []
    for order in (2, 3, 8, 40, ORDER_MAX):
        for left, right in (laws, laws[::-1]):
            terms = (one**order * other ** (1 - order) for one, other in zip(left, right, strict=True) if one)
            exact = WIDE.log(WIDE.fsum(terms)) / (order - 1)
            price = divergence(charged, "REPLACE_ONE", order)
            assert price is not None
            if exact > _wide(price):
                found.append(order)
    return found


def _cut(drawn: random.Random, seed: int) -> tuple[str, Fraction, int]:
    """A law of trials, cut far more coarsely than any plan may have it, so that what covers the cut is seen."""
    law, mean = LAWS[seed % 2], Fraction(drawn.randint(10, 30), 10)
    return law, mean, next(number for number in range(1, 100) if cut_share(law, mean, number) < 0.02)


@pytest.mark.parametrize("seed", range(12))
def test_the_charged_mean_covers_a_cut_law_of_trials(seed: int) -> None:
    """A trial of randomised response, its outputs in any order of merit: the best of K, each output's law exactly."""
    drawn = random.Random(seed)  # noqa: S311 - a case by its number
    law, mean, most = _cut(drawn, seed)
    trial, laws = _response(drawn)
    shape = "1" if law == GEOMETRIC else "poisson"
    charged = RepeatAndSelect(charged_mean(law, mean, most), trial, shape)
    assert _uncovered(charged, [_best(law, mean, most, each) for each in laws]) == []


@pytest.mark.parametrize("seed", range(6))
def test_a_private_score_is_priced_within_each_trial(seed: int) -> None:
    """A trial trains and is scored by the same record: each pair's law exactly, and the best by its score leaves."""
    drawn = random.Random(seed)  # noqa: S311 - a case by its number
    law, mean, most = _cut(drawn, seed)
    (training, trained), (score, scored) = _response(drawn), _response(drawn)
    shape = "1" if law == GEOMETRIC else "poisson"
    charged = RepeatAndSelect(charged_mean(law, mean, most), Composed((training, score)), shape)
    pairs = [[own * of for of in by for own in each] for each, by in zip(trained, scored, strict=True)]
    laws = [_best(law, mean, most, each) for each in pairs]
    assert _uncovered(charged, laws) == []


def test_the_orders_that_the_cut_is_covered_at_are_all_that_prices_are_at() -> None:
    """A greater one would need a greater mean."""
    assert max(renyi_orders.ORDER_MAX, *OTHER_ORDERS) <= ORDER_MAX
    assert POISSON in LAWS
