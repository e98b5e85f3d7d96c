"""A run whose charge is recorded keeps what its clean room needs to go on, whatever is refused afterwards."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from client.http.access_tokens import ClientCredentials
from client.http.problems import Refused
from client.keys.signer import Signer
from client.service.service import Service
from ledger.domain.outcomes import ChargeState
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.cli.train import train_job
from trainer_adapter.job.job_spec import Job

RESUME = '\n[train.resume]\nkey = "../keys/{name}.room"\nevery_s = 0\n'


def _job(place: Place, name: str) -> Job:
    path = place.job(name)
    path.write_text(path.read_text() + RESUME.format(name=name))
    return Job.load(path)


def test_a_refusal_after_the_charge_leaves_the_identity(tmp_path: Path) -> None:
    """The clean room's clock goes wrong once it is charged: the charge is pending, and its keys are needed to go on."""
    with open_place(tmp_path / "place") as place:
        job = _job(place, "skewed")

        def clock() -> float:
            return time.time() + (0 if place.charge("skewed") is None else 3_600)

        consumer = ClientCredentials(job.issuer, job.actor, Signer.load(job.key), job.log.origin)
        with Service(job.service, consumer, clock=clock) as skewed, pytest.raises(Refused) as caught:
            train_job(job, skewed, lambda _: None)
        assert caught.value.status == 401
        charge = place.charge("skewed")
        assert charge is not None
        assert charge.state is ChargeState.PENDING
        assert (job.output / "room.state").exists()
        assert train_job(job, place.service, lambda _: None, resume=True).steps == PLAN.steps
        assert ("post", "posted") in place.kinds()


def test_a_refused_charge_leaves_no_identity(tmp_path: Path) -> None:
    """Nothing was charged, so there is nothing to go on with."""
    with open_place(tmp_path / "place", run={"epsilon_max": "0.001"}) as place:
        job = _job(place, "dear")
        with pytest.raises(Refused):
            train_job(job, place.service, lambda _: None)
        assert place.charge("dear") is None
        assert not (job.output / "room.state").exists()
