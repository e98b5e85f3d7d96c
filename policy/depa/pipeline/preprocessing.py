"""What a training stage computes from governed data beside training, so that a Level can refuse it.

A scaler's mean, a stratified split and a value filled in from the row before are functions of the whole data set; a
confusion matrix on held-out governed records is an exact release. None of them has a price.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from policy.depa.contract.decimal_json import content_of, strings_in
from policy.depa.contract.field_reader import Fields
from policy.depa.pipeline.mounts import leaves_folder

METRICS_MAX: Final = 100
TREES_NEED: Final = (
    "no clean room runs boosted trees (Train_XGB): a private engine needs splits and leaf sums of proven sensitivity,"
    " noise from a cryptographic generator, public bounds of features and a charge for each tree, and no library that"
    " is kept up proves them"
)
FITTED_SCALERS: Final = ("minmax", "robust", "standard")
_SCALERS: Final = (*FITTED_SCALERS, "normalizer")
_FILLED: Final = ("backward_fill", "forward_fill")
_MISSING: Final = (*_FILLED, "drop", "fill")
_DATASET: Final = (
    "data_type",
    "feature_columns",
    "features_key",
    "file_pattern",
    "fill_value",
    "filtering",
    "format",
    "image_config",
    "missing_strategy",
    "pairing",
    "preprocessing",
    "splits",
    "structure",
    "structure_type",
    "target_variable",
    "targets_key",
    "text_config",
    "transforms",
    "type",
)

_OPTIONS: Final = {
    "filtering": ("filter_empty_targets",),
    "image_config": ("binarize", "binarize_threshold", "convert_to_pil", "grayscale", "to_tensor", "use_cv2"),
    "pairing": ("folder_pattern", "identifier_extraction", "input_pattern", "target_pattern"),
    "text_config": ("encoding",),
}
"""The options of DEPA's trainer that choose or change each record by itself. Another one may look at all of them."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """A result shown of, or fitted on, governed data: the reason's code, place, value, and explanation."""

    code: str
    field: str
    value: object
    text: str


def fitted(fields: Fields, *, trees: bool) -> tuple[Exposure, ...]:
    """What a stage fits on the data that it trains on; errors of form become reasons."""
    exposures = list(_of_dataset(fields.inner("dataset_config"))) if fields.has("dataset_config") else []
    return (*exposures, *_of_trees(fields)) if trees else tuple(exposures)


def exact_metrics(fields: Fields) -> tuple[Exposure, ...]:
    """The exact results that a stage outputs."""
    if not fields.has("metrics"):
        return ()
    metrics = [_metric(item) for item in fields.items("metrics", METRICS_MAX, least=0)]
    return (Exposure("metrics_exact", fields.at("metrics"), ", ".join(metrics), ""),) if metrics else ()


def _of_dataset(fields: Fields) -> Iterator[Exposure]:
    fields.only(_DATASET)
    _read_options(fields)
    _check_patterns(fields)
    yield from _scaler(fields)
    if fields.value.get("missing_strategy") is not None:
        strategy = fields.one_of("missing_strategy", _MISSING)
        if strategy in _FILLED:
            yield _fit(fields, "missing_strategy", "takes a value from another record")
    if fields.has("splits"):
        splits = fields.inner("splits")
        splits.only(("random_state", "stratify", "test", "train", "val"))
        if splits.has("stratify") and splits.flag("stratify") is not False:
            yield _fit(splits, "stratify", "a record's split depends on the labels of others")
    if fields.value.get("transforms") is not None:
        transforms = fields.inner("transforms")
        transforms.only(("augment", "normalize"))
        if transforms.value.get("augment") is not None:
            transforms.flag("augment")  # options of it may mix records, as mixup does
        if transforms.has("normalize") and transforms.flag("normalize") is not False:
            yield _fit(transforms, "normalize", "nothing says that the mean is public")


def _read_options(fields: Fields) -> None:
    """Name the options that no price depends on, and refuse others."""
    for option, known in _OPTIONS.items():
        if content_of(fields.value.get(option), ""):
            fields.inner(option).only(known)
            fields.unread(option)
    fields.unread("format", "structure", "structure_type")
    if isinstance(fields.value.get("feature_columns"), dict):  # a rule that chooses columns, and no list of them
        fields.unread("feature_columns")
    if isinstance(fields.value.get("fill_value"), str):  # a word such as "mean" is a constant to DEPA's trainer
        fields.unread("fill_value")


def _check_patterns(fields: Fields) -> None:
    """Refuse patterns that lead to other folders."""
    for name in ("file_pattern", "pairing"):
        for path, pattern in strings_in(fields.value.get(name), fields.at(name)):
            if leaves_folder(pattern):
                fields.reasons.refuse("input_unknown", path, pattern)


def _scaler(fields: Fields) -> Iterator[Exposure]:
    if fields.value.get("preprocessing") is None:
        return
    inner = fields.inner("preprocessing")
    inner.only(("scaler",))
    if inner.value.get("scaler") is None:
        return
    if inner.one_of("scaler", _SCALERS) in FITTED_SCALERS:
        yield _fit(inner, "scaler", "its location and scale are taken from the records")


def _of_trees(fields: Fields) -> Iterator[Exposure]:
    """DEPA's trainer takes the bounds of features from the records, and class weights unless they are given."""
    yield Exposure(
        "preprocessing_fitted", fields.path, None, f"bounds of features are taken from the records; {TREES_NEED}"
    )
    model = fields.value.get("model_config")
    if not (isinstance(model, dict) and model.get("scale_pos_weight") is not None):
        text = "scale_pos_weight is taken from the labels"
        yield Exposure("preprocessing_fitted", fields.at("model_config"), None, text)


def _fit(fields: Fields, name: str, text: str) -> Exposure:
    return Exposure("preprocessing_fitted", fields.at(name), fields.value[name], text)


def _metric(item: Any) -> str:  # noqa: ANN401 - JSON
    name = item.get("name") if isinstance(item, dict) else item
    return name if isinstance(name, str) else "unnamed"
