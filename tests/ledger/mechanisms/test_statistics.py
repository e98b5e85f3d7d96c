"""Plans of statistics: read and written by exact inverses, refused by name, priced at the relation and the unit."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.accounting.epsilon_report import report_epsilon, slack
from ledger.accounting.pure_dp import pure_epsilon
from ledger.accounting.renyi import divergence
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.mechanism import RELATIONS, BlackBox, Composed, Pure, Zcdp
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.price_proofs import REPLACE, NotPriced, require_priced
from ledger.mechanisms.run_plan import group_of
from ledger.mechanisms.statistic_prices import noise_of, sensitivity
from ledger.mechanisms.statistics import Coordinate, Histogram
from ledger.mechanisms.statistics_plans import StatisticsPlan
from ledger.wire.canonical_json import dump, parse_canonical
from ledger.wire.malformed import Malformed

ADDED = "ADD_OR_REMOVE_ONE"
BOUNDED = {"column": "inputs[0]", "lower": "-4", "upper": "4"}
ASKED: tuple[dict[str, Any], ...] = (
    {"epsilon": "0.1", "kind": "count", "name": "rows"},
    {"column": "inputs[3]", "edges": ["-1/3", "0", "65.5"], "epsilon": "0.1", "kind": "histogram", "name": "ages"},
    {"column": "targets", "epsilon": "0.1", "kind": "categories", "name": "classes", "values": [-1, 0, 7]},
    {"columns": [BOUNDED], "epsilon": "0.2", "kind": "clipped_sum", "name": "total"},
    {"columns": [BOUNDED], "kind": "moments", "name": "scale", "rho": "0.005"},
    {
        "candidates": ["0", "1"],
        "column": "inputs.age[2]",
        "epsilon": "1",
        "kind": "quantile",
        "level": "0.9",
        "name": "q",
    },
    {
        "classes": 3,
        "epsilon": "1",
        "kind": "confusion_matrix",
        "name": "m",
        "predicted": "inputs.p",
        "truth": "targets",
    },
    {"buckets": 20, "epsilon": "1", "kind": "roc_curve", "name": "roc", "score": "inputs.p", "truth": "targets"},
    {
        "categories_max": 20,
        "column": "inputs[1]",
        "delta": "0.000001",
        "epsilon": "0.1",
        "kind": "private_categories",
        "name": "found",
    },
    {
        "epsilon": "1",
        "kind": "area_under_curve",
        "name": "auc",
        "negatives_max": 500,
        "positives_max": 100,
        "score": "inputs.p",
        "truth": "targets",
    },
    {
        "bound": "2.5",
        "epsilon": "1",
        "kind": "squared_error",
        "name": "error",
        "predicted": "inputs.p",
        "truth": "targets",
    },
)
REFUSED: tuple[tuple[int, dict[str, Any], str, str], ...] = (
    (0, {"kind": "mean"}, "kind", "is not a statistic this ledger knows"),
    (0, {"rho": "0.1"}, "epsilon", "or rho must be given"),
    (0, {"epsilon": None}, "epsilon", "or rho must be given"),
    (0, {"epsilon": "0"}, "epsilon", "must"),
    (0, {"name": "two words"}, "name", "must be 1 to 64"),
    (0, {"name": "scale.mean"}, "name", "must be 1 to 64"),
    (0, {"unknown": 1}, "unknown", "unknown"),
    (1, {"edges": ["1", "0"]}, "edges", "must rise"),
    (1, {"edges": ["-0"]}, "edges[0]", "zero has no sign"),
    (1, {"edges": ["1.50"]}, "edges[0]", "write '1.50' as '1.5'"),
    (1, {"edges": [1]}, "edges[0]", "must be"),
    (1, {"edges": ["1000000000001"]}, "edges[0]", "must lie between"),
    (1, {"column": "secret"}, "column", "must be 'inputs' or 'targets'"),
    (2, {"values": None}, "values", "is missing"),
    (2, {"values": [1, 1]}, "values", "names an item twice"),
    (3, {"columns": [{**BOUNDED, "upper": "-4"}]}, "columns[0].upper", "must rise"),
    (1, {"edges": None}, "edges", "is missing"),
    (3, {"columns": [{"column": "inputs[0]", "upper": "4"}]}, "columns[0].lower", "is missing"),
    (4, {"columns": [{"column": "inputs[0]", "lower": "-4"}]}, "columns[0].upper", "is missing"),
    (4, {"columns": [{**BOUNDED, "upper": "data"}]}, "columns[0].upper", "is not a plain decimal"),
    (4, {"columns": [{**BOUNDED, "lower": "secret/report.json"}]}, "columns[0].lower", "is not a plain decimal"),
    (4, {"columns": "share/records.sealed"}, "columns", "must be"),
    (1, {"edges": "secret/report.json"}, "edges", "must be"),
    (5, {"candidates": None}, "candidates", "is missing"),
    (9, {"positives_max": None}, "positives_max", "is missing"),
    (5, {"epsilon": None, "rho": "0.1"}, "rho", "permute-and-flip"),
    (5, {"level": "1"}, "level", "less than 1"),
    (5, {"level": "1/1001"}, "level", "at most 1000"),
    (6, {"classes": 65}, "classes", "64"),
    (7, {"buckets": 1}, "buckets", "2"),
    (8, {"epsilon": None, "rho": "0.1"}, "rho", "a threshold is proven for epsilon"),
    (8, {"delta": "0"}, "delta", "must"),
    (8, {"delta": None}, "delta", "is missing"),
    (8, {"values": [1]}, "values", "is not a known field"),
    (8, {"categories_max": 0}, "categories_max", "1"),
    (9, {"positives_max": 0}, "positives_max", "1"),
    (9, {"negatives_max": 1 << 21}, "negatives_max", "1048576"),
    (10, {"bound": None}, "bound", "is missing"),
    (10, {"bound": "0"}, "bound", "must"),
    (10, {"bound": "1000000000001"}, "bound", "must"),
    (10, {"classes": 2}, "classes", "is not a known field"),
)


def of(*asked: dict[str, Any], relation: str = ADDED) -> StatisticsPlan:
    """The plan that asks these."""
    return StatisticsPlan.of(parse_plan({"kind": "statistics", "relation": relation, "statistics": [*asked], "v": 1}))


def test_a_plan_reads_back() -> None:
    """Through its canonical bytes; each statistic is a step, in its order, and the digest names them all."""
    plan = of(*ASKED)
    again = parse_plan(parse_canonical(dump(plan.to_json()), 10_000))
    assert again == plan
    assert again.digest == plan.digest != of(*reversed(ASKED)).digest
    assert plan.to_json()["statistics"] == [*ASKED]
    assert plan.steps == len(ASKED)
    assert plan.mechanism(1) == Pure(epsilon=Fraction(1, 10), relation=ADDED)
    assert plan.mechanism(plan.steps) == plan.whole
    with pytest.raises(Malformed, match="at least 1"):
        plan.mechanism(0)
    with pytest.raises(Malformed, match="another kind of plan"):
        Plan.of(plan)


@pytest.mark.parametrize(("place", "change", "field", "words"), REFUSED)
def test_what_is_refused(place: int, change: dict[str, Any], field: str, words: str) -> None:
    """By the field and the rule."""
    changed = {name: one for name, one in {**ASKED[place], **change}.items() if one is not None}
    with pytest.raises(Malformed) as refused:
        of(changed)
    assert refused.value.field == f"statistics[0].{field}"
    assert words in str(refused.value)


def test_answers_have_names_of_their_own_and_pieces_an_end() -> None:
    """As many as are recorded with a price each."""
    with pytest.raises(Malformed, match="different names"):
        of(ASKED[0], {**ASKED[1], "name": "rows"})
    with pytest.raises(Malformed, match="1 to 16"):
        of(*({**ASKED[0], "name": f"rows-{one}"} for one in range(17)))


@given(st.fractions(-(10**12), 10**12, max_denominator=10**6))
def test_a_coordinate_reads_back(number: Fraction) -> None:
    """Of either sign, exactly."""
    asked = Histogram(name="h", epsilon=Fraction(1), column="targets", edges=(Coordinate(number),))
    plan = StatisticsPlan(ADDED, (asked,))
    assert parse_plan(parse_canonical(dump(plan.to_json()), 10_000)) == plan


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("k", [1, 2, 5])
def test_each_is_priced_at_the_unit(relation: str, k: int) -> None:
    """ε grows by k, ρ by k²; the parts of a plan are one composition, reported by one number."""
    pure, zcdp = of(ASKED[1], relation=relation), of(ASKED[4], relation=relation)
    assert pure_epsilon(group_privacy(k, pure.whole), relation) == k * Fraction(1, 10)
    assert divergence(group_privacy(k, zcdp.whole), relation, 8) == 8 * k * k * Fraction(1, 200)
    both = of(ASKED[1], ASKED[4], relation=relation)
    assert both.whole == Composed((Pure(Fraction(1, 10), relation), Zcdp(relation, Fraction(1, 200), Fraction(0))))
    alone = report_epsilon(group_privacy(k, zcdp.whole), Fraction(1, 10**5), relation).epsilon
    whole = report_epsilon(group_privacy(k, both.whole), Fraction(1, 10**5), relation).epsilon
    assert alone is not None
    assert whole is not None
    assert alone < whole <= alone + k * Fraction(1, 10) + Fraction(1, 10**6)


def test_another_relation_has_no_price() -> None:
    """What was drawn for add-remove neighbours says nothing of replaced ones."""
    for asked in ASKED:
        plan = of(asked)
        require_priced(plan.whole, ADDED, "renyi")
        for other in set(RELATIONS) - {ADDED}:
            with pytest.raises(NotPriced):
                require_priced(plan.whole, other, "renyi")


@pytest.mark.parametrize("rule", ["reference", "renyi", "gaussian", "catalogue", "pure"])
def test_which_rules_take_which(rule: str) -> None:
    """Pure ones all but the reference; discrete Gaussian noise the Rényi rule alone."""
    takes = {"epsilon": rule != "reference", "rho": rule == "renyi"}
    for asked, known in ((ASKED[0], takes["epsilon"]), (ASKED[4], takes["rho"])):
        try:
            require_priced(of(asked).whole, ADDED, rule)
        except NotPriced:
            assert not known
        else:
            assert known


def test_private_categories_cost_their_delta_too() -> None:
    """Beside ε, for each record of a user; where a rule has no slack for it there is no price."""
    plan = of(ASKED[8])
    assert plan.whole == BlackBox(Fraction(1, 10**6), Fraction(1, 10), ADDED)
    assert slack(group_privacy(3, plan.whole)) > 3 * Fraction(1, 10**6)
    for rule in ("renyi", "gaussian", "catalogue"):
        require_priced(plan.whole, ADDED, rule)
    for rule in ("reference", "pure"):
        with pytest.raises(NotPriced):
            require_priced(plan.whole, ADDED, rule)


TABLES: list[dict[str, Any]] = [
    {"columns": ["age", "pay"], "partition": "did:web:a.example/d/p", "target": False},
    {"columns": ["lab"], "partition": "did:web:b.example/d/p", "target": True},
]


def test_a_plan_may_say_whose_its_columns_are() -> None:
    """Without a price of it; not half of it."""
    named = {"kind": "statistics", "relation": ADDED, "statistics": [ASKED[0]], "v": 1}
    plan, plain = (StatisticsPlan.of(parse_plan(one)) for one in ({**named, "tables": TABLES}, named))
    assert plan.to_json() == {**named, "tables": TABLES}
    assert plan.whole == plain.whole
    assert plan.digest != plain.digest
    for tables, words in (
        ([TABLES[0], {**TABLES[1], "partition": TABLES[0]["partition"]}], "names a partition twice"),
        ([TABLES[0]], "must have the target in one of them"),
        ([{**TABLES[0], "target": True}, TABLES[1]], "must have the target in one of them"),
    ):
        with pytest.raises(Malformed, match=words):
            parse_plan({**named, "tables": tables})


def test_users_are_groups() -> None:
    """Of the records that a partition, or a join, gives one of them."""
    plan = of(ASKED[0])
    assert group_of(plan, "record", 1) == 1
    assert group_of(plan, "user", 3) == 3
    assert group_of(plan, "record", 1, joined=4) == 4


def test_noise_is_the_least_for_its_price() -> None:
    """Against the definitions, for each kind and relation."""
    for relation in RELATIONS:
        times = 2 if relation == REPLACE else 1
        for asked in of(*ASKED, relation=relation).statistics:
            moved, noise = sensitivity(asked), noise_of(asked, relation)
            if noise.gaussian_square is not None:
                assert (times * times * moved.l2_square) / (2 * noise.gaussian_square) == asked.rho
            elif noise.selection is not None:
                assert 2 * times * moved.scores / noise.selection == asked.epsilon
            else:
                assert noise.laplace is not None
                assert times * moved.l1 / noise.laplace == asked.epsilon
