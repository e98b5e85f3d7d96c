"""Data keys that providers grant themselves: waited for, and checked as the service's own would be."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from api.demo import digits, participants
from api.demo.participants import Organisation
from client.dataset_files.stored_partition import StoredPartition
from client.keys.data_encryption import encrypt
from client.keys.hpke_envelope import SUITE, seal
from ledger.domain.outcomes import ChargeState
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.job.job_spec import Job
from trainer_adapter.run.charged_run import Run
from trainer_adapter.run.run_folder import LOG_FILE
from trainer_adapter.session.key_grants import GRANT_BYTES_MAX, NotGranted, ProviderGrants

REF = "did:web:h.example/d/q3"
KEY, RECORDS = bytes(range(32)), b"records"
RESUME = '\n[train.resume]\nkey = "../keys/run-1.room"\nevery_s = 0\n'
INFO: c.Object = {
    "charge": "run-1",
    "contract": "ab" * 32,
    "entry": 7,
    "evidence": "cd" * 32,
    "key_release": "release-1",
    "not_after": 1_800_000_000_000,
    "v": 1,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A service that authorises only; each test has a run of its own."""
    with open_place(tmp_path_factory.mktemp("grants") / "place", authorise_only=True) as found:
        yield found


def _waiting(place: Place, name: str, extra: str = "") -> Path:
    job = place.job(name)
    job.write_text(job.read_text().replace("[train]", '[train]\ngrants = "../grants"', 1) + extra)
    return job


def _granted(place: Place, command: str, key: bytes) -> None:
    """Run the command that the clean room told, as the provider: with its profile and the file of its key."""
    file = place.folder / "data.key"
    file.touch(mode=0o600)
    file.write_bytes(key)
    line = command.strip().replace("PROFILE", str(place.profile(place.tdp)))
    line = line.replace("=FILE", f"={file}")
    shell = line.replace("epsilon", f"{shlex.quote(sys.executable)} -m epsilon_ledger", 1)
    subprocess.run(shell, shell=True, check=True)  # noqa: S602 - as a person pastes it


class Trainer:
    """``epsilon train`` in a process of its own, with what it has told."""

    def __init__(self, job: Path, *more: str) -> None:
        """Start it."""
        command = [sys.executable, "-m", "epsilon_ledger", "train", str(job), "--json", *more]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)

    def until(self, word: str) -> str:
        """The first stage that says so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            text = str(json.loads(line).get("text", ""))
            if word in text:
                return text
        raise AssertionError(word)

    def end(self) -> dict[str, object]:
        """The last event, once the process has ended."""
        assert self.process.stdout is not None
        *_, last = self.process.stdout
        self.process.wait()
        self.process.stdout.close()
        found: dict[str, object] = json.loads(last)
        return found


def test_a_run_waits_for_its_key_is_killed_goes_on_and_gets_it(place: Place) -> None:
    """Train and grant, both as commands: the same key release before and after the kill, and the model is trained."""
    job = _waiting(place, "run-1", RESUME)
    first = Trainer(job)
    reported = first.until("epsilon key grant")
    first.process.send_signal(signal.SIGKILL)
    first.process.wait()
    assert first.process.stdout is not None
    first.process.stdout.close()
    second = Trainer(job, "--resume")
    assert second.until("epsilon key grant") == reported
    _granted(place, reported, place.data_key)
    report = second.end()
    assert (report["event"], report["steps"]) == ("report", PLAN.steps)
    charge = place.charge("run-1")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, PLAN.steps)
    assert [kind for kind, _ in place.kinds()].count("key_release") == 1


def test_where_nobody_gives_a_key_nothing_is_charged(place: Place) -> None:
    """The service says of each partition whose its key is to give; a job that waits for no grant is refused by name."""
    assert place.service.partition(place.ref)["data_key_from"] == "provider"
    size = len(place.kinds())
    with pytest.raises(Malformed, match=r"^grants: must name a folder: the service gives no data key"):
        place.run(place.job("unarmed"))
    assert len(place.kinds()) == size
    assert not Job.load(place.job("unarmed")).output.exists()


def _wait_until(place: Place, name: str, reported: object, extra: str = "") -> NotGranted:
    """Wait with a file that is no envelope; ``told`` is called when the clean room says so, while it waits."""
    assert callable(reported)

    def say(line: str) -> None:
        if "epsilon key grant" in line:
            Path(line.rpartition(" > ")[2]).write_text("{")
        elif "is not taken" in line:
            reported()

    with pytest.raises(NotGranted) as caught:
        place.run(_waiting(place, name, extra), say)
    return caught.value


def test_a_signal_ends_the_wait_and_gives_the_charge_back(place: Place) -> None:
    """No step was taken and the keys die with the process: no steps are posted. A run that may go on posts nothing."""
    fault = _wait_until(place, "stopped", lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert "stopped by SIGTERM" in str(fault)
    kept = _wait_until(place, "kept", lambda: os.kill(os.getpid(), signal.SIGINT), RESUME.replace("run-1", "kept"))
    assert (fault.posted, kept.posted) == (True, False)
    stopped, pending = place.charge("stopped"), place.charge("kept")
    assert stopped is not None
    assert pending is not None
    assert (stopped.state, stopped.steps_posted) == (ChargeState.POSTED, 0)
    assert pending.state is ChargeState.PENDING


def test_the_deadline_ends_the_wait_before_the_whole_charge_is_posted(place: Place) -> None:
    """A little before it, so that the post of no steps still counts."""

    def later() -> None:
        place.clock.ahead_ms += 3_580_000

    assert "the deadline of the charge is near" in str(_wait_until(place, "late", later))
    charge = place.charge("late")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.POSTED, 0)


@pytest.mark.parametrize("put_back", [False, True], ids=["whole-log", "log-put-back"])
def test_a_resumed_run_that_gets_no_key_again_posts_what_its_log_shows(tmp_path: Path, *, put_back: bool) -> None:
    """Its first process took 3 steps of a block of 10; with a log of fewer than the service knows of, nothing."""
    with open_place(tmp_path / "place", authorise_only=True) as place:
        path = _waiting(place, "run-1", RESUME)
        path.write_text(path.read_text().replace("[train]", "[train]\nstep_leases = false", 1))
        job = Job.load(path)
        _three_steps(place, job)
        if put_back:
            (job.output / LOG_FILE).unlink()

        def later(line: str) -> None:
            if "--data-key" in line:
                place.clock.ahead_ms += 3_580_000

        with pytest.raises(NotGranted) as caught:
            Run(job, place.service, later, resume=True).open_data()
        # Not for no steps, which is what it says.
        assert not caught.value.posted
        charge = place.charge("run-1")
    assert charge is not None
    shown = (ChargeState.PENDING, None) if put_back else (ChargeState.POSTED, 10)
    assert (charge.state, charge.steps_posted) == shown


def _three_steps(place: Place, job: Job) -> None:
    """By a process that dies, which lets go of its folder; the key that it was granted is not there afterwards."""

    def grant(line: str) -> None:
        if "--data-key" in line:
            _granted(place, line, place.data_key)

    run = Run(job, place.service, grant)
    run.open_data()
    budget = run.begin()
    assert [budget.next_step() for _ in range(3)] == [1, 2, 3]
    run.session.charge_status.report_progress(3)
    run._stack.close()  # noqa: SLF001 - the block's end would post
    for envelope in (place.folder / "grants").iterdir():
        envelope.unlink()


def test_one_key_by_the_service_and_another_by_grant(tmp_path: Path) -> None:
    """A store that keeps one provider's keys, a charge on two providers' partitions: both open, in the job's order."""
    with open_place(tmp_path / "place") as place:
        ref, contract = _with_a_clinic(place)
        job = place.job("both")
        both = f'[train.data]\n"{ref}" = "../data/clinic.sealed"'
        text = job.read_text().replace("[train.data]", both).replace(place.contract, contract)
        job.write_text(text.replace("[train]", '[train]\ngrants = "../grants"', 1))
        said: list[str] = []

        def say(line: str) -> None:
            said.append(line)
            if "epsilon key grant" in line:
                _granted(place, line, KEY)

        reported = [place.service.partition(one)["data_key_from"] for one in (ref, place.ref)]
        assert reported == ["provider", "service"]
        assert place.run(job, say).steps == PLAN.steps
        (command,) = [line for line in said if "epsilon key grant" in line]
        assert ref in command
        assert place.ref not in command


def _with_a_clinic(place: Place) -> tuple[str, str]:
    """A second provider, which keeps its key ``KEY`` to itself: its partition, and a contract with both."""
    clinic = Organisation.create(place.folder / "keys", "clinic", "clinic", "TDP", place.enrol)
    clinic.register(place.sro)
    clinic.enter("dataset", participants.dataset(clinic))
    clinic.submit("partition", participants.partition(clinic, "2026-q3", digits.RECORDS))
    ref = f"{clinic.did}/{participants.DATASET}/2026-q3"
    (place.folder / "data" / "clinic.sealed").write_bytes(encrypt(KEY, ref, digits.archive(digits.SECOND)))
    one = participants.contract(place.tdp, place.bank, place.clock() // 1000 * 1000)
    datasets: list[c.Json] = [{"dataset": participants.DATASET, "provider": of.did} for of in (clinic, place.tdp)]
    joint: c.Object = {**one, "id": "digits-joint", "datasets": datasets, "tdps": [clinic.did, place.tdp.did]}
    contract, _ = place.bank.enter("contract", joint, place.tdp, clinic)
    place.tdp = clinic
    return ref, contract


def _envelope(sealing: X25519PrivateKey, key: bytes = KEY, ref: str = REF, **changes: c.Json) -> c.Object:
    x = c.base64url(sealing.public_key().public_bytes_raw())
    info: c.Object = {**INFO, **changes}
    return {"info": info, "sealed": {ref: seal(key, x, info, ref)}, "suite": SUITE, "v": 1}


def _grants(folder: Path, sealing: X25519PrivateKey, said: list[str]) -> ProviderGrants:
    expected: c.Object = {name: INFO[name] for name in INFO if name != "v"}
    sealed = folder.parent / "records.sealed"
    sealed.write_bytes(encrypt(KEY, REF, RECORDS))
    return ProviderGrants(folder, "release-1", sealing, expected, {REF: StoredPartition(sealed)}, said.append)


OTHER = X25519PrivateKey.generate()
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "foreign-charge": ({"charge": "run-2"}, "envelope.info.charge: is not what"),
    "foreign-release": ({"key_release": "release-2"}, "envelope.info.key_release: is not what"),
    "another-contract": ({"contract": "ef" * 32}, "envelope.info.contract: is not what"),
    "another-entry": ({"entry": 8}, "envelope.info.entry: is not what"),
    "expired": ({"not_after": 1_700_000_000_000}, "envelope.info.not_after: is not what"),
    "another-room": ({"sealing": OTHER}, "does not open with this key"),
    "another-key": ({"key": bytes(32)}, "does not open with the data key"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_envelope_is_reported_once_and_the_right_one_is_still_taken(tmp_path: Path, name: str) -> None:
    """Whatever is wrong of it: nothing opens, and it is not looked at again."""
    sealing, said = X25519PrivateKey.generate(), list[str]()
    grants = _grants(tmp_path, sealing, said)
    changes, says = WRONG[name]
    given: dict[str, Any] = {"sealing": sealing, **changes}
    (tmp_path / "release-1.json").write_bytes(c.dump(_envelope(**given)))
    assert (grants.look(), grants.look()) == ({}, {})
    assert len(said) == 1
    assert says in said[0]
    (tmp_path / "release-1.2.json").write_text(json.dumps(_envelope(sealing), indent=2))
    assert grants.look() == {REF: RECORDS}
    assert not grants.stored


def test_what_is_not_this_release_s_is_left_alone(tmp_path: Path) -> None:
    """Other names, other suffixes and empty files are not opened; what is half written is looked at again."""
    sealing, said = X25519PrivateKey.generate(), list[str]()
    grants = _grants(tmp_path, sealing, said)
    whole = c.dump(_envelope(sealing))
    for name in ("release-10.json", "release-2.json", "release-1.txt", "release-1", "notes.json"):
        (tmp_path / name).write_bytes(whole)
    path = tmp_path / "release-1.json"
    path.touch()
    assert (grants.look(), said) == ({}, [])
    for part in (whole[: len(whole) // 2], b"x" * (GRANT_BYTES_MAX + 1)):
        path.write_bytes(part)
        assert grants.look() == {}
    assert len(said) == 2
    path.write_bytes(whole)
    assert grants.look() == {REF: RECORDS}


def test_a_folder_that_is_away_for_a_while_is_reported_once_and_read_when_it_is_back(tmp_path: Path) -> None:
    """As one on another machine: nothing is lost but time."""
    sealing, said = X25519PrivateKey.generate(), list[str]()
    folder = tmp_path / "grants"
    grants = _grants(folder, sealing, said)
    assert (grants.look(), grants.look()) == ({}, {})
    assert len(said) == 1
    assert "cannot be read" in said[0]
    folder.mkdir()
    (folder / "release-1.json").write_bytes(c.dump(_envelope(sealing)))
    assert grants.look() == {REF: RECORDS}


def test_a_partition_that_the_run_does_not_wait_for_is_not_taken(tmp_path: Path) -> None:
    """An envelope for another one opens nothing."""
    sealing, said = X25519PrivateKey.generate(), list[str]()
    grants = _grants(tmp_path, sealing, said)
    (tmp_path / "release-1.json").write_bytes(c.dump(_envelope(sealing, ref=f"{REF}-other")))
    assert grants.look() == {}
    assert set(grants.stored) == {REF}
