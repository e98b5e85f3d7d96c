"""DEPA's training stages, under every name and in every spelling that was ever shipped.

{"name":"Train_DL","config":{"is_private":true,"privacy_params":{"epsilon":1.0,"delta":0.01,"max_grad_norm":0.1},
 "batch_size":8,"total_epochs":1,"paths":{"input_dataset_path":"/tmp/joined.csv",...},"metrics":[...],...}}
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.mechanisms.mechanism import STEPS_MAX
from ledger.mechanisms.plan import BATCH_MAX
from policy.depa.contract.decimal_json import strings_in
from policy.depa.contract.field_reader import Fields
from policy.depa.pipeline.preprocessing import Exposure, exact_metrics, fitted
from policy.depa.pipeline.privacy_params import SPELLINGS, RequestedPrivacy, read_requested, require

DEEP: Final = ("Train_DL", "PrivateTrain", "Train")
TREES: Final = ("Train_XGB",)
NAMES: Final = (*DEEP, *TREES)
_BOTH: Final = (
    "dataset_config",
    "is_private",
    "metrics",
    "model_config",
    "paths",
    "privacy_params",
    "task_type",
    "threshold",
)
_DEEP: Final = (
    *_BOTH,
    *SPELLINGS,
    "batch_size",
    "device",
    "loss_config",
    "model_type",
    "optimizer",
    "scheduler",
    "total_epochs",
)
_BEFORE_2025: Final = (
    "input_dataset_path",
    "sample_size",
    "saved_model_optimizer",
    "saved_model_path",
    "saved_weights_path",
    "target_variable",
    "test_train_split",
    "trained_model_output_path",
)
_PATHS: Final = ("base_model_path", "input_dataset_path", "saved_weights_path", "trained_model_output_path")


@dataclass(frozen=True, slots=True)
class Training:
    """One training stage as read; None where a reason says why.

    Attributes:
        trees: whether it boosts trees; else it is DP-SGD.
        private: whether it says that it trains with privacy.
        privacy: the parameters that it requests, of which trees may lack δ and the clipping norm.
        exposures: what else it would show of the data, without privacy.
    """

    path: str
    trees: bool
    private: bool
    privacy: RequestedPrivacy
    batch: int | None
    epochs: int | None
    input: str | None
    target: str | None
    exposures: tuple[Exposure, ...]


def read_training(name: str, known: Fields) -> Training:
    """A training stage's config; every error is noted."""
    trees = name in TREES
    known.only((*_BOTH, *SPELLINGS) if trees else (*_DEEP, *_BEFORE_2025))
    requested = read_requested(known, trees=trees)
    private = _private(name, known, stated=requested.stated)
    if private:
        require(known, trees=trees)
    else:
        known.refuse("stage_not_private", "is_private")
    _check_layers(known)
    paths = known.inner("paths") if known.has("paths") else known
    if paths is not known:
        paths.only(_PATHS)
    return Training(
        path=known.path,
        trees=trees,
        private=private,
        privacy=requested,
        batch=None if trees else known.whole("batch_size", 1, BATCH_MAX),
        epochs=None if trees else known.whole("total_epochs", 1, STEPS_MAX),
        input=paths.text("input_dataset_path"),
        target=_target(known),
        exposures=(*fitted(known, trees=trees), *exact_metrics(known)),
    )


def _private(name: str, known: Fields, *, stated: bool) -> bool:
    """Whether it says so: by ``is_private``, or where no spelling of its day had that word, by its name or its ε."""
    if known.has("is_private"):
        return known.flag("is_private") is True and name != "Train"
    before = not known.has("privacy_params") and not known.has("paths")
    return name == "PrivateTrain" or (name == "Train_DL" and before and stated)


def _target(known: Fields) -> str | None:
    config = known.value.get("dataset_config")
    place = config if isinstance(config, dict) else known.value
    target = place.get("target_variable")
    return target if isinstance(target, str) else None


def _check_layers(known: Fields) -> None:
    """A batch norm makes each record's gradient depend on the others in its batch: clipping then bounds nothing."""
    for path, text in strings_in(known.value.get("model_config"), known.at("model_config")):
        if "batchnorm" in text.lower().replace("_", ""):
            known.reasons.refuse("layer_crosses_records", path, text)
