"""One clean room, one run, against a real service: whatever breaks, the charge stands and nothing is understated."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import pytest
from msgspec import structs

from api.demo import digits
from client.http.problems import Refused
from client.keys.data_encryption import decrypt, encrypt
from client.keys.signer import Signer
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.plan import Plan
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.run.charged_run import Run


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A service with everything that one run needs."""
    with open_place(tmp_path / "place") as found:
        yield found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """One such service for the tests that leave it as it was, but for a run of their own name."""
    with open_place(tmp_path_factory.mktemp("train") / "place") as found:
        yield found


def _steps_begun(place: Place, name: str) -> int:
    lines = (place.folder / "runs" / name / "steps.log").read_text(encoding="ascii").splitlines()
    return int(json.loads(lines[-1])["last"])


def test_a_whole_run(shared: Place) -> None:
    """Charge, key, data, steps, post, model: in this order, and the model's file has the digest released."""
    report = shared.run(shared.job("whole"))
    assert shared.kinds()[-7:] == [
        ("charge", "pending"),
        ("key_release", "permitted"),
        ("step_lease", "permitted"),
        ("step_lease", "permitted"),
        ("post", "posted"),
        ("release_notice", "permitted"),
        ("model_release", "permitted"),
    ]
    charge = shared.charge("whole")
    assert charge is not None
    assert (charge.state, charge.steps_posted, report.steps) == (ChargeState.POSTED, PLAN.steps, PLAN.steps)
    assert report.accuracy > 0.3
    assert report.model


def test_a_pipeline_is_bound_to_the_charge_and_to_the_evidence(place: Place) -> None:
    """Where the policy asks for one a run without is refused; one that names a file is charged and gets its key."""
    place.republish(pipeline=True)
    with pytest.raises(Refused) as caught:
        place.run(place.job("run-1"))
    assert {reason.code for reason in caught.value.reasons} == {"pipeline_not_named"}
    (place.folder / "jobs" / "pipeline.json").write_text('{"pipeline": []}')
    job = place.job("run-2")
    job.write_text(job.read_text().replace("[train]", '[train]\npipeline = "pipeline.json"'))
    place.run(job)
    charge = place.charge("run-2")
    assert charge is not None
    assert charge.pipeline == hashlib.sha256(b'{"pipeline": []}').hexdigest()
    assert charge.key_release is not None


def test_what_a_job_states_its_charge_states(place: Place) -> None:
    """A model it starts from, a recipient, and records of one unit after joins, which make the run dearer."""
    gentle = Plan(Fraction(1, 2), Fraction(32), Fraction(1), 2, digits.RECORDS // 2)
    place.run(place.job("run-1", gentle))
    job = place.job("run-2", gentle)
    stated = f'base = ["run-1"]\nrecipients = ["{place.bank.did}"]\nunit_records_max = 2\n'
    job.write_text(job.read_text().replace("[train]", f"[train]\n{stated}"))
    place.run(job)
    one, two = place.charge("run-1"), place.charge("run-2")
    assert one is not None
    assert two is not None
    assert (two.base, two.recipients) == (("run-1",), (place.bank.did,))
    cheap, dear = (found.prices[0][1][0].price[0] for found in (one, two))
    assert cheap is not None
    assert dear is not None
    assert dear > cheap


def test_a_run_that_ends_early_posts_what_it_began(shared: Place) -> None:
    """A target met at once: the first block ran, and it and the block leased ahead are posted, the rest is not."""
    plan = structs.replace(PLAN, steps=40, noise_multiplier=2 * PLAN.noise_multiplier)
    report = shared.run(shared.job("early", plan, accuracy_target="0"))
    charge = shared.charge("early")
    assert charge is not None
    assert (report.steps, charge.steps_posted) == (10, 20)
    assert _steps_begun(shared, "early") == 10


def test_a_refused_charge_gets_no_key_and_no_noise(shared: Place) -> None:
    """The policy denies a run of this ε: the refusal is recorded and nothing follows."""
    loud = Plan(Fraction(1, 2), Fraction(1), Fraction(1), 20, digits.RECORDS // 2)
    with pytest.raises(Refused) as caught:
        shared.run(shared.job("loud", loud))
    assert caught.value.code == "policy_denied"
    assert {reason.code for reason in caught.value.reasons} >= {"run_above_policy", "run_above_contract"}
    assert shared.kinds()[-1] == ("charge", "policy_denied")
    assert not list((shared.folder / "runs" / "loud").iterdir())


def test_evidence_by_an_attester_that_the_policy_does_not_pin(shared: Place) -> None:
    """The key is withheld, the denial recorded; the charge stays pending until its deadline."""
    Signer.generate().save(shared.folder / "keys" / "other.pem")
    job = shared.job("unpinned")
    job.write_text(job.read_text().replace("attester.pem", "other.pem"))
    with pytest.raises(Refused) as caught:
        shared.run(job)
    assert caught.value.code == "policy_denied"
    assert "attestation_signature" in {reason.code for reason in caught.value.reasons}
    assert shared.kinds()[-1] == ("key_release", "policy_denied")
    charge = shared.charge("unpinned")
    assert charge is not None
    assert charge.state is ChargeState.PENDING
    assert charge.key_release is None
    assert not list((shared.folder / "runs" / "unpinned").iterdir())


def _flipped(place: Place) -> bytes:
    stored = place.sealed.read_bytes()
    return stored[:-20] + bytes([stored[-20] ^ 1]) + stored[-19:]


def _of_another_partition(place: Place) -> bytes:
    return encrypt(place.data_key, f"{place.ref}-other", digits.archive(digits.FIRST))


def _under_another_key(place: Place) -> bytes:
    return encrypt(bytes(32), place.ref, digits.archive(digits.FIRST))


def _no_archive(place: Place) -> bytes:
    return encrypt(place.data_key, place.ref, b"PK\x03\x04 Mrs Rao, 47")


def test_data_that_open_and_hold_no_archive(place: Place) -> None:
    """The room had the records, so the whole charge stands: the run ends before its first noise, and quotes none."""
    place.sealed.write_bytes(_no_archive(place))
    with pytest.raises(Malformed) as caught:
        place.run(place.job("run-1"))
    assert "Rao" not in str(caught.value)
    charge = place.charge("run-1")
    assert charge is not None
    assert (charge.state, charge.steps_posted) == (ChargeState.PENDING, None)
    with place.book.read() as facts:
        account = facts.accounts[place.ref, "global"]
    assert min(account.pending.finite[:-1]) > 0


@pytest.mark.parametrize("stored", [_flipped, _of_another_partition, _under_another_key])
def test_data_that_do_not_open(place: Place, stored: object) -> None:
    """A partition stayed closed, so no step was taken, and that is posted; no record is quoted."""
    assert callable(stored)
    place.sealed.write_bytes(stored(place))
    with pytest.raises(Malformed) as caught:
        place.run(place.job("run-1"))
    assert "Rao" not in str(caught.value)
    charge = place.charge("run-1")
    assert charge is not None
    assert (charge.state, charge.steps_posted, charge.model) == (ChargeState.POSTED, 0, None)
    assert charge.key_release is not None
    with place.book.read() as facts:
        account = facts.accounts[place.ref, "global"]
    assert not any((*account.pending.finite, *account.posted.finite))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('model = "digits-linear"', 'model = "os.system"'), "model: must be one of"),
        (("2026-q3.sealed", "nowhere.sealed"), "nowhere.sealed"),
        (("[train]", '[train]\npipeline = "nowhere.json"'), "nowhere.json"),
        (("test.npz", "book.sqlite"), "book.sqlite"),
        (("data/test.npz", "jobs/run-1.toml"), "test: run-1.toml is neither a table nor an archive"),
    ],
)
def test_what_can_fail_before_the_charge_does(shared: Place, change: tuple[str, str], says: str) -> None:
    """No budget is spent on a name mistyped."""
    size = len(shared.kinds())
    job = shared.job("run-1")
    job.write_text(job.read_text().replace(*change))
    with pytest.raises((Malformed, OSError), match=says):
        shared.run(job)
    assert len(shared.kinds()) == size


def test_a_second_run_into_the_same_folder_is_refused_before_it_is_charged(shared: Place) -> None:
    """What a run has left is never written over."""
    shared.run(shared.job("twice"))
    size = len(shared.kinds())
    with pytest.raises(FileExistsError):
        shared.run(shared.job("twice"))
    assert len(shared.kinds()) == size


def test_a_trainer_killed_in_a_block_leaves_the_whole_charge_standing(place: Place) -> None:
    """SIGKILL after a step: nothing is posted, all of it is pending, and the step log covers what was seen."""
    plan = Plan(Fraction(1, 2), Fraction(200), Fraction(1), 50_000, digits.RECORDS // 2)
    command = [sys.executable, "-m", "epsilon_ledger", "train", str(place.job("run-1", plan)), "--json"]
    seen, reported = 0, list[Fraction]()
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            seen = event.get("step", seen)
            if "epsilon" in event:
                reported.append(Fraction(event["epsilon"]))
                assert event["partition"] == place.ref
            if seen == 13:
                process.send_signal(signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL
    charge = place.charge("run-1")
    assert charge is not None
    assert charge.state is ChargeState.PENDING
    assert charge.steps_posted is None
    assert seen <= _steps_begun(place, "run-1")
    # Beside each step stands the ε of the whole plan, from the first step on.
    assert reported[0] > 0
    assert reported == [reported[0]] * seen
    price = dict(charge.prices)[place.ref][0].price
    whole = tuple((unit or 0) * plan.steps for unit in price)
    with place.book.read() as facts:
        assert facts.accounts[place.ref, "global"].pending.finite == whole
    # Never resumed: past its deadline, whatever is asked next finds all of it posted.
    place.clock.ahead_ms += 2 * 3_600_000
    Run(place.assignment("run-2"), place.service).plan()
    with place.book.read() as facts:
        assert facts.accounts[place.ref, "global"].posted.finite == whole


def test_data_at_rest() -> None:
    """They open with their key, in their place, whole; and with nothing else."""
    key, data = bytes(range(32)), b"records"
    stored = encrypt(key, "did:web:h.example/d/q3", data)
    assert decrypt(key, "did:web:h.example/d/q3", stored) == data
    assert encrypt(key, "did:web:h.example/d/q3", data) != stored
    for place in range(len(stored)):
        changed = stored[:place] + bytes([stored[place] ^ 0x80]) + stored[place + 1 :]
        with pytest.raises(Malformed, match="does not open"):
            decrypt(key, "did:web:h.example/d/q3", changed)
        with pytest.raises(Malformed, match="does not open"):
            decrypt(key, "did:web:h.example/d/q3", stored[:place])
    for other, where in ((bytes(32), "did:web:h.example/d/q3"), (key, "did:web:h.example/d/q4")):
        with pytest.raises(Malformed, match="does not open"):
            decrypt(other, where, stored)
