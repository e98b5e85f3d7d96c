"""Categories that a plan counts are within what providers declare: held to declarations alone, before a record."""

from __future__ import annotations

import io
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from client.dataset_files.declared.column_rule import ColumnRule
from client.dataset_files.declared.declaration import Declaration
from client.dataset_files.sealed_records import RecordLayout, SealedRecords, write_sealed
from ledger.mechanisms import statistics as s
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import RunPlan
from ledger.mechanisms.statistics_plans import StagedPlan, StatisticsPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.job.preprocessing import ONE_HOT, Constants
from trainer_adapter.training.declared_categories import check_categories

A, B, C = (f"did:web:{name}.example/d/p" for name in ("a", "b", "c"))
ONE: Final = Fraction(1)
TRAINING: Final = Plan(Fraction(1, 2), Fraction(8), Fraction(1), 2, 10)
WORDS: Final = "declares no categories of {} within those that the plan counts"


class Held:
    """Bytes in memory, as a file's."""

    def __init__(self, data: bytes) -> None:
        """Of a sealed file."""
        self.data, self.size = data, len(data)

    def read(self, at: int, count: int) -> bytes:
        """At most so many bytes from there."""
        return self.data[at : at + count]


def partition(
    declared: Declaration | None, columns: Sequence[str] = ("age", "strain"), *, target: bool = True, array: str = ""
) -> SealedRecords:
    """One without a record: its declaration is all that is looked at; an archive where ``array`` is named."""
    arrays: list[Any] = [(array or "inputs", "<f4", (len(columns),)), *([("targets", "<i8")] if target else [])]
    layout = RecordLayout(np.dtype(arrays), () if array else tuple(columns), (), declared)
    file = io.BytesIO()
    write_sealed(file, bytes(32), A, layout, [])
    return SealedRecords(Held(file.getvalue()), bytes(32), A)


def only(*values: str) -> ColumnRule:
    """Declared categories."""
    return ColumnRule(categories=values)


def counted(column: str, *values: int) -> StatisticsPlan:
    """A plan that counts these categories."""
    return StatisticsPlan("REPLACE_SPECIAL", (s.Categories(name="n", epsilon=ONE, column=column, values=values),))


def measured(metric: s.AnyStatistic) -> StagedPlan:
    """A plan of stages that measures its model so."""
    return StagedPlan("REPLACE_SPECIAL", TRAINING, (), (metric,), Fraction(1, 2))


def matrix(predicted: str) -> s.ConfusionMatrix:
    """Of two classes."""
    return s.ConfusionMatrix(name="n", epsilon=ONE, classes=2, predicted=predicted, truth="targets")


CURVE = s.RocCurve(name="n", epsilon=ONE, buckets=4, score="outputs[1]", truth="targets")
AREA = s.AreaUnderCurve(name="n", epsilon=ONE, negatives_max=9, positives_max=9, score="outputs[1]", truth="targets")
PLANS: dict[str, tuple[RunPlan, str]] = {
    "categories of the target": (counted("targets", 0, 1), "the target"),
    "categories of an input": (counted("inputs[1]", 1, 0, 5), "column (strain|inputs)"),
    "matrix": (measured(matrix("predictions")), "the target"),
    "matrix of an input": (
        StatisticsPlan("REPLACE_SPECIAL", (matrix("inputs[1]"),)),
        "(the target|column strain|column inputs)",
    ),
    "curve": (measured(CURVE), "the target"),
    "area": (measured(AREA), "the target"),
}


@pytest.mark.parametrize("kind", PLANS)
def test_what_is_listed_is_declared_by_each_partition_or_named(kind: str) -> None:
    """Fewer categories are within; more of them, bounds, nothing, and an archive in one piece are not."""
    plan, words = PLANS[kind]
    bounds = ColumnRule(bounds=("0", "1"))
    kept = partition(Declaration({"strain": only("0", "1")}, only("1", "0")))
    check_categories({A: kept, B: partition(Declaration({"strain": only("1")}, only("0")))}, plan)
    for broken in (
        partition(Declaration({"strain": only("0", "9")}, only("0", "1", "2"))),
        partition(Declaration({"strain": bounds}, bounds)),
        partition(Declaration({"age": only("0", "1")})),
        partition(None),
        b"PK",
    ):
        with pytest.raises(Malformed, match=WORDS.format(words)) as raised:
            check_categories({A: kept, B: broken}, plan)
        assert raised.value.field == B


def test_other_statistics_need_no_declaration() -> None:
    """A number beyond public bounds counts as the nearest; categories that no one declares have a threshold."""
    column = s.ClippedColumn("inputs[0]", s.Coordinate(0), s.Coordinate(1))
    found = s.PrivateCategories(name="p", epsilon=ONE, delta=Fraction(1, 10**6), categories_max=2, column="inputs[1]")
    asked = (s.Count(name="n", epsilon=ONE), s.Moments(name="m", epsilon=ONE, columns=(column,)), found)
    plan = StatisticsPlan("REPLACE_SPECIAL", asked)
    accepted = list[object]()
    for one in (plan, TRAINING):
        check_categories({A: b"PK"}, one)
        accepted.append(one)
    assert accepted == [plan, TRAINING]


def test_an_archive_declares_by_array() -> None:
    """For each of its numbers."""
    for column, array in (("inputs[1]", "inputs"), ("inputs.strain[1]", "inputs.strain")):
        check_categories({A: partition(Declaration({array: only("3")}), array=array)}, counted(column, 3, 8))
        with pytest.raises(Malformed, match=f"categories of column {array} within"):
            check_categories({A: partition(Declaration({"x": only("3")}), array=array)}, counted(column, 3, 8))


def test_listed_values_become_inputs_where_they_are_declared() -> None:
    """``one_hot`` of public values: zeros for another category would be nothing."""
    listed = Constants(ONE_HOT, (("values", (Fraction(3), Fraction(8))),), "a code book", 1)
    check_categories({A: partition(Declaration({"strain": only("8")}))}, TRAINING, (listed,))
    with pytest.raises(Malformed, match=WORDS.format("column strain")):
        check_categories({A: partition(Declaration({"strain": only("7")}))}, TRAINING, (listed,))


@given(st.lists(st.integers(1, 3), min_size=3, max_size=3), st.integers(0, 2), st.data())
def test_a_joined_column_is_its_tables(widths: list[int], of_target: int, data: st.DataObject) -> None:
    """Joined records have the columns of the tables in their order: the one whose column it is must declare."""
    order = (C, A, B)
    columns = [(table, column) for table, width in enumerate(widths) for column in range(width)]
    place = data.draw(st.integers(0, len(columns) - 1))
    table, column = columns[place]

    def tables(of_column: ColumnRule, of_targets: ColumnRule) -> dict[str, SealedRecords]:
        found = {}
        for number, ref in enumerate(order):
            rules = {f"c{column}": of_column} if number == table else {}
            declared = Declaration(rules, of_targets if number == of_target else None)
            names = [f"c{each}" for each in range(widths[number])]
            found[ref] = partition(declared, names, target=number == of_target)
        return found

    kept, broken = only("0", "1"), only("2")
    check_categories(tables(kept, broken), counted(f"inputs[{place}]", 0, 1), join=order)
    check_categories(tables(broken, kept), counted("targets", 0, 1), join=order)
    for found, asked, where in (
        (tables(broken, kept), f"inputs[{place}]", table),
        (tables(kept, broken), "targets", of_target),
    ):
        with pytest.raises(Malformed) as raised:
            check_categories(found, counted(asked, 0, 1), join=order)
        assert raised.value.field == order[where]
