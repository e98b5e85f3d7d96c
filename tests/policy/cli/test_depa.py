"""``epsilon depa check``: every reason told, for people and for programs, and an exit code for each outcome."""

import base64
import json
import re
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from client.keys.signer import Signer
from ledger.domain.outcomes import Code
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.verifier import LogKey
from policy.cli.depa import app
from policy.depa.contract.reasons import CODES, PHASES
from tests.factories.depa_documents import CONTRACT, PIPELINE
from tests.factories.path_changes import changed
from trainer_adapter.job.job_spec import Job

AT = ["--at", "2026-06-01T00:00:00Z"]
SCALER = {"pipeline|1|config|dataset_config|preprocessing": {"scaler": "standard"}}
ROOT = Path(__file__).parents[3]


def _run(
    folder: Path, *options: str, contract: dict[str, Any] | None = None, pipeline: dict[str, Any] | None = None
) -> Result:
    files = []
    for name, base, change in (("contract", CONTRACT, contract), ("pipeline", PIPELINE, pipeline)):
        files.append(folder / f"{name}.json")
        files[-1].write_text(json.dumps(changed(base, change or {})), encoding="utf-8")
    return CliRunner().invoke(app, ["depa", "check", *map(str, files), *AT, *options])


def test_an_import_is_reported_and_exits_with_zero(tmp_path: Path) -> None:
    """Noise, steps, ε and δ for people, without a colour where no terminal is."""
    done = _run(tmp_path, "--records", "500")
    assert done.exit_code == 0, done.output
    assert "noise multiplier 1.206, sampling probability 0.1, 20 steps, clipping norm 0.5" in done.output
    assert re.search(r"one run of 500 records: ε 1\.99\d+ at δ 0\.0001 \(PLD, REPLACE_SPECIAL", done.output)
    assert "a partition of ε 2 under the rule reference holds 1 such run\n" in done.output
    assert "Imported" in done.output
    assert "\x1b" not in done.output


def test_without_records_the_noise_is_said_to_be_unknown(tmp_path: Path) -> None:
    """And the import stands."""
    done = _run(tmp_path)
    assert done.exit_code == 0
    assert "The noise is unknown: neither file has the number of records (see --records)." in done.output


def test_a_refusal_tells_every_reason_and_exits_with_three(tmp_path: Path) -> None:
    """Each by code and field, in a table."""
    done = _run(tmp_path, contract={"tdc": "", "constraints|0|privacy|0|delta": "null"}, pipeline=SCALER)
    assert done.exit_code == Code.POLICY_DENIED.exit_code == 3
    for code in ("did_missing", "number_null", "preprocessing_fitted"):
        assert code in done.output
    assert "Refused: 3 reasons" in done.output


def test_a_level_is_an_option(tmp_path: Path) -> None:
    """What Levels 1 and 2 refuse is warned of at Level 0; Level 1 is meant where none is said."""
    assert _run(tmp_path, "--level", "0", pipeline=SCALER).exit_code == 0
    assert [
        _run(tmp_path, *level, pipeline=SCALER).exit_code for level in ([], ["--level", "1"], ["--level", "2"])
    ] == [3] * 3


def test_json_is_the_same_every_time_and_holds_every_reason(tmp_path: Path) -> None:
    """One object, whose reasons have code, effect, field, phase, value and text."""
    first, second = (_run(tmp_path, "--json", contract={"tdc": ""}, pipeline=SCALER).output for _ in range(2))
    assert first == second
    reported = json.loads(first)
    assert reported["code"] == "policy_denied"
    assert reported["contract"] is None
    assert {"code": "did_missing", "effect": "refused", "field": "contract.tdc", "phase": "validate"}.items() <= dict(
        next(reason for reason in reported["reasons"] if reason["code"] == "did_missing")
    ).items()
    assert {"value", "text"} <= set(reported["reasons"][0])


def test_json_of_an_import_holds_our_documents(tmp_path: Path) -> None:
    """Our contract as it is to be signed, what a charge says, the keys, and the digests of both files."""
    reported = json.loads(_run(tmp_path, "--json", "--records", "500", "--runs", "4").output)
    assert json.loads(reported["contract"])["runs_max"] == 4
    assert reported["charge"]["pipeline"] == reported["inputs"]["pipeline"]
    assert len(reported["keys"]) == 2


def test_a_signed_envelope_needs_did_documents(tmp_path: Path) -> None:
    """With them it is imported; without, the exit code is that of a signature."""
    envelopes = ROOT / "tests" / "policy" / "depa" / "contract" / "envelopes.json"
    made = next(iter(json.loads(envelopes.read_text(encoding="utf-8")).values()))
    envelope, pipeline = tmp_path / "contract.cose", tmp_path / "pipeline.json"
    envelope.write_bytes(base64.b64decode(made["envelope"]))
    pipeline.write_text(json.dumps(PIPELINE), encoding="utf-8")
    options = []
    for place, document in enumerate(made["did_documents"]):
        path = tmp_path / f"did-{place}.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        options += ["--did", str(path)]
    requested = ["depa", "check", str(envelope), str(pipeline), *AT]
    done = CliRunner().invoke(app, [*requested, *options])
    assert done.exit_code == 0, done.output
    assert "signatures by did:web:hospital.example, did:web:lab.example, did:web:bank-a.example" in done.output
    assert CliRunner().invoke(app, requested).exit_code == Code.SIGNATURE_INVALID.exit_code == 6


@pytest.mark.parametrize("text", ["", "[", "[" * 1_000, "x" * 300_000])
def test_what_cannot_be_read_exits_with_two_and_one_sentence(tmp_path: Path, text: str) -> None:
    """No trace, no half a table."""
    path, other = tmp_path / "contract.json", tmp_path / "pipeline.json"
    path.write_text(text, encoding="utf-8")
    other.write_text(json.dumps(PIPELINE), encoding="utf-8")
    done = CliRunner().invoke(app, ["depa", "check", str(path), str(other), *AT])
    assert done.exit_code == Code.MALFORMED.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("contract: ")
    assert done.stderr.count("\n") == 1


def test_an_adapted_pair_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    """Four files in a new folder, which the check imports; without a decision nothing, and an older folder stays."""
    contract, pipeline = tmp_path / "contract.json", tmp_path / "pipeline.json"
    contract.write_text(json.dumps(changed(CONTRACT, {"tdc": ""})), encoding="utf-8")
    pipeline.write_text(json.dumps(changed(PIPELINE, SCALER)), encoding="utf-8")
    requested = [
        "depa",
        "adapt",
        str(contract),
        str(pipeline),
        *AT,
        "--records",
        "500",
        "--into",
        str(tmp_path / "new"),
    ]
    refused = CliRunner().invoke(app, requested)
    assert refused.exit_code == 3
    assert "needed: the consumer's DID: --tdc DID" in refused.output
    assert not (tmp_path / "new").exists()
    done = CliRunner().invoke(app, [*requested, "--tdc", "did:web:bank-a.example"])
    assert done.exit_code == 0, done.output
    assert "2 changes; the files are in" in done.output.replace("\n", " ")
    made = {path.name for path in (tmp_path / "new").iterdir()}
    assert made == {"contract.json", "pipeline.json", "changes.json", "document.json"}
    pair = [str(tmp_path / "new" / name) for name in ("contract.json", "pipeline.json")]
    again = CliRunner().invoke(app, ["depa", "check", *pair, *AT, "--records", "500", "--json"])
    assert json.loads(again.output)["contract"].encode() == (tmp_path / "new" / "document.json").read_bytes()
    assert CliRunner().invoke(app, [*requested, "--tdc", "did:web:bank-a.example"]).exit_code == 2
    assert CliRunner().invoke(app, [*requested, "--tdp", "lab"]).exit_code == 2


JOB = """
v = 1
[train]
id = "run-1"
profile = "profile.toml"
attester = {issuer = "https://attester.example", key = "attester.pem"}
block_steps = 20
deadline_s = 3600
learning_rate = "0.1"
model = "linear"
momentum = "0"
output = "run"
test = "public.npz"
[train.data]
"did:web:lab.example/8c1d7c2a-tests/q1" = "tests.sealed"
"did:web:hospital.example/8c1d7c2a-wards/q1" = "visits.sealed"
"""
STAGES = """
[train.plan]
kind = "staged"
[[train.plan.statistics]]
kind = "count"
name = "rows"
epsilon = "0.1"
"""


def _adapt_with(tmp_path: Path, template: str, *options: str) -> Result:
    files = []
    for name, document in (("contract", CONTRACT), ("pipeline", PIPELINE)):
        files.append(tmp_path / f"{name}.json")
        files[-1].write_text(json.dumps(document), encoding="utf-8")
    (tmp_path / "template.toml").write_text(template, encoding="utf-8")
    into = ["--into", str(tmp_path / "new"), "--job", str(tmp_path / "template.toml")]
    return CliRunner().invoke(app, ["depa", "adapt", *map(str, files), *AT, *into, *options])


@pytest.mark.parametrize("stages", ["", STAGES])
def test_a_job_is_written_beside_the_pair(tmp_path: Path, stages: str) -> None:
    """It is the template's, with the contract, plan, join and pipeline of the pair; the next command is shown."""
    done = _adapt_with(tmp_path, JOB + stages, "--records", "500")
    assert done.exit_code == 0, done.output
    made = tmp_path / "new"
    assert f"it is entered: epsilon train {made / 'job.toml'}" in done.output.replace("\n", " ")
    Signer.generate().save(made / "key.pem")
    log = LogKey("rooms.example/ledger", bytes(range(32))).vkey
    (made / "profile.toml").write_text(
        'v = 1\n[client]\nservice = "http://127.0.0.1:1"\nissuer = "http://127.0.0.1:1"\nkey = "key.pem"\n'
        f'actor = "did:web:bank-a.example"\nlog = "{log}"\n',
        encoding="utf-8",
    )
    job = Job.load(made / "job.toml")
    assert job.contract == sha256((made / "document.json").read_bytes()).hexdigest()
    assert job.pipeline is not None
    assert job.pipeline.read_bytes() == (made / "pipeline.json").read_bytes()
    assert job.join == ("did:web:lab.example/8c1d7c2a-tests/q1", "did:web:hospital.example/8c1d7c2a-wards/q1")
    assert (job.unit_records_max, job.training.noise_multiplier, job.training.steps) == (1, Fraction("1.206"), 20)
    assert isinstance(job.plan, StagedPlan) == bool(stages)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("[train]", '[train]\ncontract = "x"', "train.contract: is what the contract and the pipeline decide"),
        ("8c1d7c2a-tests/q1", "8c1d7c2a-other/q1", "train.data.did:web:lab.example/8c1d7c2a-other/q1: is of no"),
        ("lab.example/8c1d7c2a-tests", "hospital.example/8c1d7c2a-visits", "or of a key that another partition"),
        ('"did:web:lab.example/8c1d7c2a-tests/q1" = "tests.sealed"', "", "train.data: lacks a partition of did"),
        ("deadline_s = 3600", "deadline_s = 0.5", "train.deadline_s: must be text, a whole number"),
        ("v = 1", "v = 2", "--job: must hold v = 1"),
        ("v = 1", "v =", "--job: is not TOML"),
        ("[train.data]", '[train.plan]\nkind = "dp_sgd"\n[train.data]', "train.plan: must be of kind 'staged'"),
    ],
)
def test_a_template_that_the_pair_contradicts_writes_nothing(
    tmp_path: Path, before: str, after: str, words: str
) -> None:
    """What the pair decides is not said twice, and each key of the contract has one partition."""
    done = _adapt_with(tmp_path, JOB.replace(before, after, 1), "--records", "500")
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "new").exists()


def test_a_job_needs_the_number_of_records(tmp_path: Path) -> None:
    """The noise of its plan follows from it."""
    done = _adapt_with(tmp_path, JOB)
    assert (done.exit_code, "--job: needs --records" in done.stderr) == (2, True), done.stderr


def test_a_waiver_is_said_whole(tmp_path: Path) -> None:
    """What, by whom, until when and why; else the option that lacks is named."""
    waiver = ["--waive", "preprocessing_fitted", "--waived-by", "did:web:sro.example"]
    waiver += ["--waived-until", "2026-12-01T00:00:00Z", "--waiver-reason", "a public scaler"]
    done = _run(tmp_path, *waiver, pipeline=SCALER)
    assert done.exit_code == 0, done.output
    for place in range(0, len(waiver), 2):
        rest = waiver[:place] + waiver[place + 2 :]
        lacking = _run(tmp_path, *rest, pipeline=SCALER)
        assert lacking.exit_code == 2
        assert lacking.stderr == f"{waiver[place]}: is needed with the other options of a waiver\n"
    assert _run(tmp_path, *waiver, "--waive", "layer_crosses_records", pipeline=SCALER).exit_code == 2


def test_a_missing_file_and_a_wrong_option_exit_with_two(tmp_path: Path) -> None:
    """Named."""
    missing = CliRunner().invoke(app, ["depa", "check", str(tmp_path / "none.json"), str(tmp_path / "none.json"), *AT])
    assert missing.exit_code == 2
    assert "none.json: No such file or directory" in missing.stderr
    for option in (
        ["--records", "0"],
        ["--level", "3"],
        ["--at", "today"],
        ["--budget", "-1"],
        ["--rows-per-principal", "65"],
    ):
        assert _run(tmp_path, *option).exit_code == 2


def test_help_has_two_examples_and_the_exit_codes() -> None:
    """What people type first."""
    reported = CliRunner().invoke(app, ["depa", "check", "--help"], env={"COLUMNS": "200"}).output
    assert reported.count("epsilon depa check ") == 2
    assert (
        "Exit codes: 0 the files can be imported; 3 they are refused; 6 a signature is invalid; 2 invalid input."
        in reported
    )


def test_every_code_is_used_and_on_the_page() -> None:
    """The closed list, the sources and the page name the same reasons."""
    sources = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "policy" / "depa").rglob("*.py")))
    noted = set(re.findall(r'(?:refuse|warn|Exposure)\(\s*"([a-z_]+)"', sources))
    noted |= {"preprocessing_fitted", "name_spelling", "time_spelling", "number_spelling", "field_type"}
    assert noted == set(CODES)
    page = (ROOT / "policy" / "depa" / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z_]+)`", page)) >= set(CODES)
    assert {phase for phase, _ in CODES.values()} == set(PHASES)
