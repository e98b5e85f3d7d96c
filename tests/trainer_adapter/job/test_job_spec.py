"""A job file is read strictly: what is unknown, missing or of another kind is refused by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from client.profile.profile import TOML_BYTES_MAX
from ledger.verifier import LogKey
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Job

LOG = LogKey("rooms.example/ledger", bytes(range(32)))
GOOD = f"""v = 1

[train]
id = "run-1"
service = "http://127.0.0.1:8000"
issuer = "http://127.0.0.1:8100"
log = "{LOG.vkey}"
actor = "did:web:bank-a.example"
key = "keys/bank.pem"
contract = "{"ab" * 32}"
deadline_s = 3600
model = "digits-linear"
learning_rate = "0.3"
momentum = "0.9"
block_steps = 10
test = "test.npz"
output = "runs/run-1"

[train.attester]
issuer = "https://attester.example"
key = "keys/attester.pem"

[train.data]
"did:web:hospital.example/scans/2026-q3" = "data/2026-q3.sealed"

[train.plan]
batch_size_expected = 350
clipping_norm = "1"
kind = "dp_sgd"
noise_multiplier = "8"
steps = 20
v = 1

[train.plan.sampler]
kind = "poisson"
probability = "0.5"
"""
CASES = [
    ("v = 1\n\n[train]", "v = 2\n\n[train]", "v"),
    ("v = 1\n\n[train]", "[train]", "v"),
    ("[train]\n", "[trainer]\n", "trainer"),
    ('id = "run-1"\n', "", "train.id"),
    ('id = "run-1"', 'id = "run 1"', "train.id"),
    ('actor = "did:web:bank-a.example"', 'actor = "bank"', "train.actor"),
    ("[train.attester]", '[train.resume]\nkey = "room.key"\n\n[train.attester]', "train.resume.every_s"),
    ("[train.attester]", "[[train.preprocessing]]\nkind = 'fit'\n\n[train.attester]", "train.preprocessing.0.kind"),
    ('test = "test.npz"', 'test = "test.npz"\nepochs = 3', "train.epochs"),
    (f'log = "{LOG.vkey}"', 'log = "rooms.example/ledger"', "train.vkey"),
    ('issuer = "http://127.0.0.1:8100"\n', "", "train.issuer"),
    ("deadline_s = 3600", "deadline_s = 1", "train.deadline_s"),
    ("deadline_s = 3600", "deadline_s = 3600\npipeline = true", "train.pipeline"),
    ("deadline_s = 3600", 'deadline_s = 3600\nbase = "run-0"', "train.base"),
    ("deadline_s = 3600", 'deadline_s = 3600\nbase = ["run 0"]', "train.base[0]"),
    ("deadline_s = 3600", "deadline_s = 3600\nbase = []", "train.base"),
    ("deadline_s = 3600", 'deadline_s = 3600\nrecipients = ["did:web:bank-b.example", "bank"]', "train.recipients[1]"),
    ("deadline_s = 3600", "deadline_s = 3600\nunit_records_max = 65", "train.unit_records_max"),
    ("deadline_s = 3600", "deadline_s = true", "train.deadline_s"),
    ("block_steps = 10", "block_steps = 0", "train.block_steps"),
    ('model = "digits-linear"', 'model = "Train_XGB"', "train.model"),
    ('learning_rate = "0.3"', "learning_rate = 0.3", "train.learning_rate"),
    ('learning_rate = "0.3"', 'learning_rate = "0"', "train.learning_rate"),
    ('momentum = "0.9"', 'momentum = "nan"', "train.momentum"),
    (f'contract = "{"ab" * 32}"', 'contract = "newest"', "train.contract"),
    ('issuer = "https://attester.example"\n', "", "train.attester.issuer"),
    ('"did:web:hospital.example/scans/2026-q3" = "data/2026-q3.sealed"', "", "train.data"),
    ('"did:web:hospital.example/scans/2026-q3"', '"scans"', "train.data"),
    ("steps = 20", "steps = 0", "train.plan.steps"),
    ("steps = 20", "steps = 20\nmicrobatches = 2", "train.plan.microbatches"),
    ('noise_multiplier = "8"', "noise_multiplier = 8.0", "train.plan.noise_multiplier"),
    ('probability = "0.5"', 'probability = "1/2"', "train.plan.sampler.probability"),
    ('kind = "poisson"', 'kind = "shuffle"', "train.plan.sampler.kind"),
]


def test_a_job_is_read_whole(tmp_path: Path) -> None:
    """Paths are relative to the file; numbers are exact."""
    path = tmp_path / "job.toml"
    path.write_text(GOOD)
    job = Job.load(path)
    assert job.key == tmp_path / "keys" / "bank.pem"
    assert job.data == {"did:web:hospital.example/scans/2026-q3": tmp_path / "data" / "2026-q3.sealed"}
    assert (job.plan.steps, job.accuracy_target) == (20, None)


def test_boosted_trees_are_refused_with_what_an_engine_would_need(tmp_path: Path) -> None:
    """By name, before anything is asked of the service; a claim of ε is no plan that a job trains."""
    path = tmp_path / "job.toml"
    path.write_text(GOOD.replace('model = "digits-linear"', 'model = "xgboost"'))
    with pytest.raises(Malformed, match=r"train\.model: is xgboost: .* no engine .* proven sensitivity, .* each tree"):
        Job.load(path)
    claim = '[train.plan]\nkind = "mechanism"\nv = 1\n[train.plan.mechanism]\nepsilon = "1.5"\nkind = "pure"\n'
    path.write_text(f'{GOOD.split("[train.plan]", maxsplit=1)[0]}{claim}relation = "REPLACE_SPECIAL"\nv = 1\n')
    with pytest.raises(Malformed, match="another kind of plan"):
        _ = Job.load(path).training


@pytest.mark.parametrize(("was", "now", "field"), CASES, ids=[f"{field}-{now[:24]}" for _, now, field in CASES])
def test_a_wrong_job_is_refused_by_name(tmp_path: Path, was: str, now: str, field: str) -> None:
    """One change each."""
    assert was in GOOD
    path = tmp_path / "job.toml"
    path.write_text(GOOD.replace(was, now, 1))
    with pytest.raises(Malformed) as caught:
        Job.load(path)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "data",
    [
        b"not toml",
        b"\xff\xfe",
        b"a = " + b"[" * 9_000,
        b"a = " + b"9" * 5_000,
        b"#" * (TOML_BYTES_MAX + 1),
    ],
    ids=["text", "bytes", "nesting", "digits", "size"],
)
def test_what_is_no_job_is_named(tmp_path: Path, data: bytes) -> None:
    """By its path."""
    path = tmp_path / "job.toml"
    path.write_bytes(data)
    with pytest.raises(Malformed) as caught:
        Job.load(path)
    assert caught.value.field == str(path)


def test_the_command_says_it_in_one_sentence(tmp_path: Path) -> None:
    """Exit code 2, no trace, and what to do next; a job that is not there is not found."""
    path = tmp_path / "job.toml"
    path.write_text(GOOD.replace("steps = 20", "steps = -1"))
    for job, code, says in ((path, 2, "train.plan.steps: must lie between"), (tmp_path / "none.toml", 4, "none.toml")):
        command = [sys.executable, "-m", "epsilon_ledger", "train", str(job)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (code, "")
        fault, then = done.stderr.splitlines()
        assert says in fault
        assert then.startswith("Nothing was recorded")
