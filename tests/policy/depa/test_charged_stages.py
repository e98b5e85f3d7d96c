"""The charged statistics and metrics of a DEPA pipeline: those that it asks for, and each missing number by name."""

from __future__ import annotations

import json
import tomllib
from fractions import Fraction
from typing import Any

import pytest

from ledger.mechanisms.plan_reader import parse_plan
from ledger.mechanisms.statistics import AreaUnderCurve, ConfusionMatrix, Moments
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire.malformed import Malformed
from policy.depa.adaptation import PartyDecisions, adapt
from policy.depa.evaluation import Terms
from policy.depa.job_file import job_file
from tests.documentation.fenced_blocks import ROOT, blocks
from tests.factories.depa_documents import CHECKED_AT, CONTRACT, PIPELINE, TREES
from tests.factories.path_changes import GONE, changed

C = "pipeline|1|config"
LAB, HOSPITAL = "did:web:lab.example/8c1d7c2a-tests/q1", "did:web:hospital.example/8c1d7c2a-visits/q1"
SHIPPED: dict[str, Any] = {
    "pipeline|0|config|datasets|0|select_variables": ["phone", "age", "weight"],
    "pipeline|0|config|datasets|1|select_variables": ["result", "ct_value", "batch"],
    f"{C}|dataset_config|preprocessing": {"scaler": "standard"},
    f"{C}|metrics": ["accuracy", {"name": "roc_auc", "params": {}}, "precision_recall_curve"],
}
(PAGE,) = (block.text for block in blocks(ROOT / "policy" / "depa" / "README.md") if "train.charged" in block.text)
HEAD = f"""
v = 1
[train]
id = "run-1"
outputs = 2

[train.data]
"{LAB}" = "tests.sealed"
"{HOSPITAL}" = "visits.sealed"

"""
TEMPLATE = HEAD + PAGE


def _job(
    template: str, change: dict[str, Any] | None = None, level: int = 1, contract: dict[str, Any] | None = None
) -> dict[str, Any]:
    shipped = json.dumps(changed(PIPELINE, SHIPPED if change is None else change)).encode()
    terms = Terms(CHECKED_AT, level=level, records=500)
    adapted = adapt(json.dumps(changed(CONTRACT, contract or {})).encode(), shipped, terms, PartyDecisions(rows=1))
    assert not adapted.checked.code.refused, adapted.checked.reasons
    made = tomllib.loads(job_file(template.encode(), adapted.checked, "pipeline.json", shipped).decode())
    train: dict[str, Any] = made["train"]
    return train


def test_the_stages_are_those_that_the_pipeline_asks_for() -> None:
    """Its scaler, its metrics, its split, its columns in their order, with the bounds that the template declares."""
    made = _job(TEMPLATE)
    assert not made.keys() & {"charged", "columns"}
    assert made["preprocessing"] == [{"kind": "normalise", "statistic": "scale"}]
    plan = StagedPlan.of(parse_plan(made["plan"]))
    (moments,), (matrix, area) = plan.statistics, plan.metrics
    assert isinstance(moments, Moments)
    assert [(each.column, float(each.lower), float(each.upper)) for each in moments.columns] == [
        ("inputs[0]", 0, 50),
        ("inputs[1]", 0, 120),
        ("inputs[2]", 2.5, 300),
    ]
    assert isinstance(matrix, ConfusionMatrix)
    assert isinstance(area, AreaUnderCurve)
    assert (moments.epsilon, matrix.epsilon, area.epsilon) == (Fraction(1, 10), Fraction(1, 5), Fraction(3, 10))
    assert (area.score, area.negatives_max, plan.held_out) == ("outputs[1]", 60, Fraction(1, 5))
    assert [(table.partition, table.columns, table.target) for table in plan.tables] == [
        (LAB, ("ct_value",), True),
        (HOSPITAL, ("age", "weight_kg"), False),
    ]


FAULTS: list[tuple[str, str, str]] = [
    ('[train.charged.moments]\nepsilon = "0.1"\n', "", "train.charged.moments.epsilon: is missing: .*standard"),
    ("positives_max = 40\n", "", "train.charged.area_under_curve.positives_max: is missing: .*roc_auc"),
    ("classes = 2\n", "", "train.charged.confusion_matrix.classes: is missing: .*accuracy"),
    ("classes = 2\n", "classes = 2\nrho = '1'\n", "train.charged.confusion_matrix"),
    ('left_out = ["precision_recall_curve"]', "", "no charged form of the pipeline's precision_recall_curve"),
    ('["precision_recall_curve"]', '["precision_recall_curve", "f1"]', "left_out: names f1, which the pipeline"),
    ('["precision_recall_curve"]', '["precision_recall_curve", "standard"]', "moments: is nothing that the pipeline"),
    ('age = ["0", "120"]\n', "", "train.columns.*visits/q1: lacks age: of each the bounds that its provider declares"),
    ('age = ["0", "120"]', 'age = ["0"]', r"visits/q1\.age: must be two bounds"),
    ('age = ["0", "120"]', 'age = "report.json"', r"visits/q1\.age: must be two bounds"),
    ('age = ["0", "120"]', 'age = ["120", "0"]', r"train\.plan\.statistics"),
    ('age = ["0", "120"]', 'age = ["0", "120"]\nheight = ["0", "3"]', r"height: is no column that the pipeline"),
    ('result = "target"', 'result = "left out"', "train.columns: must name the target of one partition"),
    (
        'weight = {bounds = ["2.5", "300"], sealed_as = "weight_kg"}',
        'weight = "target"',
        "train.columns: must name the target of one partition",
    ),
    (', sealed_as = "weight_kg"', "", r"visits/q1\.weight\.sealed_as"),
    (f'[train.columns."{HOSPITAL}"]', '[train.columns."did:web:a.example/b/c"]', "is of no partition in train.data"),
    ('id = "run-1"', 'id = "run-1"\nplan = {kind = "staged"}', "train.charged: is given together with a plan"),
]


@pytest.mark.parametrize(("before", "after", "words"), FAULTS, ids=[words[:40] for *_, words in FAULTS])
def test_each_missing_number_is_named(before: str, after: str, words: str) -> None:
    """So that no bound is guessed, and none is taken from a file of the data."""
    assert before in TEMPLATE
    with pytest.raises(Malformed, match=words):
        _job(TEMPLATE.replace(before, after, 1))


def test_what_has_no_charged_form_is_named() -> None:
    """A scaler by the least and greatest record; a pipeline without a split; columns that no one names."""
    minmax = {**SHIPPED, f"{C}|dataset_config|preprocessing": {"scaler": "minmax"}}
    with pytest.raises(Malformed, match="no charged form of the pipeline's minmax"):
        _job(TEMPLATE, minmax)
    with pytest.raises(Malformed, match="has no share of records that train"):
        _job(TEMPLATE, {**SHIPPED, f"{C}|dataset_config|splits": GONE})
    unnamed = {name: value for name, value in SHIPPED.items() if "select_variables" not in name}
    assert len(StagedPlan.of(parse_plan(_job(TEMPLATE, unnamed)["plan"])).tables[0].columns) == 1
    with pytest.raises(Malformed, match=r"visits/q1: is missing: its inputs in the order"):
        _job(TEMPLATE.split(f'[train.columns."{HOSPITAL}"]')[0], unnamed)


def test_no_job_trains_boosted_trees() -> None:
    """Where the Level imports their claim, the job is refused with what an engine would need."""
    with pytest.raises(
        Malformed, match=r"--job: .*no clean room runs boosted trees \(Train_XGB\): .*proven sensitivity"
    ):
        _job(TEMPLATE, {"pipeline|1": TREES}, level=0)


@pytest.mark.parametrize("vault", ["vault.example", ""])
def test_a_key_id_of_two_providers_charges_both(vault: str) -> None:
    """By one of them alone a run would read the other's records without a charge on these."""
    kid, vaults = "datasets|1|key|properties|kid", (f"datasets|{place}|key|properties|endpoint" for place in range(3))
    shared = {kid: "HospitalKey", **dict.fromkeys(vaults, vault)}
    assert list(_job(TEMPLATE, contract=shared)["data"]) == [LAB, HOSPITAL]
    for left_out, lacks in ((LAB, "lab"), (HOSPITAL, "hospital")):
        alone = "\n".join(line for line in TEMPLATE.split("\n") if not line.startswith(f'"{left_out}" ='))
        with pytest.raises(Malformed, match=rf"^train.data: lacks a partition of did:web:{lacks}"):
            _job(alone, contract=shared)
