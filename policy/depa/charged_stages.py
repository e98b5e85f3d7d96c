"""The charged statistics and metrics that stand for what a DEPA pipeline fits on records and measures exactly.

The adapted pipeline has neither; the job of its run has both, at a price. The pipeline says which: its scaler, its
metrics, its split, the columns that each data set selects. Neither file has the numbers that a price needs, so the
job's template states them, and each missing one is named:

    [train.charged.moments]
    epsilon = "0.1"

    [train.charged.area_under_curve]
    epsilon = "0.3"
    negatives_max = 460
    positives_max = 230

    [train.charged]
    left_out = ["accuracy"]

    [train.columns."did:web:icmr.example/tests/covid"]
    test_ct_value = ["0", "50"]
    strain = {bounds = ["0", "1"], sealed_as = "a_strain"}
    test_result = "target"

``columns`` has the columns that the pipeline selects, with the bounds that the provider declares of each input, in the
order in which they are sealed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from ledger.wire import canonical_json as c
from ledger.wire.canonical_json import Json, Object
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from policy.depa.pipeline import joins, training_stage
from policy.depa.pipeline.preprocessing import FITTED_SCALERS

SCALE: Final = "scale"
TARGET: Final = "target"
LEFT_OUT: Final = "left out"
MOMENTS: Final = "moments"
_SCALER: Final = "standard"
_MATRIX: Final = "confusion_matrix"
_AREA: Final = "area_under_curve"
_METRICS: Final = {
    **dict.fromkeys(("auc", "roc_auc", "roc_curve"), _AREA),
    **dict.fromkeys(("accuracy", "classification_report", _MATRIX, "f1_score", "precision", "recall"), _MATRIX),
}
"""DEPA's metrics by the statistic that they follow from."""
_NEEDED: Final = {
    MOMENTS: ("epsilon",),
    _AREA: ("epsilon", "negatives_max", "positives_max"),
    _MATRIX: ("classes", "epsilon"),
}
"""What a template states of each statistic, in the plan's own members."""


@dataclass(frozen=True, slots=True)
class _Column:
    """One input as it is sealed, with the bounds that its provider declares."""

    name: str
    bounds: tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Table:
    """The sealed table of one partition."""

    partition: str
    columns: tuple[_Column, ...]
    target: bool


def charged_stages(table: Mapping[str, Any], partitions: list[str], pipeline: Any) -> tuple[Object, list[Json]]:  # noqa: ANN401 - JSON
    """The stages of a plan beside its training, and the preprocessing that takes their answers.

    Args:
        table: the template's, with ``charged`` and ``columns``.
        partitions: in the order of the join.
        pipeline: DEPA's, as it was before it was adapted.

    Raises:
        Malformed: naming each number that is missing, and what has no charged form.
    """
    config = _training(pipeline)
    wanted = list(_wanted(config))
    stated = c.members(table.get("charged"), "train.charged")
    left_out = c.strings(stated.get("left_out", []), "train.charged.left_out", 100) if "left_out" in stated else ()
    kinds = dict.fromkeys(_kind(word, kind) for word, kind in wanted if word not in left_out)
    _refuse_spare(stated, left_out, wanted, kinds)
    tables = list(_tables(table.get("columns"), partitions, pipeline))
    if sum(one.target for one in tables) != 1:
        rule = f'must name the target of one partition, as COLUMN = "{TARGET}"'
        raise Malformed("train.columns", rule)
    made = {kind: _statistic(kind, stated, table, tables) for kind in kinds}
    plan: Object = {"kind": "staged"}
    if MOMENTS in made:
        plan["statistics"] = [made.pop(MOMENTS)]
    if made:
        plan |= {"held_out": _held_out(config), "metrics": [*made.values()]}
    if len(partitions) > 1:
        plan["tables"] = [
            {"columns": [column.name for column in one.columns], "partition": one.partition, "target": one.target}
            for one in tables
        ]
    return plan, [{"kind": "normalise", "statistic": SCALE}] if "statistics" in plan else []


def _stages(pipeline: Any, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - JSON
    """The configs of some stages. The check has read them: what is of another form was refused."""
    for stage in pipeline["pipeline"]:
        if stage["name"] in names:
            yield stage["config"]


def _training(pipeline: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return next(_stages(pipeline, training_stage.DEEP))


def _wanted(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What the pipeline fits and measures in its own words, and the statistic of each; empty where there is none."""
    scaler = ((config.get("dataset_config") or {}).get("preprocessing") or {}).get("scaler")
    if scaler in FITTED_SCALERS:
        yield scaler, MOMENTS if scaler == _SCALER else ""
    for metric in config.get("metrics") or ():
        name = str(metric.get("name")) if isinstance(metric, dict) else str(metric)
        yield name, _METRICS.get(name, "")


def _kind(word: str, kind: str) -> str:
    if not kind:
        rule = f"has no charged form of the pipeline's {word}: list it in left_out, or write a plan by hand"
        raise Malformed("train.charged", rule)
    return kind


def _refuse_spare(
    stated: Object, left_out: tuple[str, ...], wanted: list[tuple[str, str]], kinds: Mapping[str, None]
) -> None:
    """Refuse what the pipeline does not ask for. Raises: Malformed."""
    for word in left_out:
        if word not in {name for name, _ in wanted}:
            raise Malformed("train.charged.left_out", f"names {word}, which the pipeline does not ask for")
    for kind in stated:
        if kind != "left_out" and kind not in kinds:
            raise Malformed(f"train.charged.{kind}", "is nothing that the pipeline asks for")


def _statistic(kind: str, stated: Object, table: Mapping[str, Any], tables: list[_Table]) -> Object:
    members = c.members(stated.get(kind, {}), f"train.charged.{kind}")
    for name in _NEEDED[kind]:
        if name not in members:
            words = ", ".join(word for word, of in {_SCALER: MOMENTS, **_METRICS}.items() if of == kind)
            rule = f"is missing: the pipeline asks for what follows from it ({words}); left_out lists what may go"
            raise Malformed(f"train.charged.{kind}.{name}", rule)
    c.fields(members, f"train.charged.{kind}", _NEEDED[kind])
    match kind:
        case "moments":
            columns = [column for one in tables for column in one.columns]
            listed: list[Json] = [
                {"column": f"inputs[{place}]", "lower": column.bounds[0], "upper": column.bounds[1]}
                for place, column in enumerate(columns)
            ]
            return {**members, "columns": listed, "kind": kind, "name": SCALE}
        case "area_under_curve":
            score = "outputs[1]" if table.get("outputs") == 2 else "outputs"
            return {**members, "kind": kind, "name": "roc", "score": score, "truth": "targets"}
        case _:
            return {**members, "kind": kind, "name": "matrix", "predicted": "predictions", "truth": "targets"}


def _held_out(config: Mapping[str, Any]) -> str:
    """The share of the records that do not train: of DEPA's split all that is not ``train``. Raises: Malformed."""
    share = ((config.get("dataset_config") or {}).get("splits") or {}).get("train")
    if not isinstance(share, Fraction) or not 0 < share < 1:
        raise Malformed("train.charged", "has metrics, and the pipeline has no share of records that train (splits)")
    return format_number(1 - share)


def _tables(columns: Any, partitions: list[str], pipeline: Any) -> Iterator[_Table]:  # noqa: ANN401 - TOML and JSON
    by_partition = c.members(columns if columns is not None else {}, "train.columns")
    for ref in by_partition:
        if ref not in partitions:
            raise Malformed(f"train.columns.{ref[:200]}", "is of no partition in train.data")
    for ref in partitions:
        yield _table(ref, c.members(by_partition.get(ref, {}), f"train.columns.{ref}"), _selected(ref, pipeline))


def _selected(ref: str, pipeline: Any) -> list[str]:  # noqa: ANN401 - JSON
    """The columns that the pipeline selects of a partition's data set, without the joining key, or none."""
    dataset = ref.rpartition("/")[0].rpartition("/")[2]
    for config in _stages(pipeline, joins.NAMES):
        joined = config.get("joined_dataset")
        key = joined.get("joining_key") if isinstance(joined, dict) else None
        for one in config["datasets"]:
            if one["id"] == dataset and one.get("select_variables"):
                return [name for name in one["select_variables"] if name != key]
    return []


def _table(ref: str, stated: Object, selected: list[str]) -> _Table:
    where = f"train.columns.{ref}"
    if missing := [name for name in selected if name not in stated]:
        words = f'the bounds that its provider declares, as {missing[0]} = ["0", "50"]; "{TARGET}"; or "{LEFT_OUT}"'
        raise Malformed(where, f"lacks {', '.join(missing)}: of each {words}")
    for name in stated:
        if selected and name not in selected:
            raise Malformed(f"{where}.{name}", f"is no column that the pipeline selects: {', '.join(selected)}")
    inputs = tuple(_column(name, value, where) for name, value in stated.items() if value not in (TARGET, LEFT_OUT))
    if not inputs:
        raise Malformed(where, "is missing: its inputs in the order in which they are sealed, each with its bounds")
    return _Table(ref, inputs, TARGET in stated.values())


def _column(name: str, value: Json, where: str) -> _Column:
    if isinstance(value, dict):
        members = c.fields(value, f"{where}.{name}", ("bounds", "sealed_as"))
        name, value = c.string(members["sealed_as"], f"{where}.{name}.sealed_as"), members["bounds"]
    if not isinstance(value, list) or len(value) != 2:
        raise Malformed(f"{where}.{name}", f'must be two bounds, as ["0", "50"], or "{TARGET}", or "{LEFT_OUT}"')
    lower, upper = (c.string(bound, f"{where}.{name}") for bound in value)
    return _Column(name, (lower, upper))
