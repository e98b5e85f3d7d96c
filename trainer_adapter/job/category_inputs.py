"""How many inputs a model sees of a record, where categories become inputs of their own (``one_hot``)."""

from __future__ import annotations

from collections.abc import Sequence

from ledger.mechanisms.run_plan import RunPlan
from ledger.mechanisms.statistics import Moments, PrivateCategories, Statistic
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.job.preprocessing import ONE_HOT, Constants, OwnStatistic


def check_own_statistics(preprocessing: Sequence[Constants], plan: RunPlan) -> None:
    """Hold constants of a run's own statistics to the plan that takes them. Raises: Malformed."""
    for place, constants in enumerate(preprocessing):
        if not isinstance(constants.source, OwnStatistic):
            continue
        of = PrivateCategories if constants.kind == ONE_HOT else Moments
        if constants.source.statistic not in {one.name for one in _own(plan) if isinstance(one, of)}:
            what = "private categories" if of is PrivateCategories else "moments"
            rule = f"{constants.source.statistic} is none of the {what} that a plan of stages takes before it trains"
            raise Malformed(f"preprocessing.{place}.statistic", rule)


def model_width(width: int, preprocessing: Sequence[Constants], plan: RunPlan) -> int:
    """How many numbers a model sees of a record of ``width`` numbers.

    As many for each category as are declared, or as the plan's statistic releases at most: public numbers both.

    Raises:
        Malformed: for a column that the inputs do not have, or that is taken twice.
    """
    taken: dict[int, int] = {}
    own = {one.name: one.categories_max for one in _own(plan) if isinstance(one, PrivateCategories)}
    for place, constants in enumerate(preprocessing):
        if constants.column is None:
            continue
        where = f"preprocessing.{place}.column"
        if constants.column >= width:
            raise Malformed(where, f"is {constants.column}, and the inputs have the columns 0 to {width - 1}")
        if constants.column in taken:
            raise Malformed(where, f"is {constants.column}, which another item takes")
        source = constants.source
        named = own.get(source.statistic, 0) if isinstance(source, OwnStatistic) else len(constants.values[0][1])
        taken[constants.column] = named
    return width - len(taken) + sum(taken.values())


def _own(plan: RunPlan) -> tuple[Statistic, ...]:
    return plan.statistics if isinstance(plan, StagedPlan) else ()
