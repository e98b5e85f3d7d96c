"""A provider's table, sealed by the command, and a consumer's job on it: checked, trained, released, measured."""

from __future__ import annotations

import csv
import json
import re
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from typer.testing import CliRunner

from api.demo import participants
from client.cli.main import app as client
from client.keys.signer import Signer
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire.exact_numbers import format_number
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter import Options, attach
from trainer_adapter.cli.check import recommended_clipping
from trainer_adapter.cli.main import app
from trainer_adapter.job_models.model_trial import try_model
from trainer_adapter.session.noise_choice import load_assignment, load_job
from trainer_adapter.training.training_records import read_records

SCHEMA = 'v = 1\n[records]\ntarget = "diagnosis"\nclasses = ["benign", "malignant"]\n'
PRIVACY = '[train.privacy]\nepsilon = "1.5"\nbatch_size_expected = 128\nsteps = 20\n'
TRAIN = slice(0, 455)
OPENED = "malformed: output: holds a released model (model.safetensors): it needs no opening"
AFTERWARDS = (
    (("release",), 2, OPENED, "Nothing was recorded"),
    (("evaluate",), 2, OPENED, "Nothing was recorded"),
    (("train",), 5, "runs/table", "Nothing was recorded"),
    (("job", "check"), 5, "runs/table: holds a run already", "Nothing was recorded"),
)
"""What is no use once a run has left its model: the command, its exit code, what is wrong, what to do next."""


def _write(path: Path, inputs: Sequence[Sequence[float]], targets: Sequence[str]) -> None:
    names = [f"measure {number}" for number in range(len(inputs[0]))]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([[*names, "diagnosis"], *([*x, y] for x, y in zip(inputs, targets, strict=True))])


@contextmanager
def _opened(folder: Path, **policy: bool) -> Iterator[Place]:
    """A service whose partition is a table of thirty columns, sealed under the key that its store has."""
    with open_place(folder, records_min=100, **policy) as found:
        data, known = load_breast_cancer(), found.folder / "data"
        targets = [("malignant", "benign")[one] for one in data.target]
        _write(known / "patients.csv", data.data[TRAIN], targets[TRAIN])
        _write(known / "test.csv", data.data[TRAIN.stop :], targets[TRAIN.stop :])
        (known / "schema.toml").write_text(SCHEMA)
        key = found.folder / "data-keys" / found.tdp.did / f"{participants.DATASET}-2026-q3"
        command = ["dataset", "seal", str(known / "patients.csv"), found.ref, "--out", str(known / "sealed")]
        command += ["--schema", str(known / "schema.toml"), "--key", str(key), "--no-commitments"]
        assert CliRunner().invoke(client, command).exit_code == 0
        found.profile(found.bank)
        yield found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One for all tests that leave its policy as it is."""
    with _opened(tmp_path_factory.mktemp("own") / "a place") as found:
        yield found


def _job(place: Place, name: str, privacy: str = PRIVACY + 'clipping_norm = "1"\n', **changes: str) -> Path:
    members = {
        "id": f'"{name}"',
        "profile": '"../keys/bank.toml"',
        "contract": f'"{place.contract}"',
        "deadline_s": "3600",
        "block_steps": "10",
        "output": f'"../runs/{name}"',
        "model": '"linear"',
        "learning_rate": '"0.5"',
        "momentum": '"0.5"',
        "test": '"../data/test.csv"',
        "schema": '"../data/schema.toml"',
        "preprocessing": '[{kind = "normalise", public = "test"}]',
        **changes,
    }
    lines = ["v = 1", "[train]", *(f"{member} = {value}" for member, value in members.items() if value)]
    lines += ["[train.attester]", f'issuer = "{participants.ATTESTER}"', 'key = "../keys/attester.pem"']
    lines += ["[train.data]", f'"{place.ref}" = "../data/sealed/share/records.sealed"', privacy]
    path = place.folder / "jobs" / f"{name}.toml"
    path.write_text("\n".join(lines))
    return path


def _invoke(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [*words])
    return done.exit_code, done.stdout, done.stderr


def test_a_table_becomes_a_released_model(place: Place) -> None:
    """From its ε alone: the noise is chosen, the check records nothing, and the run costs what was asked at most."""
    job, size = _job(place, "table"), len(place.kinds())
    code, told, errors = _invoke("job", "check", str(job), "--json")
    assert code == 0, errors
    found = json.loads(told)
    assert (found["permitted"], found["parameters"], found["test_records"]) == (True, 62, 114)
    assert len(place.kinds()) == size
    code, told, errors = _invoke("train", str(job), "--json")
    assert code == 0, errors
    report = json.loads(told.splitlines()[-1])
    assert 1.4 < float(report["epsilon"]) <= 1.5
    assert report["accuracy"] > 0.8
    assert (place.folder / "runs" / "table" / "model.safetensors").is_file()
    charge = place.charge("table")
    assert charge is not None
    assert charge.plan == Plan.of(parse_plan(found["plan"])).digest
    size = len(place.kinds())
    for words, code, sentence, then in AFTERWARDS:
        ended, told, errors = _invoke(*words, str(job))
        assert (ended, told) == (code, ""), (words, errors)
        assert sentence in errors, words
        assert errors.splitlines()[-1].startswith(then), words
    assert len(place.kinds()) == size


def test_a_full_disk_is_found_before_a_run_is_charged(place: Place) -> None:
    """By one sentence that names the file; the same job is charged once there is room."""
    job, size = _job(place, "full"), len(place.kinds())
    most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, most[1]))
    try:
        code, told, errors = _invoke("train", str(job))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, most)
    assert (code, told, len(place.kinds())) == (2, "", size), errors
    assert "full/steps.log: File too large" in errors
    assert errors.splitlines()[-1].startswith("Nothing was recorded")
    assert [*(place.folder / "runs" / "full").iterdir()] == []
    code, _, errors = _invoke("job", "check", str(job))
    assert code == 0, errors


def test_commitments_open_a_partition_once(place: Place) -> None:
    """Stored and named by the command; the same records under another name are refused."""
    made = place.folder / "data" / "committed"
    command = ["dataset", "commit", str(place.folder / "data" / "patients.csv"), "--out", str(made)]
    done = CliRunner().invoke(client, [*command, "--schema", str(place.folder / "data" / "schema.toml")])
    assert done.exit_code == 0, done.output
    document, profile = made / "share" / "commitments-1.bin", str(place.profile(place.tdp))
    for name, code in (("2027-q1", 0), ("2027-q2", 3)):
        body = participants.partition(place.tdp, name, 455)
        (made / f"{name}.json").write_text(json.dumps({**body, "records": 455}))
        words = ["dataset", "open-partition", profile, str(made / f"{name}.json"), "--commitments", str(document)]
        done = CliRunner().invoke(client, words)
        assert done.exit_code == code, done.output
    assert "records_overlap" in done.stderr
    with place.book.read() as facts:
        opened = facts.partitions[f"{place.tdp.did}/{participants.DATASET}/2027-q1"]
        assert facts.documents[opened.commitments[0]] == document.read_bytes()


def test_the_noise_is_the_least_that_keeps_epsilon(place: Place) -> None:
    """A ten-thousandth less, and the ledger's own quote is above it."""
    plan = load_job(_job(place, "least")).training
    assert plan.sampling_probability == Fraction(182858, 10**6)
    told = []
    assignment = load_assignment(_job(place, "least"))
    for noise in (plan.noise_multiplier, plan.noise_multiplier - Fraction(1, 10_000)):
        changed = Plan.of(parse_plan({**plan.to_json(), "noise_multiplier": format_number(noise)}))
        known = replace(assignment, plan=changed)
        run = attach(torch.nn.Linear(30, 2), torch.optim.SGD([torch.zeros(1)], lr=1), torch.nn.MSELoss(), known)
        told.append(run.plan().epsilon.epsilon)
        run.service.close()
    assert told[0] is not None
    assert told[1] is not None
    assert told[0] <= Fraction(3, 2) < told[1]


def test_a_job_without_a_clipping_norm_is_told_one_and_not_run(place: Place) -> None:
    """The check recommends what the public records say, and training asks for it."""
    job, size = _job(place, "unclipped", PRIVACY), len(place.kinds())
    code, told, _ = _invoke("job", "check", str(job))
    assert code == 0
    assert "clipping norm recommended: " in told
    code, _, errors = _invoke("train", str(job))
    assert code == 2
    assert errors.startswith("malformed: train.privacy.clipping_norm: is missing: `epsilon job check` recommends one")
    assert len(place.kinds()) == size


def test_weights_that_are_no_numbers_recommend_no_norm() -> None:
    """A norm that nothing follows from is not made up."""
    model = torch.nn.Linear(2, 1)
    torch.nn.init.constant_(model.weight, torch.nan)
    with pytest.raises(Malformed, match="has no finite gradient for most public records"):
        recommended_clipping(model, torch.nn.MSELoss(), (torch.ones(3, 2), torch.ones(3, 1)))


def test_a_regression_by_adam(place: Place) -> None:
    """Another loss, another optimiser, a hidden layer; the report says what it measured."""
    changes = {"loss": '"mean_squared_error"', "optimiser": '"adam"', "learning_rate": '"0.01"', "momentum": ""}
    job = _job(place, "regression", model='"mlp"', **changes)
    job.write_text(job.read_text().replace('"1.5"', '"0.5"').replace("steps = 20", "steps = 4"))
    code, told, errors = _invoke("train", str(job), "--json")
    assert code == 0, errors
    report = json.loads(told.splitlines()[-1])
    assert "accuracy" not in report
    assert 0 < report["mean_squared_error"] < 10


def test_two_labels_a_record(place: Place) -> None:
    """Of an archive: each label is 0 or 1 by itself; the job is checked, and a run is charged and measured."""
    data, known = load_breast_cancer(), place.folder / "data"
    labels = np.stack([data.target, data.data[:, 0] > np.median(data.data[:, 0])], axis=1).astype(np.int64)
    for name, part in (("labels", TRAIN), ("labels-test", slice(TRAIN.stop, None))):
        np.savez(known / f"{name}.npz", inputs=data.data[part].astype(np.float32), targets=labels[part])
    key = known.parent / "data-keys" / place.tdp.did / f"{participants.DATASET}-2026-q3"
    command = ["dataset", "seal", str(known / "labels.npz"), place.ref, "--out", str(known / "labelled")]
    done = CliRunner().invoke(client, [*command, "--key", str(key), "--no-commitments"])
    assert done.exit_code == 0, done.output
    changes = {"loss": '"binary_cross_entropy"', "outputs": "2", "test": '"../data/labels-test.npz"', "schema": ""}
    job = _job(place, "labels", **changes)
    text = job.read_text().replace("data/sealed/", "data/labelled/")
    job.write_text(text.replace('"1.5"', '"0.5"').replace("steps = 20", "steps = 4"))
    code, told, errors = _invoke("job", "check", str(job), "--json")
    assert code == 0, errors
    found = json.loads(told)
    assert (found["permitted"], found["parameters"]) == (True, 62)
    code, told, errors = _invoke("train", str(job), "--json")
    assert code == 0, errors
    report = json.loads(told.splitlines()[-1])
    # Of a fair coin for each label it would be a half.
    assert (report["steps"], report["accuracy"] > 0.6) == (4, True)


FAULTS = {
    "a test set without a schema": ({"schema": ""}, "schema: is missing: test.csv is a table"),
    "fewer outputs than classes": ({"outputs": "1"}, "outputs: is 1, and the schema lists 2 classes: write 2, or"),
    "more outputs than classes": ({"outputs": "3"}, "outputs: is 3, and the schema lists 2 classes: write 2, or"),
    "a model of nobody": ({"model": '"resnet"'}, "model: must be one of digits-linear, digits-mlp, or FILE:FUNCTION"),
    "a folder that is no model": ({"model": '"../keys"'}, "model: the folder keys holds no config.json"),
    "a profile that is not there": ({"profile": '"nowhere.toml"'}, "nowhere.toml: No such file"),
    "a profile and an actor": ({"actor": '"did:web:a.example"'}, "train.actor: is given together with profile"),
    "a contract of nobody": ({"contract": '"contract.json"'}, "neither a contract's file nor its SHA-256"),
    "data that were never sealed": (
        {"data": "patients.csv"},
        "patients.csv is not sealed: name the records.sealed that",
    ),
    "data that are not there": ({"data": "gone.sealed"}, "data/gone.sealed: No such file"),
    "a public source without constants": (
        {"preprocessing": '[{kind = "normalise", public = "train"}]'},
        'train.preprocessing.0.public: has no constants beside it: write "test"',
    ),
    "a test set of another kind": (
        {"test": '"../keys/bank.toml"'},
        "test: bank.toml is neither a table nor an archive",
    ),
    "a batch above the records": ({"batch": "800"}, "train.privacy.batch_size_expected: must be at most 700"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_job_is_one_sentence_and_costs_nothing(place: Place, name: str) -> None:
    """By the check, as by the run."""
    changes, says = FAULTS[name]
    privacy = PRIVACY.replace("128", changes.get("batch", "128"))
    own = {field: value for field, value in changes.items() if field not in {"batch", "data"}}
    job, size = _job(place, "fault", privacy + 'clipping_norm = "1"\n', **own), len(place.kinds())
    job.write_text(
        job.read_text().replace("sealed/share/records.sealed", changes.get("data", "sealed/share/records.sealed"))
    )
    code, told, errors = _invoke("job", "check", str(job))
    assert (code in {2, 4}, told) == (True, ""), errors
    assert says in errors.splitlines()[0]
    assert len(errors.splitlines()) == 2
    assert len(place.kinds()) == size


def test_an_attester_that_no_policy_trusts_is_named(place: Place) -> None:
    """Another key under its name, and another name: such a run would be charged and get no data key."""
    Signer.generate().save(place.folder / "keys" / "other.pem")
    size = len(place.kinds())
    for trusted, other, field in (
        ("../keys/attester.pem", "../keys/other.pem", "key"),
        (participants.ATTESTER, "https://other.example", "issuer"),
    ):
        job = _job(place, "attested")
        job.write_text(job.read_text().replace(trusted, other))
        code, _, errors = _invoke("job", "check", str(job))
        assert code == 2, errors
        assert errors.startswith(f"malformed: train.attester.{field}: ")
        assert "no data key would be released to this run" in errors
    assert len(place.kinds()) == size


def test_a_contract_that_was_not_entered_is_named_with_the_command_that_enters_it(place: Place) -> None:
    """By the check as by the run, for a file of other bytes."""
    job, size = _job(place, "unsigned", contract='"../data/schema.toml"'), len(place.kinds())
    for words in (("job", "check"), ("train",)):
        code, _, errors = _invoke(*words, str(job))
        assert code == 4, errors
        assert "Enter it (`epsilon contract enter`), or name the very file" in errors.splitlines()[-1]
    assert len(place.kinds()) == size


def test_a_refused_job_that_states_its_epsilon_is_told_one_that_passes(place: Place) -> None:
    """By the check as by the run, whose charge is refused; and it does pass, where a little more does not."""
    told = []
    for words in (("job", "check"), ("train",)):
        job = _job(place, "greedy", PRIVACY.replace("1.5", "9") + 'clipping_norm = "1"\n')
        code, shown, errors = _invoke(*words, str(job))
        assert code == 3, errors
        found = re.search(r"would pass: train\.privacy\.epsilon of at most ([\d.]+)\n", shown + errors)
        assert found is not None, shown + errors
        told.append(found[1])
    assert told[0] == told[1]
    least = Fraction(told[0])
    for epsilon, code in ((least, 0), (least + Fraction(1, 100), 3)):
        job = _job(place, "modest", PRIVACY.replace("1.5", format_number(epsilon)) + 'clipping_norm = "1"\n')
        assert _invoke("job", "check", str(job))[0] == code


def test_a_refused_job_is_told_one_that_passes_where_every_run_leases_its_steps(tmp_path: Path) -> None:
    """As under the policy of ``epsilon up``, which admits no other."""
    with _opened(tmp_path / "leased", step_leases=True) as place:
        job = _job(place, "greedy", PRIVACY.replace("1.5", "9") + 'clipping_norm = "1"\n')
        code, shown, errors = _invoke("job", "check", str(job))
        assert code == 3, errors
        assert re.search(r"would pass: train\.privacy\.epsilon of at most [\d.]+\n", shown + errors), shown + errors


def test_attach_takes_the_jobs_that_train_takes(place: Place) -> None:
    """And an output as text; the job's model, which is not trained here, is not its pipeline."""
    (place.folder / "jobs" / "networks.py").write_text("")
    job = _job(place, "attached", model='"networks.py:small"', preprocessing="")
    model = torch.nn.Linear(30, 2)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    output = str(place.folder / "runs" / "other")
    options = Options(service=place.service, read=read_records)
    with attach(model, optimiser, torch.nn.functional.cross_entropy, str(job), options, output=output) as run:
        assert run.assignment.pipeline is None
        assert next(iter(run)) == 1
    assert (place.folder / "runs" / "other" / "steps.log").is_file()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # PyTorch's own, of its compiler
def test_a_compiled_module_is_refused_in_words(place: Place) -> None:
    """By either way of compiling, before anything is charged."""
    inner = torch.nn.Linear(30, 2)
    wrapped, compiled = torch.nn.Sequential(torch.nn.Tanh()), torch.nn.Linear(30, 2)
    wrapped.append(torch.compile(inner))  # type: ignore[arg-type] # what torch.compile gives is a module
    compiled.compile()
    for model, where in ((wrapped, "model.1"), (compiled, "model")):
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        with pytest.raises(Malformed, match=rf"^{where}: is compiled: attach the module that was given"):
            attach(model, optimiser, torch.nn.functional.cross_entropy, place.assignment("compiled"))


def test_a_model_that_hangs_or_crashes_ends_its_own_process(tmp_path: Path) -> None:
    """Within its time, and in one sentence."""
    (tmp_path / "hangs.py").write_text("while True: pass")
    (tmp_path / "crashes.py").write_text("import os\nos.abort()")
    with pytest.raises(Malformed, match=r"^model: hangs\.py:small gave no model within 1 s$"):
        try_model("hangs.py:small", tmp_path, 1)
    with pytest.raises(Malformed, match=r"^model: crashes\.py:small ended its process with signal 6$"):
        try_model("crashes.py:small", tmp_path)
    (tmp_path / "leaves.py").write_text("import os\nos._exit(3)")
    with pytest.raises(Malformed, match=r"^model: leaves\.py:small ended its process with exit code 3$"):
        try_model("leaves.py:small", tmp_path)
