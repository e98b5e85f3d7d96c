"""How the trainer's commands end: a code that says nothing was recorded is told only where nothing was."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ledger.domain.outcomes import ChargeState
from ledger.verifier import LogKey
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.cli.main import app
from trainer_adapter.session.clean_room_identity import CleanRoomIdentity
from trainer_adapter.session.protocol import Session

FAULT = {"code", "detail", "exit_code", "field", "id", "index", "reasons"}
RESUME = '\n[train.resume]\nkey = "../keys/{name}.room"\nevery_s = 0\n'
DEAD = "http://127.0.0.1:1"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One service for the file; each test has runs of its own."""
    with open_place(tmp_path_factory.mktemp("endings") / "place") as found:
        yield found


def _invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(app, [str(one) for one in words])


def _fault(stdout: str) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads(stdout.splitlines()[-1])
    assert reported.keys() == {*FAULT, "event"}
    return reported


def test_an_issuer_that_is_away_costs_nothing_and_the_same_command_runs_when_it_is_back(place: Place) -> None:
    """75 and nothing recorded, then the very same command, whose folder and id are unused."""
    job = place.job("again")
    here = job.read_text() + RESUME.format(name="again")
    job.write_text(here.replace(place.address.issuer, DEAD))
    size = len(place.kinds())
    away = _invoke("train", job, "--json")
    reported = _fault(away.stdout)
    assert (away.exit_code, reported["event"], reported["code"], reported["exit_code"]) == (
        75,
        "fault",
        "unreachable",
        75,
    )
    assert "no answer from the issuer" in reported["detail"]
    assert away.stderr.splitlines()[-1].startswith("Nothing was recorded: run the command again")
    assert len(place.kinds()) == size
    job.write_text(here)
    back = _invoke("train", job, "--json")
    assert back.exit_code == 0, back.stderr
    assert json.loads(back.stdout.splitlines()[-1])["steps"] == PLAN.steps


WITHOUT_PYTORCH = """
import json, sys
from typer.testing import CliRunner
sys.modules["torch"] = None
from trainer_adapter.cli.main import app
ended = [CliRunner().invoke(app, words.split()) for words in sys.argv[1:]]
print(json.dumps([(one.exit_code, one.stderr.splitlines(), one.stdout) for one in ended]))
"""


def test_without_pytorch_a_sentence_names_the_extra() -> None:
    """Every command that needs it ends so, also for programs; the form of a job is printed without it."""
    needing = ("device", "train a.toml", "statistics a.toml", "job check a.toml", "evaluate a.toml", "release a.toml")
    child = [sys.executable, "-c", WITHOUT_PYTORCH, *needing, "train a.toml --json", "job schema"]
    done = subprocess.run(child, capture_output=True, text=True, check=True)
    *ended, for_programs, form = json.loads(done.stdout)
    sentence = "torch: is not installed, which this command needs: pip install 'epsilon-ledger[train]'"
    for code, said, out in ended:
        assert (code, out) == (2, "")
        assert said == [f"malformed: {sentence}", "Nothing was recorded: install it and retry."]
    assert _fault(for_programs[2])["detail"] == sentence
    assert form[0] == 0


@pytest.mark.parametrize("name", ["train", "evaluate", "release"])
def test_a_job_that_is_not_there_is_not_found(tmp_path: Path, name: str) -> None:
    """Code 4 and the file's name, as with every other command, and as JSON."""
    done = _invoke(name, tmp_path / "none.toml", "--json")
    reported = json.loads(done.stdout)
    assert (done.exit_code, reported["exit_code"], reported["code"]) == (4, 4, "file")
    assert reported["field"] == str(tmp_path / "none.toml")
    assert reported.keys() >= FAULT
    assert "none.toml: No such file" in done.stderr


def test_a_folder_that_holds_a_run_is_in_the_way(place: Place) -> None:
    """Code 5, nothing recorded, and nothing of what is there is touched."""
    job = place.job("taken")
    place.run(job)
    size, log = len(place.kinds()), (place.folder / "runs" / "taken" / "steps.log").read_bytes()
    done = _invoke("train", job, "--json")
    reported = _fault(done.stdout)
    assert (done.exit_code, reported["field"]) == (5, str(place.folder / "jobs" / "../runs/taken"))
    assert "holds a run already" in reported["detail"]
    assert len(place.kinds()) == size
    assert (place.folder / "runs" / "taken" / "steps.log").read_bytes() == log


def test_data_that_do_not_open_cost_nothing_and_what_was_recorded_is_said(place: Place) -> None:
    """A file that was cut: code 1, the entries, and a charge posted for no steps, since no step can have begun."""
    kept = place.sealed.read_bytes()
    place.sealed.write_bytes(kept[:-1])
    try:
        size = len(place.kinds())
        done = _invoke("train", place.job("shut"), "--json")
    finally:
        place.sealed.write_bytes(kept)
    reported = _fault(done.stdout)
    assert (done.exit_code, reported["exit_code"], reported["code"]) == (1, 1, "malformed")
    assert reported["field"] == f"train.data.{place.ref}"
    assert f"Recorded: entries {size}, {size + 1}, {size + 2}." in done.stderr
    assert "posted for none and the budget is as before" in done.stderr
    assert place.kinds()[size:] == [("charge", "pending"), ("key_release", "permitted"), ("post", "posted")]
    charge = place.charge("shut")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 0)


def test_data_that_do_not_open_leave_the_charge_to_a_run_that_resumes(place: Place) -> None:
    """With the right file in its place the same run goes on, so nothing is posted for it."""
    kept, job = place.sealed.read_bytes(), place.job("ajar")
    job.write_text(job.read_text() + RESUME.format(name="ajar"))
    place.sealed.write_bytes(kept[:-1])
    try:
        assert _invoke("train", job).exit_code == 1
    finally:
        place.sealed.write_bytes(kept)
    charge = place.charge("ajar")
    assert charge is not None
    assert charge.state is ChargeState.PENDING
    assert _invoke("train", job, "--resume").exit_code == 0


def test_a_key_that_is_refused_says_how_its_charge_is_voided(place: Place) -> None:
    """By the consumer's own command, with which all of it returns."""
    job, size = place.job("strange"), len(place.kinds())
    job.write_text(job.read_text().replace("../keys/attester.pem", "../keys/bank.pem"))
    done = _invoke("train", job)
    assert (done.exit_code, place.kinds()[size:]) == (3, [("charge", "pending"), ("key_release", "policy_denied")])
    assert "No data key was released, so `epsilon charge void PROFILE strange` returns all of it." in done.stderr


def test_a_service_of_another_log_is_not_believed(place: Place) -> None:
    """Code 7: what it shows does not stand under the job's log key; nothing is charged, no key asked for."""
    job, size = place.job("stranger"), len(place.kinds())
    other = LogKey(place.address.log.origin, bytes(range(32)))
    job.write_text(job.read_text().replace(place.address.log.vkey, other.vkey))
    done = _invoke("train", job, "--json")
    assert (done.exit_code, _fault(done.stdout)["exit_code"]) == (7, 7)
    assert "Nothing was recorded." in done.stderr
    assert len(place.kinds()) == size


def test_a_refused_charge_leaves_the_folder_free(place: Place) -> None:
    """Code 3 names its entry; the next command is told that the id is used, and not that a file exists."""
    job = place.job("dear")
    text = job.read_text() + RESUME.format(name="dear")
    job.write_text(text.replace("noise_multiplier = ", 'noise_multiplier = "1" # '))
    size = len(place.kinds())
    done = _invoke("train", job, "--json")
    assert (done.exit_code, _fault(done.stdout)["index"]) == (3, size)
    assert f"Recorded: entry {size}. Change the fields above and retry under a new id and output" in done.stderr
    job.write_text(text)
    again = _invoke("train", job, "--json")
    assert (again.exit_code, _fault(again.stdout)["code"]) == (5, "id_reused")
    assert len(place.kinds()) == size + 1


def test_a_key_that_is_withheld_for_a_while_is_requested_until_it_comes(place: Place) -> None:
    """The release is recorded once, the process asks on, and the run that has no [train.resume] is not lost."""
    key = next((place.folder / "data-keys").glob("did*/*"))
    held = key.rename(key.with_suffix(".held"))
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if "key_withheld" in line:
            held.rename(key)

    assert place.run(place.job("withheld"), say).steps == PLAN.steps
    assert sum("key_withheld" in line and "retrying for up to" in line for line in said) == 1
    lease = ("step_lease", "permitted")
    assert place.kinds()[-6:-2] == [("key_release", "permitted"), lease, lease, ("post", "posted")]


def test_a_challenge_that_was_forgotten_is_requested_anew(place: Place) -> None:
    """As after minutes without a service: the first release is refused unrecorded, the second one is permitted."""
    requested: list[str] = []

    def save(identity: CleanRoomIdentity) -> None:
        if identity.release is not None:
            requested.append(identity.release[0])
            # After the challenge, before the release is sent: a challenge lives two minutes.
            place.clock.ahead_ms += 121_000 if len(requested) == 1 else 0

    session = Session(place.assignment("anew"), place.service, lambda _: None, save=save)
    session.charge()
    assert session.open_data().keys() == {place.ref}
    charge = place.charge("anew")
    assert charge is not None
    assert (len(requested), charge.key_release) == (2, requested[1])
    assert place.kinds()[-2:] == [("charge", "pending"), ("key_release", "permitted")]


def test_nothing_to_open_is_reported_before_an_opening(place: Place) -> None:
    """A job that never ran: code 4, by the file that is missing, for both commands that open models."""
    job, size = place.job("unrun"), len(place.kinds())
    for name in ("evaluate", "release"):
        done = _invoke(name, job, "--json")
        assert (done.exit_code, "model.sealed" in json.loads(done.stdout)["field"]) == (4, True)
    assert len(place.kinds()) == size


def test_a_released_model_needs_no_opening(place: Place) -> None:
    """Said so, rather than that a sealed one is missing; nothing is recorded."""
    job, size = place.job("released"), len(place.kinds())
    (place.folder / "runs" / "released").mkdir()
    (place.folder / "runs" / "released" / "model.safetensors").write_bytes(b"weights")
    for name in ("evaluate", "release"):
        reported = json.loads(_invoke(name, job, "--json").stdout)
        assert (reported["field"], "needs no opening" in reported["detail"]) == ("output", True)
    assert len(place.kinds()) == size


def test_a_service_that_keeps_no_keys_opens_no_model(tmp_path: Path) -> None:
    """Said before an opening is recorded, which would hand over nothing."""
    with open_place(tmp_path / "place", authorise_only=True) as place:
        job = place.job("run-1")
        (place.folder / "runs" / "run-1").mkdir()
        (place.folder / "runs" / "run-1" / "model.sealed").write_bytes(b"sealed")
        size = len(place.kinds())
        done = _invoke("evaluate", job, "--json")
        assert (done.exit_code, json.loads(done.stdout)["code"]) == (4, "not_found")
        assert "stores no keys" in done.stderr
        assert len(place.kinds()) == size
        assert place.charge("run-1") is None
