"""Plans that release statistics: of the records alone, or before and after a training.

A run that answers queries states each of them, and its cost for one changed record under a relation:
:mod:`ledger.mechanisms.statistics`.

{"kind": "statistics", "relation": "ADD_OR_REMOVE_ONE",
 "statistics": [{"epsilon": "0.1", "kind": "count", "name": "rows"}], "v": 1}

A run of stages takes statistics of its training records, trains by them, and measures its model on the records that it
held out: one plan, so one price and one post.

{"held_out": "0.3", "kind": "staged", "metrics": [{"buckets": 16, "epsilon": "0.2", "kind": "roc_curve", "name": "roc",
 "score": "outputs[1]", "truth": "targets"}], "relation": "REPLACE_SPECIAL", "statistics": [...],
 "training": {"kind": "dp_sgd", ...}, "v": 1}
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal

from ledger.mechanisms.decomposition import PIECES_MAX, to_steps
from ledger.mechanisms.mechanism import Composed, Mechanism, Relation
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.run_plan import RECORD, RunPlan
from ledger.mechanisms.statistic_prices import mechanism_of
from ledger.mechanisms.statistics import AnyStatistic, Statistic, require_own_columns
from ledger.wire.field_types import Ref, between, constant, distinct, exact, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

TABLES_MAX: Final = 16
"""Tables that the records of a plan are joined of."""
COLUMNS_MAX: Final = 4_096
"""Columns of one of them."""


class JoinedTable(Record, frozen=True):
    """A table of a join: of whose data the columns of the joined records are.

    Attributes:
        columns: the names of its inputs. Those of the joined records are its tables' in their order, so the first table
            has ``inputs[0]``.
        partition: whose records it holds.
        target: whether the target of the joined records is its own.
        records_max: the most rows that its provider declares; absent where no number is declared. A clean room ends
            the run of a table that has more, before it reads one.
    """

    columns: Annotated[tuple[Annotated[str, text(200)], ...], distinct(COLUMNS_MAX, 0)]
    partition: Ref
    target: bool
    records_max: Annotated[int, between(1, 10**12)] | None = None


Tables = Annotated[tuple[JoinedTable, ...], distinct(TABLES_MAX, 0)]


class StatisticsPlan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="statistics"):
    """A run that answers questions, one after another: each is one step, priced and settled by itself.

    Attributes:
        relation: under which each statistic has its stated cost; a partition with another relation accepts no such
            charge.
        tables: that the records are joined of, in the order of the join; the clean room holds them to it. They change
            no price.
    """

    relation: Relation
    statistics: Annotated[tuple[AnyStatistic, ...], distinct(PIECES_MAX)]
    tables: Tables = ()
    v: Literal[1] = constant(1)
    unit: ClassVar[str] = RECORD

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Check that every answer has a name of its own. Raises: Malformed."""
        super().__post_init__()
        require_own_columns(self.statistics)
        _require_names(self.statistics, "statistics")
        _require_tables(self.tables)

    @cached_property
    def whole(self) -> Mechanism:
        """All of them."""
        parts = tuple(mechanism_of(statistic, self.relation) for statistic in self.statistics)
        return parts[0] if len(parts) == 1 else Composed(parts)

    @property
    def steps(self) -> int:
        """How many there are."""
        return len(self.statistics)


class StagedPlan(Record, RunPlan, frozen=True, dict=True, tag_field="kind", tag="staged"):
    """A run of stages: statistics of the records that train, training, and metrics of its model on those held out.

    Each statistic and each metric is one step, in this order, the steps of the training between them. All are composed
    as if each read every record: a record trains or is held out, so what this overstates is the smaller part.

    Attributes:
        relation: under which each statistic and metric has its stated cost, as in :class:`StatisticsPlan`.
        training: over records; its sampling probability is of all places, those held out among them.
        statistics: from which the run standardises, before it trains.
        metrics: statistics of the trained model's ``outputs`` and ``predictions`` beside the records' own columns.
        held_out: the share of the records that do not train; present exactly if there are metrics.
        tables: as in :class:`StatisticsPlan`.
    """

    relation: Relation
    training: Plan
    statistics: Annotated[tuple[AnyStatistic, ...], distinct(PIECES_MAX, 0)] = ()
    metrics: Annotated[tuple[AnyStatistic, ...], distinct(PIECES_MAX, 0)] = ()
    held_out: Annotated[Fraction, exact(below=Fraction(1), positive=True)] | None = None
    tables: Tables = ()
    v: Literal[1] = constant(1)
    unit: ClassVar[str] = RECORD

    __hash__ = RunPlan.__hash__

    def __post_init__(self) -> None:
        """Check the stages against each other. Raises: Malformed."""
        super().__post_init__()
        released = (*self.statistics, *self.metrics)
        if not 1 <= len(released) < PIECES_MAX:
            raise Malformed("statistics", f"and metrics must be 1 to {PIECES_MAX - 1} together")
        if self.training.unit != RECORD:
            raise Malformed("training.unit", f"is {self.training.unit}: stages are over records")
        if bool(self.metrics) != (self.held_out is not None):
            raise Malformed(
                "held_out", "must be given exactly if there are metrics: the share of the records that they measure"
            )
        require_own_columns(self.statistics)
        _require_names(released, "statistics and metrics")
        _require_tables(self.tables)
        to_steps(self.whole)

    @cached_property
    def whole(self) -> Mechanism:
        """All stages, composed once."""
        before, after = (
            tuple(mechanism_of(statistic, self.relation) for statistic in part)
            for part in (self.statistics, self.metrics)
        )
        return Composed((*before, self.training.whole, *after))

    @property
    def steps(self) -> int:
        """The steps of all stages."""
        return len(self.statistics) + self.training.steps + len(self.metrics)


def _require_names(statistics: tuple[Statistic, ...], where: str) -> None:
    names = [statistic.name for statistic in statistics]
    if len(names) != len(set(names)):
        raise Malformed(where, "must have different names")


def _require_tables(tables: tuple[JoinedTable, ...]) -> None:
    if not tables:
        return
    if len({table.partition for table in tables}) != len(tables):
        raise Malformed("tables", "names a partition twice")
    if sum(table.target for table in tables) != 1:
        raise Malformed("tables", "must have the target in one of them")
