"""Categories that a plan counts are those that its columns' providers declare.

A statistic that lists categories, and a ``one_hot`` of public ones, take a column to hold no other. A record with
another one could neither be counted nor end the run, which would show it without noise. So each such column must have
a declaration (:mod:`client.dataset_files.declared.declaration`) within what the plan lists. The declaration is public
and is read alone, no record; the clean room holds the records to it (:mod:`trainer_adapter.run.declared_records`).
Categories that no one declares are found by ``private_categories``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from client.dataset_files.declared.column_rule import ColumnRule
from client.dataset_files.record_parts import INPUTS, TARGETS
from client.dataset_files.sealed_records import RecordLayout, SealedRecords
from client.dataset_files.stored_partition import PartitionData
from ledger.mechanisms import statistics as s
from ledger.mechanisms.run_plan import RunPlan
from ledger.mechanisms.statistics_plans import StagedPlan, StatisticsPlan
from ledger.mechanisms.tuning import TuningPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.job.preprocessing import ONE_HOT, Constants

_COLUMN: Final = re.compile(r"(inputs|targets)(?:\.[^\[]+)?(?:\[([0-9]+)\])?")
Listed = tuple[str, frozenset[float]]
"""A column of the records, and the categories that are counted of it."""


def check_categories(
    opened: Mapping[str, PartitionData],
    plan: RunPlan,
    preprocessing: Sequence[Constants] = (),
    join: Sequence[str] | None = None,
) -> None:
    """Hold each column whose categories are listed to its providers' declarations; no record is read.

    Args:
        opened: the partitions' data, by reference.
        plan: of the run, with its preprocessing.
        join: the partitions in the order in which their columns are joined; None: all have the same columns.

    Raises:
        Malformed: naming the partition and the column, where no declaration is within what is listed.
    """
    layouts = {ref: data.layout if isinstance(data, SealedRecords) else None for ref, data in opened.items()}
    for column, values in _listed(plan, preprocessing):
        for ref, layout, own in _places(column, layouts, join):
            rule = None if layout is None else _rule(own, layout)
            if rule is None or not rule.within(values):
                whose = "the target" if own.startswith(TARGETS) else f"column {_shown(own, layout)}"
                rule_text = (
                    f"declares no categories of {whose} within those that the plan counts of {column}: its provider "
                    "seals it with [records.categories] in the schema, or the plan asks for private_categories"
                )
                raise Malformed(ref, rule_text)


def _listed(plan: RunPlan, preprocessing: Sequence[Constants]) -> Iterator[Listed]:
    for statistic in _statistics(plan):
        match statistic:
            case s.Categories():
                yield statistic.column, frozenset(map(float, statistic.values))
            case s.ConfusionMatrix():
                for column in (statistic.truth, statistic.predicted):
                    if not column.startswith(s.OF_MODELS):
                        yield column, frozenset(map(float, range(statistic.classes)))
            case s.RocCurve() | s.AreaUnderCurve():
                yield statistic.truth, frozenset((0.0, 1.0))
            case _:
                pass
    for constants in preprocessing:
        if constants.kind == ONE_HOT and constants.values:
            yield f"{INPUTS}[{constants.column}]", frozenset(map(float, constants.values[0][1]))


def _statistics(plan: RunPlan) -> tuple[s.Statistic, ...]:
    match plan:
        case StatisticsPlan():
            return plan.statistics
        case StagedPlan():
            return (*plan.statistics, *plan.metrics)
        case TuningPlan(score=score) if score is not None:
            return (score.metric,)
        case _:
            return ()


def _places(
    column: str, layouts: Mapping[str, RecordLayout | None], join: Sequence[str] | None
) -> Iterator[tuple[str, RecordLayout | None, str]]:
    """The partitions whose column it is, and what it is called there: all of them, or of a join one."""
    named = _COLUMN.fullmatch(column)
    if join is None or named is None:
        yield from ((ref, layout, column) for ref, layout in layouts.items())
        return
    before, place = 0, int(named[2] or 0)
    for ref in join:
        layout = layouts[ref]
        names = () if layout is None else layout.dtype.names or ()
        width = 0 if layout is None else len(layout.columns)
        if named[1] == TARGETS and TARGETS in names:
            yield ref, layout, column
        if named[1] == INPUTS and before <= place < before + width:
            yield ref, layout, f"{INPUTS}[{place - before}]"
        before += width


def _rule(column: str, layout: RecordLayout) -> ColumnRule | None:
    """What is declared of a column."""
    if layout.declared is None:
        return None
    if column.startswith(TARGETS):
        return layout.declared.target
    return layout.declared.columns.get(_shown(column, layout))


def _shown(column: str, layout: RecordLayout | None) -> str:
    """A column as its provider declares it: by its name in a table, of an archive by its array."""
    array, _, place = column.removesuffix("]").partition("[")
    names = () if layout is None else layout.columns
    number = int(place or 0)
    return names[number] if number < len(names) else array
