"""Plans of stages: statistics, training and metrics in one plan, composed once and settled step by step."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from ledger.accounting.epsilon_report import report_epsilon
from ledger.accounting.pure_dp import pure_epsilon
from ledger.mechanisms.decomposition import kinds_of, to_steps
from ledger.mechanisms.mechanism import Composed, Pure
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.price_proofs import NotPriced, require_priced
from ledger.mechanisms.statistics_plans import StagedPlan, StatisticsPlan
from ledger.wire.canonical_json import dump, parse_canonical
from ledger.wire.malformed import Malformed
from policy.documents.run_bounds import RunBounds, noise_multiplier_of

RELATION = "REPLACE_SPECIAL"
TRAINING = Plan(Fraction(1, 8), Fraction(4), Fraction(1), 10, 50)
COUNT = {"epsilon": "0.1", "kind": "count", "name": "rows"}
ROC = {"buckets": 8, "epsilon": "0.4", "kind": "roc_curve", "name": "roc", "score": "outputs[1]", "truth": "targets"}
MATRIX = {
    "classes": 2,
    "kind": "confusion_matrix",
    "name": "matrix",
    "predicted": "predictions",
    "rho": "0.02",
    "truth": "targets",
}
STAGED: dict[str, Any] = {
    "held_out": "0.3",
    "kind": "staged",
    "metrics": [ROC],
    "relation": RELATION,
    "statistics": [COUNT],
    "training": TRAINING.to_json(),
    "v": 1,
}


def of(**changed: Any) -> StagedPlan:  # noqa: ANN401 - JSON
    """The plan with these members changed, or left out where they are None."""
    return StagedPlan.of(parse_plan({name: one for name, one in {**STAGED, **changed}.items() if one is not None}))


def test_a_plan_reads_back() -> None:
    """Through its canonical bytes; its steps are those of all stages, in their order."""
    plan = of()
    again = parse_plan(parse_canonical(dump(plan.to_json()), 10_000))
    assert again == plan
    assert plan.to_json() == STAGED
    assert plan.digest != of(statistics=None).digest
    assert (plan.steps, plan.unit) == (12, "record")
    counts = [count for count, _ in to_steps(plan.whole)]
    assert counts == [1, 10, 1]
    assert kinds_of(plan.whole) == ("pure", "poisson_gaussian")


def test_its_first_steps_are_what_began() -> None:
    """The statistics first, then so much of the training, and the metrics last."""
    plan = of()
    rows, roc = Pure(epsilon=Fraction(1, 10), relation=RELATION), Pure(epsilon=Fraction(2, 5), relation=RELATION)
    assert plan.whole == Composed((rows, TRAINING.whole, roc))
    assert plan.mechanism(1) == rows
    assert plan.mechanism(12) == plan.whole
    assert [count for count, _ in to_steps(plan.mechanism(4))] == [1, 3]
    assert [count for count, _ in to_steps(plan.mechanism(11))] == [1, 10]
    with pytest.raises(Malformed, match="at least 1"):
        plan.mechanism(0)


def test_one_price_is_of_all_stages_together() -> None:
    """At least that of each stage, at most their sum; and no rule takes what has no row in it."""
    plan, delta = of(), Fraction(1, 10**5)
    alone = report_epsilon(TRAINING.whole, delta, RELATION).epsilon
    whole = report_epsilon(plan.whole, delta, RELATION).epsilon
    assert max(alone, Fraction(1, 2)) < whole <= alone + Fraction(1, 2) + Fraction(1, 10**6)
    requested = StatisticsPlan.of(
        parse_plan(
            {"kind": "statistics", "relation": RELATION, "statistics": [COUNT, {**ROC, "score": "inputs[1]"}], "v": 1}
        )
    )
    assert pure_epsilon(requested.whole, RELATION) == Fraction(1, 2)
    for rule in ("renyi", "catalogue", "gaussian"):
        require_priced(plan.whole, RELATION, rule)
    with pytest.raises(NotPriced, match="pure under REPLACE_SPECIAL has no proven price in the rule reference"):
        require_priced(plan.whole, RELATION, "reference")
    with pytest.raises(NotPriced, match="holds under ADD_OR_REMOVE_ONE"):
        require_priced(of(relation="ADD_OR_REMOVE_ONE").whole, RELATION, "renyi")


REFUSED: tuple[tuple[dict[str, Any], str, str], ...] = (
    ({"statistics": None, "metrics": None, "held_out": None}, "statistics", "1 to 15 together"),
    ({"statistics": [{**COUNT, "name": f"r{one}"} for one in range(15)]}, "statistics", "1 to 15 together"),
    ({"held_out": None}, "held_out", "exactly if there are metrics"),
    ({"metrics": None}, "held_out", "exactly if there are metrics"),
    ({"held_out": "1"}, "held_out", "less than 1"),
    ({"held_out": "0"}, "held_out", "must"),
    ({"metrics": [{**ROC, "name": "rows"}]}, "statistics and metrics", "different names"),
    ({"statistics": [{**ROC, "name": "early"}]}, "statistics[0]", "reads what a model gives"),
    ({"metrics": [{**ROC, "score": "outputs.a.b"}]}, "metrics[0].score", "must be 'inputs' or 'targets'"),
    ({"metrics": [{**ROC, "score": "predictions[0]"}]}, "metrics[0].score", "must be 'inputs' or 'targets'"),
    ({"training": {**TRAINING.to_json(), "unit": "user"}}, "training.unit", "over records"),
    ({"training": {**TRAINING.to_json(), "steps": 0}}, "training.steps", "must"),
    (
        {"training": {"kind": "statistics", "relation": RELATION, "statistics": [COUNT], "v": 1}},
        "training.relation",
        "is not a known field",
    ),
    ({"training": None}, "training", "missing"),
    ({"epsilon": "1"}, "epsilon", "is not a known field"),
)


@pytest.mark.parametrize(("change", "field", "words"), REFUSED)
def test_what_is_refused(change: dict[str, Any], field: str, words: str) -> None:
    """By the field and the rule."""
    with pytest.raises(Malformed) as refused:
        of(**change)
    assert refused.value.field == field
    assert words in str(refused.value)


def test_statistics_alone_read_no_model() -> None:
    """There is none."""
    with pytest.raises(Malformed, match=r"statistics\[0\]: reads what a model gives"):
        StatisticsPlan.of(parse_plan({"kind": "statistics", "relation": RELATION, "statistics": [ROC], "v": 1}))


def test_the_noise_that_a_statistic_states() -> None:
    """1/ε of Laplace noise and 1/√(2ρ) of Gaussian noise, rounded down; in a plan of stages alone."""
    plan = of(metrics=[ROC, MATRIX])
    stated = [noise_multiplier_of(step, plan) for _, step in to_steps(plan.whole)]
    assert stated == [10, 4, Fraction(5, 2), 5]
    requested = StatisticsPlan.of(
        parse_plan({"kind": "statistics", "relation": RELATION, "statistics": [COUNT], "v": 1})
    )
    assert noise_multiplier_of(requested.whole, requested) is None
    bounds = {least: RunBounds(None, least, None, None, None) for least in (Fraction(5, 2), Fraction(13, 5))}
    reported = {least: one.bars(Fraction(1, 10**5), plan) for least, one in bounds.items()}
    assert reported == {Fraction(5, 2): "", Fraction(13, 5): "the noise multiplier must be at least 2.6"}
