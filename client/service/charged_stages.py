"""What a charged run did with the data, stage by stage, and what each stage costs by itself: read off its entry.

The entry of a charge holds the signed plan, so this needs no statement of the clean room that ran it. The prices of
stages do not add up to that of the run: that composes them once, and is the number that counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from client.service.registry_reads import unit_records
from client.service.service import Service
from ledger.accounting.epsilon_report import reported_epsilon
from ledger.accounts.run_epsilon import ChargeEpsilon
from ledger.commands.entry import Entry
from ledger.mechanisms.decomposition import group_privacy
from ledger.mechanisms.mechanism import Mechanism
from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.price_proofs import NotPriced
from ledger.mechanisms.run_plan import RunPlan, group_of
from ledger.mechanisms.statistic_prices import mechanism_of
from ledger.mechanisms.statistics import OF_MODELS, Statistic, columns_of
from ledger.mechanisms.statistics_plans import JoinedTable, StagedPlan, StatisticsPlan
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert

_PLACES = 9


class Stage(NamedTuple):
    """One part of a run: ``statistic``, ``training``, ``metric``, or ``mechanism`` of a run that states no more."""

    stage: str
    name: str
    kind: str
    columns: tuple[str, ...]
    steps: int
    mechanism: Mechanism


def stages_of(plan: RunPlan) -> Iterator[Stage]:
    """The stages of a plan, in their order."""
    if isinstance(plan, StatisticsPlan):
        yield from (_answer("statistic", statistic, plan.relation) for statistic in plan.statistics)
    elif isinstance(plan, StagedPlan):
        yield from (_answer("statistic", statistic, plan.relation) for statistic in plan.statistics)
        yield Stage("training", "", "dp_sgd", (), plan.training.steps, plan.training.whole)
        yield from (_answer("metric", metric, plan.relation) for metric in plan.metrics)
    else:
        kind = str(plan.to_json()["kind"])
        yield Stage("training" if kind == "dp_sgd" else "mechanism", "", kind, (), plan.steps, plan.whole)


def _answer(stage: str, statistic: Statistic, relation: str) -> Stage:
    kind = str(statistic.__struct_config__.tag)
    return Stage(stage, statistic.name, kind, columns_of(statistic), 1, mechanism_of(statistic, relation))


def charged_stages(service: Service, charge: str) -> c.Object:
    """The charge of a model: each stage of its run, whether it began, and its ε alone on each partition it was of.

    Returns:
        ``charge``, ``model`` (its digest; null where its post names none), ``state``, ``stages`` and ``run_epsilon``.
        A stage ``began`` if its first step was posted; null while nothing is. Its ``sources`` are, for each column that
        a provider's table has, the partition and there the column's name, where the plan says it.

    Raises:
        Refused, Unreachable, Malformed.
    """
    state, figures = service.charge(charge), service.run_epsilon(charge)
    entry = Entry.parse(service.entry(c.integer(state.get("index"), "answer.index", 0, 2**53 - 1)))
    plan, joined = parse_plan(entry.request["plan"]), entry.request.get("unit_records_max")
    lines = convert(ChargeEpsilon, figures, "answer").run_epsilon
    terms = {line.partition: service.partition(line.partition) for line in lines}
    tables = plan.tables if isinstance(plan, StagedPlan | StatisticsPlan) else ()
    posted, before, stages = state.get("steps_posted"), 0, list[c.Json]()
    for stage in stages_of(plan):
        priced: list[c.Json] = []
        for line in lines:
            group = group_of(plan, line.unit, unit_records(terms[line.partition]), _whole(joined))
            mechanism = group_privacy(group, stage.mechanism)
            try:
                epsilon: str | None = ceil_decimal(reported_epsilon(mechanism, line.delta, line.relation), _PLACES)
            except (Malformed, NotPriced):
                epsilon = None
            priced.append({"epsilon": epsilon, "group": group, "partition": line.partition})
        stages.append(
            {
                "began": before < posted if isinstance(posted, int) else None,
                "columns": [*stage.columns],
                "kind": stage.kind,
                "name": stage.name,
                "of": priced,
                "sources": [*_sources(stage, tables, [line.partition for line in lines])],
                "stage": stage.stage,
                "steps": stage.steps,
            }
        )
        before += stage.steps
    return {
        "charge": charge,
        "model": state.get("model"),
        "run_epsilon": figures["run_epsilon"],
        "stages": stages,
        "state": state.get("state"),
        "steps_posted": posted,
    }


def _sources(stage: Stage, tables: tuple[JoinedTable, ...], charged: list[str]) -> Iterator[c.Object]:
    """Of whose data each column is; what a model gives is of all that it was trained on, so of none by itself."""
    joined = [(table.partition, name) for table in tables for name in table.columns]
    target = [table.partition for table in tables if table.target]
    for column in stage.columns:
        if column.startswith(OF_MODELS):
            continue
        of = [(partition, column) for partition in charged]
        if tables and column.startswith("targets"):
            of = [(partition, column) for partition in target]
        elif tables:
            place = column.removeprefix("inputs[").removesuffix("]")
            of = joined[int(place) : int(place) + 1] if place.isdecimal() else []
        for partition, name in of:
            yield {"column": column, "name": name, "partition": partition}


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) else None
