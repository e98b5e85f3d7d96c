"""DEPA pipelines: every stage gated by name, every spelling read, every exposure told and refused by its Level."""

from typing import Any

import pytest

from tests.factories.depa_documents import CONTRACT, PIPELINE, TRAIN, TREES, VISITS, checked, refusals, warnings
from tests.factories.path_changes import GONE, changed

C = "pipeline|1|config"
AT = "pipeline.pipeline[1].config"
J = "pipeline|0|config"
JOINED = "pipeline.pipeline[0].config"
PARAMS = f"{C}|privacy_params"


def _trees(**params: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    return changed(TREES, {f"config|privacy_params|{name}": value for name, value in params.items()})


FAULTS: list[tuple[dict[str, Any], str, str]] = [
    # Stages.
    ({"pipeline|1|name": "NoSuch"}, "stage_unknown", "pipeline.pipeline[1].name"),
    ({"pipeline|1|name": "train_dl"}, "stage_unknown", "pipeline.pipeline[1].name"),
    ({"pipeline|1|name": "LLM_Finetune"}, "stage_unsupported", "pipeline.pipeline[1].name"),
    ({"pipeline|1|name": 7}, "field_type", "pipeline.pipeline[1].name"),
    ({"pipeline|1|name": GONE}, "field_missing", "pipeline.pipeline[1].name"),
    ({"pipeline|1|config": GONE}, "field_missing", AT),
    ({"pipeline|1|when": "now"}, "field_unknown", "pipeline.pipeline[1].when"),
    ({"pipeline": []}, "list_length", "pipeline.pipeline"),
    ({"pipeline": GONE}, "field_missing", "pipeline.pipeline"),
    ({"pipeline": PIPELINE["pipeline"][:1]}, "training_missing", "pipeline.pipeline"),
    ({"pipeline": PIPELINE["pipeline"] * 17}, "list_length", "pipeline.pipeline"),
    ({"version": 1}, "field_unknown", "pipeline.version"),
    # Privacy.
    ({f"{C}|is_private": False}, "stage_not_private", f"{AT}.is_private"),
    ({f"{C}|is_private": GONE}, "stage_not_private", f"{AT}.is_private"),
    ({f"{C}|is_private": "true"}, "field_type", f"{AT}.is_private"),
    ({f"{C}|is_private": 1}, "stage_not_private", f"{AT}.is_private"),
    ({"pipeline|1|name": "Train"}, "stage_not_private", f"{AT}.is_private"),
    ({f"{PARAMS}|epsilon": -5}, "number_out_of_range", f"{AT}.privacy_params.epsilon"),
    ({f"{PARAMS}|epsilon": None}, "number_null", f"{AT}.privacy_params.epsilon"),
    ({f"{PARAMS}|epsilon": True}, "field_type", f"{AT}.privacy_params.epsilon"),
    ({f"{PARAMS}|epsilon": " 1"}, "number_spelling", f"{AT}.privacy_params.epsilon"),
    # As DEPA's own policy, which compares numbers alone.
    ({f"{PARAMS}|epsilon": "2.0"}, "number_spelling", f"{AT}.privacy_params.epsilon"),
    ({f"{PARAMS}|delta": "0.0001"}, "number_spelling", f"{AT}.privacy_params.delta"),
    ({f"{C}|total_epochs": "2"}, "number_spelling", f"{AT}.total_epochs"),
    ({f"{PARAMS}|epsilon": GONE}, "field_missing", f"{AT}.privacy_params.epsilon"),
    ({PARAMS: None}, "field_missing", f"{AT}.privacy_params.epsilon"),
    ({PARAMS: [1]}, "field_type", f"{AT}.privacy_params"),
    ({f"{PARAMS}|epsilon": 2.0000001}, "run_above_contract", f"{AT}.privacy_params.epsilon"),
    ({f"{PARAMS}|delta": 1}, "number_out_of_range", f"{AT}.privacy_params.delta"),
    ({f"{PARAMS}|delta": None}, "number_null", f"{AT}.privacy_params.delta"),
    ({f"{PARAMS}|delta": GONE}, "field_missing", f"{AT}.privacy_params.delta"),
    ({f"{PARAMS}|delta": 0.010001}, "delta_above_contract", f"{AT}.privacy_params.delta"),
    ({f"{PARAMS}|max_grad_norm": GONE}, "field_missing", f"{AT}.privacy_params.max_grad_norm"),
    ({f"{PARAMS}|max_grad_norm": 0}, "number_out_of_range", f"{AT}.privacy_params.max_grad_norm"),
    ({f"{PARAMS}|sigma": 1}, "field_unknown", f"{AT}.privacy_params.sigma"),
    ({f"{PARAMS}|epsilon_threshold": 1}, "field_twice", f"{AT}.privacy_params.epsilon_threshold"),
    ({f"{C}|EPSILON": 1}, "field_twice", f"{AT}.EPSILON"),
    ({f"{C}|delta": 1}, "field_twice", f"{AT}.delta"),
    ({f"{C}|batch_size": 0}, "number_out_of_range", f"{AT}.batch_size"),
    ({f"{C}|batch_size": 8.5}, "number_out_of_range", f"{AT}.batch_size"),
    ({f"{C}|batch_size": True}, "field_type", f"{AT}.batch_size"),
    ({f"{C}|total_epochs": GONE}, "field_missing", f"{AT}.total_epochs"),
    ({f"{C}|poisson": True}, "field_unknown", f"{AT}.poisson"),
    (
        {f"{C}|dataset_config|transforms": {"augment": {"mixup": True}}},
        "field_type",
        f"{AT}.dataset_config.transforms.augment",
    ),
    ({f"{C}|dataset_config|transforms": {"augment": "mixup"}}, "field_type", f"{AT}.dataset_config.transforms.augment"),
    ({f"{C}|model_config": {"l": {"class": "nn.BatchNorm2d"}}}, "layer_crosses_records", f"{AT}.model_config.l.class"),
    ({f"{C}|model_config": {"l": ["F.batch_norm"]}}, "layer_crosses_records", f"{AT}.model_config.l[0]"),
    (
        {f"{C}|model_config": {"l": [{"batch_norm": True}]}},
        "layer_crosses_records",
        f"{AT}.model_config.l[0].batch_norm",
    ),
    ({f"{C}|model_config": {"Batch-Norm 1": {}}}, "layer_crosses_records", f'{AT}.model_config["Batch-Norm 1"]'),
    # The plan's mechanism and clipping norm.
    *(
        ({f"{PARAMS}|mechanism": value}, "value_unknown", f"{AT}.privacy_params.mechanism")
        for value in ("laplace", "none", "", 1, ["gaussian"], False)
    ),
    ({"pipeline|1": _trees(mechanism="none")}, "value_unknown", f"{AT}.privacy_params.mechanism"),
    ({f"{C}|mechanism": "gaussian"}, "field_unknown", f"{AT}.mechanism"),
    ({f"{PARAMS}|clip_value": 1e9}, "clipping_differs", f"{AT}.privacy_params.clip_value"),
    ({f"{PARAMS}|clip_value": 0.50001}, "clipping_differs", f"{AT}.privacy_params.clip_value"),
    (
        {f"{PARAMS}|clip_value": 0.5, f"{PARAMS}|max_grad_norm": GONE},
        "clipping_differs",
        f"{AT}.privacy_params.clip_value",
    ),
    ({f"{PARAMS}|clip_value": "0.5"}, "number_spelling", f"{AT}.privacy_params.clip_value"),
    ({f"{PARAMS}|clip_value": 0}, "number_out_of_range", f"{AT}.privacy_params.clip_value"),
    ({f"{PARAMS}|CLIP_VALUE": 0.5}, "field_unknown", f"{AT}.privacy_params.CLIP_VALUE"),
    ({f"{C}|clip_value": 0.5}, "field_unknown", f"{AT}.clip_value"),
    # What is trained on.
    ({f"{C}|paths|input_dataset_path": "/data/other.csv"}, "input_unknown", AT),
    ({f"{C}|paths|input_dataset_path": "/mnt/remote/lab/../x"}, "input_unknown", AT),
    ({f"{C}|paths|input_dataset_path": GONE}, "field_missing", f"{AT}.paths.input_dataset_path"),
    ({f"{J}|datasets|0|mount_path": "/", f"{C}|paths|input_dataset_path": "/etc/x"}, "input_unknown", AT),
    ({"pipeline|0": TRAIN, "pipeline|1": PIPELINE["pipeline"][0]}, "input_unknown", JOINED),
    ({f"{J}|datasets|0|id": "other"}, "dataset_not_in_contract", f"{JOINED}.datasets[0].id"),
    ({f"{J}|datasets|0|provider": "lab"}, "provider_differs", f"{JOINED}.datasets[0].provider"),
    # Options of a data set.
    *(
        ({f"{C}|dataset_config|{option}": {name: True}}, "field_unknown", f"{AT}.dataset_config.{option}.{name}")
        for option, name in (
            ("filtering", "drop_outliers"),
            ("text_config", "build_vocab"),
            ("image_config", "equalise"),
            ("pairing", "balance"),
        )
    ),
    ({f"{C}|dataset_config|filtering": "outliers"}, "field_type", f"{AT}.dataset_config.filtering"),
    # Joins.
    ({f"{J}|rows_per_principal_max": GONE}, "join_unbounded", JOINED),
    ({f"{J}|rows_per_principal_max": 0}, "number_out_of_range", f"{JOINED}.rows_per_principal_max"),
    ({f"{J}|rows_per_principal_max": 65}, "number_out_of_range", f"{JOINED}.rows_per_principal_max"),
    ({f"{J}|joined_dataset|joining_key": "name"}, "join_query", f"{JOINED}.joined_dataset.joining_query"),
    ({f"{J}|joined_dataset|joining_query": GONE}, "field_missing", f"{JOINED}.joined_dataset.joining_query"),
    ({f"{J}|datasets|1|name": "others"}, "join_query", f"{JOINED}.joined_dataset.joining_query"),
    ({f"{J}|udf": "f"}, "field_unknown", f"{JOINED}.udf"),
    # Preprocessing that cannot be read.
    (
        {f"{C}|dataset_config|preprocessing": {"scaler": "quantile"}},
        "value_unknown",
        f"{AT}.dataset_config.preprocessing.scaler",
    ),
    ({f"{C}|dataset_config|missing_strategy": "mean"}, "value_unknown", f"{AT}.dataset_config.missing_strategy"),
    ({f"{C}|dataset_config|encoder": "target"}, "field_unknown", f"{AT}.dataset_config.encoder"),
    ({f"{C}|metrics": "accuracy"}, "field_type", f"{AT}.metrics"),
]
EXPOSURES: list[tuple[dict[str, Any], str, str]] = [
    *(
        (
            {f"{C}|dataset_config|preprocessing": {"scaler": scaler}},
            "preprocessing_fitted",
            f"{AT}.dataset_config.preprocessing.scaler",
        )
        for scaler in ("standard", "minmax", "robust")
    ),
    (
        {f"{C}|dataset_config|missing_strategy": "forward_fill"},
        "preprocessing_fitted",
        f"{AT}.dataset_config.missing_strategy",
    ),
    ({f"{C}|dataset_config|splits|stratify": True}, "preprocessing_fitted", f"{AT}.dataset_config.splits.stratify"),
    (
        {f"{C}|dataset_config|transforms": {"normalize": True}},
        "preprocessing_fitted",
        f"{AT}.dataset_config.transforms.normalize",
    ),
    ({f"{C}|metrics": ["accuracy", {"name": "roc_auc", "params": {}}]}, "metrics_exact", f"{AT}.metrics"),
    ({"pipeline|1": TREES}, "preprocessing_fitted", AT),
]
WITHIN: list[dict[str, Any]] = [
    {f"{C}|dataset_config|preprocessing": {"scaler": "normalizer"}},
    {f"{C}|dataset_config|preprocessing": {"scaler": None}},
    {f"{C}|dataset_config|missing_strategy": "drop"},
    {f"{C}|dataset_config|splits|stratify": False},
    {f"{C}|dataset_config|transforms": {"normalize": False, "augment": True}},
    {f"{C}|metrics": GONE},
    {f"{C}|model_config": {"l": {"class": "nn.GroupNorm", "batch_norm": False, "use_batch_norm": None}}},
    {f"{PARAMS}|mechanism": "Gaussian", f"{PARAMS}|clip_value": 0.5},
    {f"{PARAMS}|mechanism": None, f"{PARAMS}|clip_value": None},
    {f"{C}|dataset_config|filtering": {}, f"{C}|dataset_config|text_config": None},
    {f"{C}|paths|input_dataset_path": "/mnt/remote/lab/t.csv"},
    {f"{J}|datasets|0|provider": CONTRACT["datasets"][0]["provider"]},
    {"pipeline|0|name": "Join"},
    {f"{J}|joined_dataset|joined_dataset": "joined.csv", f"{J}|joined_dataset|model_output_folder": "/data/"},
    {
        "pipeline|0": {
            "name": "DirectoryJoin",
            "config": {
                "datasets": [{"id": VISITS, "name": "visits"}],
                "joined_dataset": "/data/joined.csv",
                "rows_per_principal_max": 2,
            },
        }
    },
]


@pytest.mark.parametrize(("change", "code", "field"), FAULTS)
def test_each_fault_is_refused_by_name_and_place(change: dict[str, Any], code: str, field: str) -> None:
    """One thing wrong: its code at its field is among the refusals, at every Level, and nothing is imported."""
    for level in (0, 2):
        found = checked(None, change, level=level)
        assert (code, field) in refusals(found)
        assert (found.code.exit_code, found.contract) == (3, None)


@pytest.mark.parametrize(("change", "code", "field"), EXPOSURES)
def test_each_exposure_is_warned_of_at_level_0_and_refused_above(change: dict[str, Any], code: str, field: str) -> None:
    """What is fitted on governed data or shown exactly has no price: only Level 0 goes on with a warning."""
    assert (code, field) in warnings(checked(None, change, level=0))
    assert refusals(checked(None, change, level=0)) == []
    for level in (1, 2):
        assert (code, field) in refusals(checked(None, change, level=level))


@pytest.mark.parametrize("change", WITHIN)
def test_each_bound_itself_is_within(change: dict[str, Any]) -> None:
    """The near side of each edge refuses nothing at any Level."""
    for level in (0, 1, 2):
        assert refusals(checked(None, change, level=level)) == []


SHIPPED: list[str] = ["loss_config.class", "optimizer.name", "optimizer.params.lr"]
"""What no one reads of the scene as it is."""
UNREAD: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    (
        {f"{C}|scheduler": {"name": "ReduceLROnPlateau", "params": {"patience": 1}}},
        ["scheduler.name", "scheduler.params.patience"],
    ),
    ({f"{C}|loss_config": {"class": "torch.nn.BCELoss", "custom": "x - x.mean(0)"}}, ["loss_config.custom"]),
    (
        {f"{C}|model_config": {"forward": [{"op": "mean", "dim": 0}]}},
        [f"model_config.forward[0].{one}" for one in ("op", "dim")],
    ),
    ({f"{C}|threshold": "auto"}, ["threshold"]),
    ({f"{C}|dataset_config|format": {"dedupe": True}}, ["dataset_config.format.dedupe"]),
    ({f"{C}|dataset_config|structure": {"pairs": 2}}, ["dataset_config.structure.pairs"]),
    ({f"{C}|dataset_config|feature_columns": {"select_k_best": 10}}, ["dataset_config.feature_columns.select_k_best"]),
    ({f"{C}|dataset_config|feature_columns": ["age"]}, []),
    (
        {f"{C}|dataset_config|filtering": {"filter_empty_targets": False}},
        ["dataset_config.filtering.filter_empty_targets"],
    ),
    ({f"{C}|dataset_config|text_config": {"encoding": "utf-8"}}, ["dataset_config.text_config.encoding"]),
    ({f"{C}|dataset_config|pairing": {"input_pattern": "*_a.png"}}, ["dataset_config.pairing.input_pattern"]),
    ({f"{C}|dataset_config|fill_value": "mean"}, ["dataset_config.fill_value"]),
    ({f"{PARAMS}|mechanism": "gaussian"}, []),
    (
        {"pipeline|1": _trees(mechanism="gaussian", clip_value=1.0)},
        [
            "privacy_params.mechanism",
            "privacy_params.clip_value",
            "model_config.n_estimators",
            "model_config.scale_pos_weight",
        ],
    ),
]


@pytest.mark.parametrize(("change", "fields"), UNREAD)
def test_what_no_price_depends_on_is_warned_of_by_its_place(change: dict[str, Any], fields: list[str]) -> None:
    """It refuses nothing, and no import is without its name."""
    found = checked(None, change, level=0)
    assert refusals(found) == []
    unread = [field for code, field in warnings(found) if code == "term_unread" and field.startswith("pipeline")]
    shipped = [] if "pipeline|1" in change else SHIPPED
    assert sorted(unread) == sorted(f"{AT}.{field}" for field in [*fields, *shipped])


SPELLINGS: list[dict[str, Any]] = [
    {"privacy_params": {"epsilon": 2.0, "delta": 0.0001, "max_grad_norm": 0.5}, "is_private": True},
    {"privacy_params": {"epsilon_threshold": 2, "delta": 1e-4, "max_grad_norm": 0.5}, "is_private": True},
    {"privacy_params": {"EPSILON": 2, "DELTA": 1e-4, "MAX_GRAD_NORM": 5e-1}, "is_private": True},
    {"epsilon_threshold": 2.0, "delta": 0.0001, "max_grad_norm": 0.5, "is_private": True},
    {"EPSILON": 2.0, "DELTA": 0.0001, "MAX_GRAD_NORM": 0.5, "is_private": True},
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_every_spelling_means_the_same(spelling: dict[str, Any]) -> None:
    """Four spellings: one plan."""
    rest = {name: value for name, value in TRAIN["config"].items() if name not in {"privacy_params", "is_private"}}
    found = checked(None, {"pipeline|1|config": {**rest, **spelling}}, records=500)
    assert refusals(found) == []
    assert found.priced is not None
    assert found.priced.whole.to_json() == (checked(records=500).charge or {})["plan"]


def test_stages_of_2024_are_read() -> None:
    """``PrivateTrain`` had no word for privacy but its name, and its paths stood flat."""
    before = {
        "input_dataset_path": "/data/joined.csv",
        "batch_size": 50,
        "total_epochs": 2,
        "max_grad_norm": 0.5,
        "epsilon_threshold": 1.0,
        "delta": 0.01,
        "sample_size": 60000,
        "test_train_split": 0.2,
    }
    assert refusals(checked(None, {"pipeline|1": {"name": "PrivateTrain", "config": before}})) == []
    assert refusals(checked(None, {"pipeline|1": {"name": "Train", "config": before}})) == [
        ("stage_not_private", f"{AT}.is_private")
    ]


def test_a_stage_before_the_last_is_gated_too() -> None:
    """A non-private stage before a private one is refused where it stands."""
    loose = changed(TRAIN, {"config|is_private": False})
    found = checked(None, {"pipeline|1": loose, "pipeline|2": TRAIN})
    assert refusals(found) == [("stage_not_private", f"{AT}.is_private")]


def test_two_private_stages_are_one_run() -> None:
    """Each within the contract, together above it; of 0.9 and 1.1, exactly 2, they are within."""
    twice = changed(TRAIN, {"config|privacy_params|epsilon": 1.5})
    assert refusals(checked(None, {"pipeline|1": twice, "pipeline|2": twice})) == [
        ("run_above_contract", "pipeline.pipeline")
    ]
    parts = [changed(TRAIN, {"config|privacy_params|epsilon": part}) for part in (0.9, 1.1)]
    assert refusals(checked(None, {"pipeline|1": parts[0], "pipeline|2": parts[1]})) == []


def test_the_reference_trainer_is_warned_of() -> None:
    """Its replica without privacy is in no file, so every import says it."""
    assert ("reference_trainer", "pipeline.pipeline") in warnings(checked())


def test_a_bound_reported_beside_the_files_admits_a_join() -> None:
    """The TDPs' word stands in for the field; of two bounds the greater is charged."""
    unbounded = {f"{J}|rows_per_principal_max": GONE}
    assert refusals(checked(None, unbounded, rows=1)) == []
    bounds = [(GONE, 3), (2, 3), (3, 2), (3, None)]
    for said, reported in bounds:
        found = checked(
            {
                "constraints|0|privacy": [
                    {"dataset": one["id"], "epsilon_threshold": "128", "delta": "0.01"} for one in CONTRACT["datasets"]
                ]
            },
            {f"{J}|rows_per_principal_max": said, "pipeline|1": TREES},
            rows=reported,
            level=0,
        )
        assert found.charge is not None
        assert found.charge["unit_records_max"] == 3
