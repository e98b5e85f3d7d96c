"""The page of statistics: what it says of tables and of thresholds."""

from __future__ import annotations

import tomllib
from fractions import Fraction

from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.statistic_prices import threshold
from ledger.mechanisms.statistics import PrivateCategories
from ledger.mechanisms.statistics_plans import StatisticsPlan
from tests.documentation.fenced_blocks import ROOT, blocks

PATH = ROOT / "docs" / "statistics.md"


def test_the_tables_of_the_page_are_a_plans() -> None:
    """Beside any statistic."""
    (text,) = (one.text for one in blocks(PATH) if "train.plan.tables" in one.text)
    tables = tomllib.loads(text)["train"]["plan"]["tables"]
    asked = {"epsilon": "0.1", "kind": "count", "name": "rows"}
    value = {"kind": "statistics", "relation": "REPLACE_SPECIAL", "statistics": [asked], "tables": tables, "v": 1}
    plan = StatisticsPlan.of(parse_plan(value))
    assert [(table.columns, table.target) for table in plan.tables] == [
        (("age", "weight"), False),
        (("ct_value",), True),
    ]


def test_the_threshold_of_the_page_is_that_of_the_mechanism() -> None:
    """In records."""
    asked = PrivateCategories(
        name="c", epsilon=Fraction(1, 2), delta=Fraction(1, 10**6), categories_max=4, column="inputs[1]"
    )
    assert f"threshold is {threshold(asked, 'REPLACE_SPECIAL')} records" in " ".join(PATH.read_text().split())
