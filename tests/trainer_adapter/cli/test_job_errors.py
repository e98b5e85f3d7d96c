"""A job file with one fault: each field that is missing, or of another kind, is named, in one sentence."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ledger.verifier import LogKey
from ledger.wire.malformed import Malformed
from trainer_adapter.cli.main import app
from trainer_adapter.job.job_spec import Job

REF = "did:web:hospital.example/scans/2026-q3"
JOB: dict[str, Any] = {
    "v": 1,
    "train": {
        "id": "run-1",
        "service": "http://127.0.0.1:1",
        "issuer": "http://127.0.0.1:1",
        "log": LogKey("rooms.example/ledger", bytes(range(32))).vkey,
        "actor": "did:web:bank-a.example",
        "key": "keys/bank.pem",
        "contract": "ab" * 32,
        "deadline_s": 3600,
        "model": "digits-linear",
        "learning_rate": "0.3",
        "momentum": "0.9",
        "block_steps": 10,
        "test": "test.npz",
        "accuracy_target": "0.85",
        "output": "runs/run-1",
        "attester": {"issuer": "https://attester.example", "key": "keys/attester.pem"},
        "data": {REF: "data/2026-q3.sealed"},
        "plan": {
            "batch_size_expected": 350,
            "clipping_norm": "1",
            "kind": "dp_sgd",
            "noise_multiplier": "8",
            "steps": 20,
            "v": 1,
            "sampler": {"kind": "poisson", "probability": "0.5"},
        },
    },
}
OPTIONAL = ("train", "accuracy_target")
KINDS: tuple[Any, ...] = ("", "a string", 7, 0.5, float("nan"), True, [], ["x"], {}, {"x": 1})


def _toml(table: dict[str, Any], path: str = "") -> str:
    lines = [f"{json.dumps(key)} = {_value(value)}" for key, value in table.items() if not _is_table(value)]
    for key, value in table.items():
        if _is_table(value):
            name = f"{path}.{json.dumps(key)}" if path else json.dumps(key)
            lines += [f"[{name}]", _toml(value, name)]
    return "\n".join(lines)


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _value(value: Any) -> str:  # noqa: ANN401 - any TOML value
    return "nan" if value != value else json.dumps(value, ensure_ascii=False)  # noqa: PLR0124 - not a number


def _places(table: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in table.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _places(value, (*above, key))


PLACES = list(_places(JOB))


def _table(job: dict[str, Any], place: tuple[str, ...]) -> dict[str, Any]:
    for name in place[:-1]:
        job = job[name]
    return job


def _fault(path: Path, job: dict[str, Any]) -> Malformed:
    path.write_text(_toml(job), encoding="utf-8")
    with pytest.raises(Malformed) as caught:
        Job.load(path)
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_job_without_a_fault_is_read(tmp_path: Path) -> None:
    """Else every test below would pass for the wrong reason; the one optional field may be left out."""
    path = tmp_path / "job.toml"
    path.write_text(_toml(JOB), encoding="utf-8")
    assert Job.load(path).accuracy_target is not None
    rest = copy.deepcopy(JOB)
    del rest["train"]["accuracy_target"]
    path.write_text(_toml(rest), encoding="utf-8")
    assert Job.load(path).accuracy_target is None


@pytest.mark.parametrize("place", [one for one in PLACES if one != OPTIONAL], ids=".".join)
def test_a_field_that_is_missing_is_named(tmp_path: Path, place: tuple[str, ...]) -> None:
    """Each in turn; a job without data misses its table."""
    job = copy.deepcopy(JOB)
    del _table(job, place)[place[-1]]
    named = place[:-1] if place[-1] == REF else place
    assert _fault(tmp_path / "job.toml", job).field == ".".join(named)


@pytest.mark.parametrize("place", [(), *(one for one in PLACES if _is_table(_table(JOB, one)[one[-1]]))], ids=".".join)
def test_a_field_that_nobody_knows_is_named(tmp_path: Path, place: tuple[str, ...]) -> None:
    """In every table; in the table of data it is no partition's reference."""
    job = copy.deepcopy(JOB)
    _table(job, (*place, ""))["epochs"] = "3"
    named = place if place[-1:] == ("data",) else (*place, "epochs")
    assert _fault(tmp_path / "job.toml", job).field == ".".join(named)


@pytest.mark.parametrize("place", PLACES, ids=".".join)
def test_a_field_of_another_kind_is_named(tmp_path: Path, place: tuple[str, ...]) -> None:
    """Every kind of TOML value in every place, but the kind that belongs there; a float is never a number here."""
    old = _table(JOB, place)[place[-1]]
    for kind in KINDS:
        if type(kind) is type(old) and kind:
            continue
        job = copy.deepcopy(JOB)
        _table(job, place)[place[-1]] = kind
        fault = _fault(tmp_path / "job.toml", job)
        assert fault.field == ".".join(place) or fault.field.startswith(".".join((*place, ""))), kind


@pytest.mark.parametrize("name", ["key", "test", "output", "grants", "model", "attester.key", f"data.{REF}"])
def test_a_path_with_a_null_character_is_named(tmp_path: Path, name: str) -> None:
    """The operating system would refuse it later, some of them after the charge."""
    job = copy.deepcopy(JOB)
    place = ("train", *name.split(".", 1))
    _table(job, place)[place[-1]] = "data/a\0b.py:made"
    assert _fault(tmp_path / "job.toml", job).field == f"train.{name}"


@pytest.mark.parametrize(
    "text",
    ["x = " + "[" * 5_000 + "]" * 5_000, "v = " + "9" * 5_000, "v = 1\nv = 1", "v = 2026-02-30", "v = 0x", '"'],
    ids=["deep", "long", "twice", "no-day", "no-digits", "open"],
)
def test_what_toml_itself_refuses_is_reported_by_the_files_name(tmp_path: Path, text: str) -> None:
    """By the command, in one sentence with exit code 2, however the reader of TOML fails."""
    path = tmp_path / "job.toml"
    path.write_text(text, encoding="utf-8")
    done = CliRunner().invoke(app, ["train", str(path)])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"malformed: {path}: is n")
    assert done.stderr.count("\n") == 2


@pytest.mark.parametrize(
    "url", ["http://[::1", "http://a\0", "ftp://a", "http://", "http://xn--/", f"http://{'a' * 99}"]
)
def test_an_address_of_no_service_is_named(tmp_path: Path, url: str) -> None:
    """In one sentence with exit code 2, before a file but the job's own is read."""
    job = copy.deepcopy(JOB)
    job["train"]["service"] = url
    (tmp_path / "job.toml").write_text(_toml(job), encoding="utf-8")
    done = CliRunner().invoke(app, ["train", str(tmp_path / "job.toml"), "--json"])
    reported = json.loads(done.stdout)
    assert (done.exit_code, reported["event"], reported["field"]) == (2, "fault", "service")
    assert done.stderr.startswith("malformed: service: must be an http or https URL")
    assert sorted(tmp_path.iterdir()) == [tmp_path / "job.toml"]
