"""A DEPA pipeline: its stages in order, each gated by name. An unknown stage is refused, not skipped.

{"pipeline": [{"name": "SparkJoin", "config": {...}}, {"name": "Train_DL", "config": {...}}]}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from policy.depa.contract.contract import Contract
from policy.depa.contract.field_reader import Fields
from policy.depa.contract.reasons import Reasons
from policy.depa.pipeline import joins, training_stage
from policy.depa.pipeline.joins import Join, read_join
from policy.depa.pipeline.mounts import folder_of
from policy.depa.pipeline.target import check_targets
from policy.depa.pipeline.training_stage import Training, read_training

PATH: Final = "pipeline"
STAGES_MAX: Final = 32
UNSUPPORTED: Final = {
    "LLM_Finetune": "it takes its privacy from a file of its own, and one of its two runners never applies it",
}


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The known stages of a pipeline, in order."""

    joins: tuple[Join, ...]
    trainings: tuple[Training, ...]


def read_pipeline(value: Any, contract: Contract, reasons: Reasons) -> Pipeline:  # noqa: ANN401 - JSON
    """A pipeline from its JSON, checked against its contract; every error becomes a reason, and none raises."""
    top = Fields(value, PATH, reasons, numbers_in_text=False)  # DEPA's own policy compares numbers alone
    top.only(("pipeline",))
    read = [_stage(stage, contract) for stage in top.objects("pipeline", STAGES_MAX)]
    stages = [stage for stage in read if stage is not None]
    pipeline = Pipeline(
        tuple(stage for stage in stages if isinstance(stage, Join)),
        tuple(stage for stage in stages if isinstance(stage, Training)),
    )
    if not pipeline.trainings and len(stages) == len(read):
        reasons.refuse("training_missing", top.at("pipeline"))
    _check_inputs(stages, contract, reasons)
    renamed = ((join.query_path, name) for join in pipeline.joins for name in join.renamed)
    check_targets(tuple(stage.target for stage in pipeline.trainings), renamed, contract, reasons)
    return pipeline


def _stage(stage: Fields, contract: Contract) -> Join | Training | None:
    stage.only(("config", "name"))
    name = stage.text("name")
    if name is None:
        return None
    if name in UNSUPPORTED:
        stage.refuse("stage_unsupported", "name", UNSUPPORTED[name])
        return None
    if name in joins.NAMES:
        return read_join(name, stage.inner("config"), contract)
    if name in training_stage.NAMES:
        return read_training(name, stage.inner("config"))
    stage.refuse("stage_unknown", "name", f"known are {', '.join((*joins.NAMES, *training_stage.NAMES))}")
    return None


def _check_inputs(stages: list[Join | Training], contract: Contract, reasons: Reasons) -> None:
    """Check that each training input is the result of an earlier join, or a dataset of the contract."""
    folders = {dataset.owner for dataset in contract.datasets if dataset.owner}
    outputs: set[str] = set()
    for stage in stages:
        if isinstance(stage, Join):
            folders |= {folder_of(mount) for mount in stage.mounts}
            outputs |= {stage.output} if stage.output else set()
        elif stage.input is not None and stage.input not in outputs and folder_of(stage.input) not in folders:
            reasons.refuse("input_unknown", stage.path, stage.input)
