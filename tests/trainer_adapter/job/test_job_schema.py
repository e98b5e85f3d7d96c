"""The published schema of a job, and the reader: what one refuses in form, the other refuses."""

from __future__ import annotations

import copy
import json
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from api.demo.trainer import rendered
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.job.test_job_spec import GOOD
from trainer_adapter.job.job_schema import job_schema
from trainer_adapter.job.job_spec import Assignment, Job

PAGE = Path(__file__).parents[3] / "docs" / "job.schema.json"
CHECK = jsonschema.Draft202012Validator(job_schema())
JOB: dict[str, Any] = tomllib.loads(GOOD)
KINDS: tuple[Any, ...] = ("", 7, 0.5, True, [], {}, {"x": 1})
CHANGES: dict[str, dict[str, Any]] = {
    "a profile beside a service": {"profile": "bank.toml"},
    "a privacy target beside a plan": {"privacy": {"epsilon": "1", "steps": 1, "batch_size_expected": 1}},
    "momentum of adam": {"optimiser": "adam"},
    "another optimiser": {"optimiser": "lion"},
    "another loss": {"loss": "hinge"},
    "an accuracy of a regression": {"loss": "mean_squared_error", "accuracy_target": "0.5"},
    "fractions as floats": {"weight_decay": 0.1},
    "no outputs": {"outputs": 0},
    "a kind of preprocessing that is none": {"preprocessing": [{"kind": "fit"}]},
    "constants of nowhere": {"preprocessing": [{"kind": "normalise", "mean": "1", "deviation": "1"}]},
    "categories of nowhere": {"preprocessing": [{"kind": "one_hot", "column": 1, "values": [1]}]},
    "categories twice": {"preprocessing": [{"kind": "one_hot", "column": 1, "public": "a page", "values": [1, 1]}]},
    "categories of no column": {"preprocessing": [{"kind": "one_hot", "public": "a page", "values": [1]}]},
    "weights of the test set": {"preprocessing": [{"kind": "class_weights", "public": "test"}]},
    "a correction of no rank": {"lora": {"alpha": 8}},
    "a correction of every layer": {"lora": {"rank": 4, "modules": "all"}},
    "half of a way to resume": {"resume": {"key": "room.key"}},
    "recipients that are none": {"recipients": ["bank"]},
    "an empty list of charges": {"base": []},
    "a range without ends": {"data": {"claims[last]": "slices"}},
    "a range of a slice": {"data": {"did:web:h.example/claims/2026-W31[last 2]": "slices"}},
    "a dataset without a range": {"data": {"claims": "slices"}},
}
GOOD_CHANGES: dict[str, dict[str, Any]] = {
    "adam": {"optimiser": "adam", "momentum": None},
    "a regression": {"loss": "mean_squared_error", "weight_decay": "0.001", "outputs": 3},
    "a table": {"test": "test.csv", "schema": "schema.toml", "model": "linear"},
    "constants": {"preprocessing": [{"kind": "normalise", "mean": ["-0.5", 1], "deviation": "2", "public": "a page"}]},
    "categories": {"preprocessing": [{"kind": "one_hot", "column": 1, "public": "a page", "values": [1, -2]}]},
    "constants of the test set": {"preprocessing": [{"kind": "normalise", "public": "test"}]},
    "constants of a charge": {"preprocessing": [{"kind": "vocabulary", "charge": "run-0", "model": "m.safetensors"}]},
    "a correction of low rank": {"lora": {"rank": 4, "alpha": 8, "modules": ["query"]}, "model": "weights"},
    "the newest slices": {"data": {"claims[last 52]": "slices", "did:web:h.example/claims/2026-W01": "old.sealed"}},
    "slices from one to another": {"data": {"did:web:h.example/claims[2026-W31..2026-W43]": "slices"}},
    "everyone": {"recipients": "everyone", "base": ["run-0"], "unit_records_max": 2},
    "no job but an assignment": {"model": None, "learning_rate": None, "momentum": None, "test": None},
}


def _changed(changes: dict[str, Any]) -> dict[str, Any]:
    job = copy.deepcopy(JOB)
    job["train"] |= changes
    job["train"] = {name: value for name, value in job["train"].items() if value is not None}
    return job


def _reader_takes(folder: Path, job: dict[str, Any]) -> bool:
    path = folder / "job.toml"
    path.write_text(_toml(job), encoding="utf-8")
    try:
        (Job if "model" in job["train"] else Assignment).load(path)
    except Malformed:
        return False
    return True


def _toml(job: dict[str, Any]) -> str:
    lines = [f"{name} = {_value(value)}" for name, value in job["train"].items()]
    return "\n".join([f"v = {_value(job['v'])}", "[train]", *lines])


def _value(value: Any) -> str:  # noqa: ANN401 - any TOML value
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)} = {_value(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    return json.dumps(value)


def test_what_is_published_is_the_schema() -> None:
    """``epsilon job schema > docs/job.schema.json`` would change nothing, and it is a schema."""
    assert json.loads(PAGE.read_text(encoding="utf-8")) == job_schema()
    jsonschema.Draft202012Validator.check_schema(job_schema())


@pytest.mark.parametrize("name", GOOD_CHANGES)
def test_a_good_job_is_good_to_both(tmp_path: Path, name: str) -> None:
    """One of each kind."""
    job = _changed(GOOD_CHANGES[name])
    assert CHECK.is_valid(job), [error.message for error in CHECK.iter_errors(job)]
    assert _reader_takes(tmp_path, job)


@pytest.mark.parametrize("name", CHANGES)
def test_a_fault_of_form_is_one_to_both(tmp_path: Path, name: str) -> None:
    """One change each."""
    job = _changed(CHANGES[name])
    assert not CHECK.is_valid(job)
    assert not _reader_takes(tmp_path, job)


@pytest.mark.parametrize("field", [*JOB["train"], "accuracy_target", "optimiser", "loss", "schema", "outputs"])
def test_another_kind_of_value_is_refused_by_both(tmp_path: Path, field: str) -> None:
    """In each field every kind of value but its own."""
    old = JOB["train"].get(field, 1 if field == "outputs" else "text")
    for kind in KINDS:
        if type(kind) is type(old) and kind:
            continue
        job = _changed({field: kind})
        assert not CHECK.is_valid(job), kind
        assert not _reader_takes(tmp_path, job), kind


@pytest.mark.parametrize("field", JOB["train"])
def test_a_missing_field_is_missed_by_both(tmp_path: Path, field: str) -> None:
    """But for the model, without which it is an assignment with fields that belong to none."""
    job = _changed({field: None})
    if field == "model":
        assert not _reader_takes(tmp_path, job)
        return
    assert not CHECK.is_valid(job)
    assert not _reader_takes(tmp_path, job)


def test_the_demonstration_s_jobs_have_the_form() -> None:
    """As it writes them."""
    names = ("accuracy_target", "actor", "contract", "data", "id", "issuer", "log", "partition", "service", "slug")
    values = dict.fromkeys(names, "x") | {"actor": "did:web:b.example", "partition": "did:web:h.example/d/q1"}
    numbers = {"batch_size_expected": 350, "clipping_norm": "1", "noise_multiplier": "8", "steps": 20}
    text = rendered("job.toml", **{**values, **numbers, "accuracy_target": "", "probability": "0.5", "unit": ""})
    assert CHECK.is_valid(tomllib.loads(text)), [error.message for error in CHECK.iter_errors(tomllib.loads(text))]
