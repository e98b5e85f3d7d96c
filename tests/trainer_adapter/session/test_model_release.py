"""A model whose providers want notice: it waits, in the process or sealed in its folder, and then it leaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from client.http.problems import Refused
from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from tests.trainer_adapter.live_service import Place, open_place
from trainer_adapter.cli.evaluate import measure, release
from trainer_adapter.cli.main import app
from trainer_adapter.cli.train import train_job
from trainer_adapter.job.job_spec import Job
from trainer_adapter.session.model_release import SealedContents

HOUR_MS = 3_600_000


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place whose policy wants a day's notice."""
    with open_place(tmp_path / "place", notice_hours=24) as found:
        yield found


def _outcomes(place: Place, kind: str) -> list[str]:
    return [outcome for one, outcome in place.kinds() if one == kind]


def test_a_model_leaves_by_a_later_command(place: Place) -> None:
    """Too soon after the run and after 23 hours; after 24 the very model that was announced leaves, told once."""
    path, said = place.job("run-1"), list[str]()
    job = Job.load(path)
    report = train_job(job, place.service, said.append)
    assert report.model == ""
    assert [file.name for file in sorted(job.output.iterdir())] == ["model.sealed", "steps.log"]
    assert any("the end of the notice period 20" in line for line in said)
    place.clock.ahead_ms = 23 * HOUR_MS
    with pytest.raises(Refused) as caught:
        release(job, place.service, said.append)
    assert [reason.code for reason in caught.value.reasons] == ["release_too_soon"]
    assert not (job.output / "model.safetensors").exists()
    place.clock.ahead_ms = 24 * HOUR_MS
    name = release(job, place.service, said.append)
    assert c.digest((job.output / "model.safetensors").read_bytes()) == name
    charge = place.charge("run-1")
    assert charge is not None
    assert [model for model, _ in charge.notices] == [name]
    assert _outcomes(place, "model_release") == ["policy_denied", "policy_denied", "permitted"]
    assert measure(job, place.service, said.append).accuracy == report.accuracy


def test_a_run_waits_for_the_notice(place: Place) -> None:
    """It asks again less and less often, at most once an hour, sealed meanwhile; and leaves when it may."""
    job, pauses = Job.load(place.job("run-1")), list[float]()

    def pause(seconds: float) -> None:
        assert (job.output / "model.sealed").exists()
        pauses.append(seconds)
        place.clock.ahead_ms += int(seconds * 1000)

    report = train_job(job, place.service, lambda _: None, pause=pause)
    assert c.digest((job.output / "model.safetensors").read_bytes()) == report.model
    assert pauses[:7] == [60, 120, 240, 480, 960, 1920, 3600]
    assert set(pauses[7:]) == {3600}
    assert 24 * HOUR_MS <= sum(pauses) * 1000 < 25 * HOUR_MS + 1000
    assert _outcomes(place, "model_release") == ["policy_denied", "permitted"]


def test_a_wait_that_is_broken_off_loses_nothing(place: Place) -> None:
    """Interrupted while it waits: the model is sealed in its folder, and leaves by a later command."""
    job = Job.load(place.job("run-1"))

    def interrupted(_: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_job(job, place.service, lambda _: None, pause=interrupted)
    place.clock.ahead_ms = 24 * HOUR_MS
    assert release(job, place.service, lambda _: None)


def test_a_model_that_may_never_leave_is_not_waited_for(tmp_path: Path) -> None:
    """Level 2: refused for good, at once, and by a later command too; only its waiting room keeps it."""
    with open_place(tmp_path / "place", level=2, model_release=False) as place:
        job = Job.load(place.job("run-1"))

        def never(_: float) -> None:
            raise AssertionError

        assert train_job(job, place.service, lambda _: None, pause=never).model == ""
        with pytest.raises(Refused, match=r"not allowed|Level"):
            release(job, place.service, lambda _: None, never)
        assert [file.name for file in sorted(job.output.iterdir())] == ["model.sealed", "steps.log"]


def test_the_command_tells_why_not(place: Place) -> None:
    """Too soon: exit code 3 and the reason, for people and for programs; no model is written."""
    path = place.job("run-1")
    place.run(path)
    done = CliRunner().invoke(app, ["release", str(path), "--json"])
    reported = json.loads(done.stdout)
    assert (done.exit_code, reported["exit_code"], reported["code"]) == (3, 3, "policy_denied")
    assert [reason["code"] for reason in reported["reasons"]] == ["release_too_soon"]
    assert "policy_denied (release_too_soon): the end of the notice period 20" in done.stderr
    assert not (place.folder / "runs" / "run-1" / "model.safetensors").exists()


def test_the_command_releases(place: Place) -> None:
    """A next version of the policy wants no notice: asked again, the model leaves, and its digest is told."""
    path = place.job("run-1")
    place.run(path)
    place.republish(notice_hours=0)
    done = CliRunner().invoke(app, ["release", str(path)])
    data = (place.folder / "runs" / "run-1" / "model.safetensors").read_bytes()
    assert (done.exit_code, done.stdout) == (0, f"run-1: released as {c.digest(data)}\n")


def test_a_kept_model_is_read_as_it_was_written() -> None:
    """Model and key come back; what is cut, of another kind or has another key's length is refused."""
    signer = Signer.generate()
    data = SealedContents(b"\x00\nweights\n", signer).to_bytes()
    found = SealedContents.parse(data)
    assert (found.model, found.signer.key_id) == (b"\x00\nweights\n", signer.key_id)
    head, _, model = data.partition(b"\n")
    short = head.replace(c.base64url(signer.secret()).encode(), c.base64url(signer.secret()[:31]).encode())
    for wrong in (b"", head, head.replace(b"kept_model", b"kept_thing") + b"\n", short + b"\n" + model):
        with pytest.raises(Malformed):
            SealedContents.parse(wrong)
