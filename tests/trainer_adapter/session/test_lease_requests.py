"""Leases and generations asked of a service, one that knows them and one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs
from torch.nn.functional import cross_entropy

from client.http.access_tokens import ClientCredentials
from client.http.problems import Refused
from client.keys.signer import Signer
from client.service.answers import Answer
from client.service.service import Service
from ledger.wire import canonical_json as c
from tests.trainer_adapter.live_service import PLAN, Place, open_place
from trainer_adapter.cli.train import train_job
from trainer_adapter.job.job_spec import Job
from trainer_adapter.session.clean_room_identity import CleanRoomIdentity
from trainer_adapter.training.attach import attach
from trainer_adapter.training.run_options import Options

QUIET = structs.replace(PLAN, noise_multiplier=Fraction(80))


class Older(Service):
    """A service that does not know leases: what it does not know it answers as ours answers what no service knows."""

    def submit(self, signer: Signer, actor: str, kind: str, body: c.Object, *rest: Any, **more: Any) -> Answer:  # noqa: ANN401 - as it is
        """Refuse the member by name."""
        return super().submit(signer, actor, kind, _without(kind, body), *rest, **more)


def _without(kind: str, body: c.Object) -> c.Object:
    unknown = {"charge": "step_leases", "post": "model"}.get(kind)
    return {(f"{name}_unknown" if name == unknown else name): value for name, value in body.items()}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place of its own."""
    with open_place(tmp_path / "place") as found:
        yield found


def test_a_member_that_a_service_does_not_know_is_refused_by_name(place: Place) -> None:
    """Before anything is recorded: so a run can be charged without it."""
    job, size = Job.load(place.job("older")), len(place.kinds())
    consumer = ClientCredentials(job.issuer, job.actor, Signer.load(job.key), job.log.origin)
    with Older(job.service, consumer) as older, pytest.raises(Refused) as caught:
        train_job(job, older, lambda _: None)
    assert (caught.value.field, caught.value.index) == ("body.step_leases_unknown", None)
    assert len(place.kinds()) == size


@pytest.mark.parametrize("asked", [None, True])
def test_a_service_without_leases_is_charged_without_them(place: Place, *, asked: bool | None) -> None:
    """Unless the job wants them."""

    class Named(Older):
        """Says the name that was sent."""

        def submit(self, *given: Any, **more: Any) -> Answer:  # noqa: ANN401 - as it is
            try:
                return super().submit(*given, **more)
            except Refused as refused:
                refused.field = refused.field.removesuffix("_unknown")
                raise

    job = replace(Job.load(place.job("fallen-back")), step_leases=asked)
    consumer = ClientCredentials(job.issuer, job.actor, Signer.load(job.key), job.log.origin)
    with Named(job.service, consumer) as older:
        if asked:
            with pytest.raises(Refused, match="step_leases_unknown"):
                train_job(job, older, lambda _: None)
            return
        assert train_job(job, older, lambda _: None).steps == PLAN.steps
    charge = place.charge("fallen-back")
    assert charge is not None
    assert (charge.leases, charge.steps_posted, charge.model) == (None, PLAN.steps, None)


def test_an_identity_of_before_leases_none() -> None:
    """What was saved without the member is read as a run without leases; with it, it comes back."""
    for leases in (False, True):
        known = CleanRoomIdentity.fresh(1, leases=leases)
        assert CleanRoomIdentity.parse(known.to_json()).leases is leases
        assert ("leases" in known.to_json()) is leases


def test_a_run_that_ends_early_returns_leased_steps_where_its_policy_allows_it(place: Place) -> None:
    """On fresh evidence over HTTP, or on its word; what is leased counts otherwise."""
    for version, (refund, counted) in enumerate((("attested", 4), ("stated", 4), ("never", 15)), 2):
        place.clock.ahead_ms += 1_000
        place.republish(refund=refund, version=version)
        name, said = f"early-{refund}", list[str]()
        model = torch.nn.Linear(64, 10)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        known = replace(place.assignment(name, QUIET), block_steps=15)
        with attach(model, optimiser, cross_entropy, known, Options(service=place.service, say=said.append)) as run:
            next(step for step in run if step == 4)
            # A nonce that the service never issued answers no challenge, whatever else the post says.
            with pytest.raises(Refused) as caught:
                run.session.posts.post(4, {"evidence": "0" * 64, "generation": 1, "nonce": "A" * 43})
            assert (caught.value.status, caught.value.field) == (403, "body.nonce")
        charge = place.charge(name)
        assert charge is not None
        assert charge.steps_posted == counted
        assert (f"{15 - counted} leased steps returned, {refund}" in said) == (counted == 4)
        assert charge.model == c.digest(run.model_data)
