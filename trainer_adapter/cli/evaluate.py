"""``epsilon evaluate`` and ``release``: an attested clean room of its own opens a sealed model, in memory alone.

There the model is measured on a public test set and forgotten, which is what a Level 2 policy allows of a trained
model; or its release is requested again, in the name of the clean room that trained it. Every opening is an entry and a
key release of its own.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from safetensors import SafetensorError
from safetensors.torch import load

from client.http.problems import Refused
from client.keys.hpke_envelope import unseal
from client.keys.sealed_model import model_ref, open_model
from client.keys.signer import Signer, load_private
from client.service.service import Service
from ledger.mechanisms.statistics_plans import StagedPlan
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.cli.train import best_device, device_in_words, measure_in_words
from trainer_adapter.job.job_spec import Job
from trainer_adapter.job_models.job_model import JobModel
from trainer_adapter.run.core_dumps import leave_no_core
from trainer_adapter.session.clean_room_identity import CleanRoomIdentity, DevelopmentAttester
from trainer_adapter.session.model_release import (
    MODEL_FILE,
    SEALED_FILE,
    ModelReleaseRequest,
    Pause,
    SealedContents,
    post_of,
    too_soon,
)
from trainer_adapter.session.protocol import Say
from trainer_adapter.statistics.noisy_answers import Answers
from trainer_adapter.statistics.staged_run import answers_of, own_constants
from trainer_adapter.training.preprocessing_constants import PreparedConstants

SEALED_BYTES_MAX: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class EvaluationReport:
    """The public result of an evaluation."""

    accuracy: float
    charge: str
    device: str
    model: str
    measure: str = "accuracy"

    def to_json(self) -> c.Object:
        """For programs."""
        shared = {name: value for name, value in asdict(self).items() if name not in {"accuracy", "measure"}}
        return {**shared, self.measure: f"{self.accuracy:.6f}"}

    def in_words(self) -> str:
        """For people."""
        return (
            f"{self.charge}: the sealed model {self.model[:16]}… was opened on {self.device}; "
            f"{measure_in_words(self.measure, self.accuracy)} on the public test set"
        )


def measure(job: Job, service: Service, say: Say) -> EvaluationReport:
    """Open the sealed model that a job left, and measure it on the job's public test set.

    Args:
        job: a job that has run; its output folder holds ``model.sealed``.
        service: as the consumer calls it.
        say: receives one line for each stage.

    Raises:
        Refused: if the opening is. Malformed: if the model is not the one that was sealed. OSError, Unreachable.
    """
    # What can fail without the model's key fails before its opening is recorded.
    device = best_device()
    made = JobModel.make(job, device)
    _ = sealed_constants(made.job, service)
    name, contents = open_sealed(job, service, say)
    try:
        made.model.load_state_dict(load(contents.model))
    except (SafetensorError, RuntimeError):
        raise Malformed("model", f"is no {job.model}") from None
    right = made.measure(sealed_constants(made.job, service, contents.model).inputs(made.test[0]))
    return EvaluationReport(right, job.id, device_in_words(device), name, job.measure)


def sealed_constants(job: Job, service: Service, model: bytes = b"") -> PreparedConstants:
    """The constants that a sealed model's inputs are prepared with, its run's own among them once it is open.

    Raises:
        Refused, Unreachable, Malformed, OSError.
    """
    answers: Answers = answers_of(model) if model and isinstance(job.plan, StagedPlan) else {}
    own = own_constants(job.plan, answers) if isinstance(job.plan, StagedPlan) else {}
    return PreparedConstants.load(job.preprocessing, service, job.log, own)


def release(job: Job, service: Service, say: Say, pause: Pause | None = None) -> str:
    """Open the sealed model that a job left and request its release again; the SHA-256 of what is written.

    Args:
        job: a job that has run; its output folder holds ``model.sealed`` and gets ``model.safetensors``.
        service: as the consumer calls it.
        say: receives one line for each stage.
        pause: waits some seconds; without it the release is requested once.

    Raises:
        Refused: if the opening is, or the release. Anything ``pause`` raises. Malformed, OSError, Unreachable.
    """
    _, contents = open_sealed(job, service, say)
    request = ModelReleaseRequest(job, service, contents.signer, contents.model, post_of(service, job.id))
    request.announce()
    try:
        index = request.submit()
    except Refused as refused:
        if pause is None or not too_soon(refused):
            raise
        say(f"the model stays in the clean room: {refused.detail}")
        index = request.submit_when_due(pause)
    say(f"model released, entry {index}")
    return request.model


def open_sealed(job: Job, service: Service, say: Say) -> tuple[str, SealedContents]:
    """The sealed model that a job left, opened by an entry of its own: its name, and what is in it.

    Raises:
        Refused, Unreachable, Malformed, OSError.
    """
    path = job.output / SEALED_FILE
    if (job.output / MODEL_FILE).exists() and not path.exists():
        raise Malformed("output", f"holds a released model ({MODEL_FILE}): it needs no opening")
    with path.open("rb") as file:
        sealed = file.read(SEALED_BYTES_MAX + 1)
    if len(sealed) > SEALED_BYTES_MAX:
        raise Malformed("model", f"has more than {SEALED_BYTES_MAX} bytes")
    # A service that gives no keys has none for this model: it says so before an opening is recorded.
    service.deposit_key()
    name = c.digest(sealed)
    leave_no_core()
    contents = SealedContents.parse(open_model(sealed, _key(job, service, name, say), job.id))
    # The post binds the model that is sealed; what holds another was sealed by a copy of the run.
    if service.charge(job.id).get("model") not in {None, c.digest(contents.model)}:
        raise Malformed("model", f"is not the one model of charge {job.id}, by its post")
    say("the model is decrypted in memory")
    return name, contents


def _key(job: Job, service: Service, model: str, say: Say) -> bytes:
    consumer, identity = Signer.load(job.key), CleanRoomIdentity.fresh(deadline=0)
    keys = identity.public()
    attester = DevelopmentAttester(job.attester.issuer, load_private(job.attester.key))
    claims: c.Object = {"charge": job.id, "cnf": keys, "plan": job.plan.digest}
    nonce, evidence = attester.deposit_evidence(service, consumer, claims, say)
    body: c.Object = {"charge": job.id, "clean_room": keys, "evidence": evidence, "model": model, "nonce": nonce}
    answer = service.submit(consumer, job.actor, "model_opening", body)
    expected: c.Object = {
        "charge": job.id,
        "contract": job.contract,
        "entry": answer.index,
        "evidence": evidence,
        "key_release": answer.id,
    }
    say(f"the model's key is released to this clean room alone, entry {answer.index}")
    return unseal(answer.envelope, identity.sealing, expected)[model_ref(model)]
