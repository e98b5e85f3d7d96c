"""DEPA's training stages, under every name and in every spelling of any release.

{"name":"Train_DL","config":{"is_private":true,"privacy_params":{"epsilon":1.0,"delta":0.01,"max_grad_norm":0.1},
 "batch_size":8,"total_epochs":1,"paths":{"input_dataset_path":"/tmp/joined.csv",...},"metrics":[...],...}}

The privacy parameters that a stage requests have four spellings:

    "privacy_params": {"epsilon": 1.0, "delta": 0.01, "max_grad_norm": 0.1}
    "privacy_params": {"epsilon_threshold": 1.0, ...}
    "epsilon_threshold": 1.0, "delta": 0.01, "max_grad_norm": 0.1
    "EPSILON": 1.0, "DELTA": 0.01, "MAX_GRAD_NORM": 0.1

A value in two spellings may contradict itself, and is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from ledger.mechanisms.mechanism import STEPS_MAX
from ledger.mechanisms.plan import BATCH_MAX, CLIPPING_MAX
from ledger.wire.exact_numbers import EPSILON_MAX
from policy.depa.contract.decimal_json import names_in, strings_in
from policy.depa.contract.field_reader import Fields
from policy.depa.contract.privacy_constraints import DELTA_MOST, LEAST
from policy.depa.contract.reasons import spelled
from policy.depa.pipeline.preprocessing import Exposure, exact_metrics, fitted
from policy.depa.pipeline.target import Target, read_target

DEEP: Final = ("Train_DL", "PrivateTrain", "Train")
TREES: Final = ("Train_XGB",)
NAMES: Final = (*DEEP, *TREES)
_EPSILON: Final = ("epsilon", "epsilon_threshold", "EPSILON")
_DELTA: Final = ("delta", "DELTA")
_CLIPPING: Final = ("max_grad_norm", "MAX_GRAD_NORM")
_SPELLINGS: Final = (*_EPSILON, *_DELTA, *_CLIPPING)
_INNER: Final = "privacy_params"
_MECHANISM: Final = "gaussian"
_SEPARATORS: Final = re.compile(r"[^a-z0-9]")
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
    *_SPELLINGS,
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
_UNREAD: Final = ("loss_config", "model_config", "optimizer", "scheduler", "threshold")
"""Of DEPA's own trainer. A loss, a layer or a scheduler may compute with several records or with a metric of them."""
_PATHS: Final = ("base_model_path", "input_dataset_path", "saved_weights_path", "trained_model_output_path")


@dataclass(frozen=True, slots=True)
class RequestedPrivacy:
    """The parameters of a stage; None if they are absent, or a reason explains why.

    Attributes:
        stated: whether the stage states an ε.
        path: the place of the ε; ``delta_path`` likewise.
    """

    epsilon: Fraction | None
    delta: Fraction | None
    clipping: Fraction | None
    stated: bool
    path: str
    delta_path: str


@dataclass(frozen=True, slots=True)
class Training:
    """One parsed training stage; a field is None if a reason explains why.

    Attributes:
        trees: whether it boosts trees; else it is DP-SGD.
        private: whether it states that it trains with privacy.
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
    target: Target
    exposures: tuple[Exposure, ...]


def read_training(name: str, fields: Fields) -> Training:
    """A training stage's config; every error becomes a reason."""
    trees = name in TREES
    fields.only((*_BOTH, *_SPELLINGS) if trees else (*_DEEP, *_BEFORE_2025))
    requested = _requested_privacy(fields, trees=trees)
    private = _private(name, fields, stated=requested.stated)
    if private:
        _require(fields, trees=trees)
    else:
        fields.refuse("stage_not_private", "is_private")
    _check_layers(fields)
    fields.unread(*_UNREAD)
    paths = fields.inner("paths") if fields.has("paths") else fields
    if paths is not fields:
        paths.only(_PATHS)
    return Training(
        path=fields.path,
        trees=trees,
        private=private,
        privacy=requested,
        batch=None if trees else fields.whole("batch_size", 1, BATCH_MAX),
        epochs=None if trees else fields.whole("total_epochs", 1, STEPS_MAX),
        input=paths.text("input_dataset_path"),
        target=read_target(fields),
        exposures=(*fitted(fields, trees=trees), *exact_metrics(fields)),
    )


def _private(name: str, fields: Fields, *, stated: bool) -> bool:
    """Whether the stage is private: by ``is_private``, or in older spellings without it, by its name or its ε."""
    if fields.has("is_private"):
        return fields.flag("is_private") is True and name != "Train"
    before = not fields.has("privacy_params") and not fields.has("paths")
    return name == "PrivateTrain" or (name == "Train_DL" and before and stated)


def _check_layers(fields: Fields) -> None:
    """A batch norm makes each record's gradient depend on the others in its batch: clipping then bounds nothing."""
    config, at = fields.value.get("model_config"), fields.at("model_config")
    for path, text in strings_in(config, at):
        if _names_batch_norm(text):
            fields.reasons.refuse("layer_crosses_records", path, text)
    for path, name, held in names_in(config, at):
        if _names_batch_norm(name) and held is not None and held is not False:
            fields.reasons.refuse("layer_crosses_records", path, held)


def _names_batch_norm(text: str) -> bool:
    return "batchnorm" in _SEPARATORS.sub("", text.lower())


def _requested_privacy(fields: Fields, *, trees: bool) -> RequestedPrivacy:
    """Read the parameters of a stage; boosted trees need neither δ nor a clipping norm, since their ε is pure."""
    places = [fields]
    if fields.value.get(_INNER) is not None:
        inner = fields.inner(_INNER)
        inner.only((*_SPELLINGS, "clip_value", "mechanism"))
        places.insert(0, inner)
    epsilon, delta, clipping = (_find(places, names) for names in (_EPSILON, _DELTA, _CLIPPING))
    none = trees and (delta is None or delta[0].value[delta[1]] is None)
    norm = _number(clipping, CLIPPING_MAX)
    _hold_to_plan(places[0], norm, trees=trees)
    return RequestedPrivacy(
        epsilon=_number(epsilon, EPSILON_MAX),
        delta=None if none else _number(delta, DELTA_MOST),
        clipping=norm,
        stated=epsilon is not None,
        path=_path(fields, epsilon, "epsilon"),
        delta_path=_path(fields, delta, "delta"),
    )


def _hold_to_plan(inner: Fields, norm: Fraction | None, *, trees: bool) -> None:
    """Refuse another mechanism or another clipping than the plan's; a plan of trees has neither, so they are unread."""
    mechanism = inner.value.get("mechanism")
    if mechanism is not None and not (isinstance(mechanism, str) and mechanism.lower() == _MECHANISM):
        inner.refuse("value_unknown", "mechanism", f"one of {_MECHANISM}")
    elif trees:
        inner.unread("mechanism")
    if trees:
        inner.unread("clip_value")
    elif inner.value.get("clip_value") is not None:
        value = inner.number("clip_value", LEAST, CLIPPING_MAX)
        if value is not None and value != norm:
            inner.refuse("clipping_differs", "clip_value", f"max_grad_norm is {spelled(norm)}")


def _require(fields: Fields, *, trees: bool) -> None:
    """Report the parameters that a private stage must state and does not."""
    names = ("epsilon",) if trees else ("epsilon", "delta", "max_grad_norm")
    spellings = {"epsilon": _EPSILON, "delta": _DELTA, "max_grad_norm": _CLIPPING}
    inner = fields.value.get(_INNER)
    for name in names:
        held = {*fields.value, *(inner if isinstance(inner, dict) else ())}
        if not held.intersection(spellings[name]):
            fields.reasons.refuse("field_missing", f"{fields.at(_INNER)}.{name}")


def _find(places: list[Fields], names: tuple[str, ...]) -> tuple[Fields, str] | None:
    matches = [(place, name) for place in places for name in names if place.has(name)]
    for place, name in matches[1:]:
        first = matches[0][0].at(matches[0][1])
        place.reasons.refuse("field_twice", place.at(name), place.value[name], f"also {first}")
    return matches[0] if matches else None


def _number(match: tuple[Fields, str] | None, most: Fraction) -> Fraction | None:
    return match[0].number(match[1], LEAST, most) if match else None


def _path(fields: Fields, match: tuple[Fields, str] | None, name: str) -> str:
    return match[0].at(match[1]) if match else f"{fields.at(_INNER)}.{name}"
