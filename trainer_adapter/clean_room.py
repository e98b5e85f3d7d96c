"""One clean room, one run: charge first, then key, then data, then noise; and in the end what ran is posted.

Both keys of the clean room are made here and never leave the process. Any doubt leaves the charge standing: a
run that breaks posts the steps it began, and one that dies is posted in full when its deadline passes.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from safetensors.torch import save
from torch import Tensor, nn

from client.data_at_rest import decrypt
from client.envelope import unseal
from client.problem import Refused, Unreachable
from client.sealed_model import seal_deposit, seal_model
from client.service import Service
from client.signer import Signer, load_private
from client.tokens import CleanRoomCredentials
from ledger import canonical as c
from ledger.malformed import Malformed
from ledger.outcomes import Code
from trainer_adapter import models
from trainer_adapter.attester import DevelopmentAttester
from trainer_adapter.device import choose, in_words
from trainer_adapter.durable import write_whole
from trainer_adapter.job import Job
from trainer_adapter.kept_model import KeptModel
from trainer_adapter.leaving import Leaving, Pause, too_soon
from trainer_adapter.recorded import check_recorded
from trainer_adapter.run import train
from trainer_adapter.step_log import StepLog

_IMAGES: Final = ((models.PIXELS,), (8, 8))
OnStep = Callable[[int, int], None]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What may be known outside: nothing here was computed from governed data but through the mechanism.

    Attributes:
        accuracy: of the released model on the public test set, as a share.
        model: the released model's SHA-256, or empty if its release was refused.
    """

    charge: str
    steps: int
    steps_charged: int
    accuracy: float
    device: str
    model: str

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {
            "accuracy": self.accuracy,
            "charge": self.charge,
            "device": self.device,
            "model": self.model,
            "steps": self.steps,
            "steps_charged": self.steps_charged,
        }

    def in_words(self) -> str:
        """For people."""
        return (
            f"{self.charge}: {self.steps} of {self.steps_charged} steps on {self.device}; "
            f"accuracy {self.accuracy:.1%} on the public test set"
        )


class CleanRoom:
    """The clean room of one job."""

    def __init__(self, job: Job, service: Service, say: Say, pause: Pause | None = None) -> None:
        """Fresh keys; ``say`` is told each stage in one line.

        ``pause`` waits some seconds: with it a run stays until its providers have had their notice of the model.
        """
        self._job, self._service, self._say, self._pause = job, service, say, pause
        self._signer = Signer.generate()
        self._sealing = X25519PrivateKey.generate()
        self._deadline = (int(service.clock()) + job.deadline_s) * 1000
        # From its charge on the clean room speaks for itself: the key that the charge names is its credential.
        self._own = service.as_caller(CleanRoomCredentials(self._signer, job.log.origin, service.clock))
        self._ran = 0

    def run(self, on_step: OnStep) -> Report:
        """The whole run. Raises: Refused, if the charge or the key is; Malformed; OSError; Unreachable."""
        job = self._job
        # What can fail without the key fails before anything is charged.
        device = choose()
        model = models.make(job.model).to(device)
        test = tensors(job.test.read_bytes(), "test")
        if not len(test[0]):
            raise Malformed("test", "holds no record")
        consumer = Signer.load(job.key)
        attester = DevelopmentAttester(job.attester_issuer, load_private(job.attester_key))
        sealed = [(ref, file.read_bytes()) for ref, file in job.data]
        job.output.mkdir(parents=True, exist_ok=False)
        self._charge(consumer)
        data = self._open_data(self._release_key(attester), sealed)
        with StepLog.create(job.output / "steps.log", job.id, job.plan, job.block_steps) as log:
            steps = self._train_and_post(model, data, test, log, on_step)
        right = accuracy(model, test)
        return Report(job.id, steps, job.plan.steps, right, in_words(device), self._release_model(model))

    def _keys(self) -> c.Object:
        x = c.base64url(self._sealing.public_key().public_bytes_raw())
        return {"sealing": {"crv": "X25519", "kty": "OKP", "x": x}, "signing": self._signer.jwk}

    def _charge(self, consumer: Signer) -> None:
        job = self._job
        body: c.Object = {
            "clean_room": self._keys(),
            "contract": job.contract,
            "deadline": self._deadline,
            "partitions": [ref for ref, _ in job.data],
            "plan": job.plan.to_json(),
        }
        answer = self._service.submit(consumer, job.actor, "charge", body, job.id)
        check_recorded(self._own, answer, job.log, "charge", Code.PENDING)
        self._say(f"charge {job.id} is {answer.outcome}, entry {answer.index}")

    def _release_key(self, attester: DevelopmentAttester) -> dict[str, bytes]:
        job = self._job
        self._say("a development attester signs for this clean room: it attests nothing, and is not for production")
        nonce = self._own.challenge(job.id)
        claims: c.Object = {
            "charge": job.id,
            "cnf": self._keys(),
            "eat_nonce": nonce,
            "plan": job.plan.digest,
        }
        evidence = self._own.put_document(self._signer, attester.attest(claims, int(self._service.clock()))).document
        body: c.Object = {"charge": job.id, "evidence": evidence, "nonce": nonce}
        answer = self._own.submit(self._signer, job.actor, "key_release", body)
        expected: c.Object = {
            "charge": job.id,
            "contract": job.contract,
            "entry": answer.index,
            "evidence": evidence,
            "key_release": answer.id,
            "not_after": self._deadline,
        }
        check_recorded(self._own, answer, job.log, "key_release", Code.PERMITTED)
        keys = unseal(answer.envelope, self._sealing, expected)
        self._say(f"key released to this clean room alone, sealed with HPKE, entry {answer.index}")
        return keys

    def _open_data(self, keys: dict[str, bytes], sealed: list[tuple[str, bytes]]) -> tuple[Tensor, Tensor]:
        parts = []
        for ref, stored in sealed:
            if ref not in keys:
                raise Malformed("data", f"no key was released for {ref}")
            parts.append(tensors(decrypt(keys[ref], ref, stored), ref))
        self._say("data decrypted in memory")
        inputs, targets = torch.cat([one for one, _ in parts]), torch.cat([one for _, one in parts])
        # A label of no class would stop a step and be named in the fault. Its record gives no finite gradient
        # instead, so zero, and whether there is one is not told.
        bad = (targets < 0) | (targets >= models.CLASSES)
        inputs[bad], targets[bad] = torch.nan, 0
        return inputs, targets

    def _train_and_post(
        self,
        model: nn.Module,
        data: tuple[Tensor, Tensor],
        test: tuple[Tensor, Tensor],
        log: StepLog,
        on_step: OnStep,
    ) -> int:
        job = self._job
        rate, momentum = float(job.learning_rate), float(job.momentum)
        optimiser = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum)
        device = next(model.parameters()).device
        placed = (data[0].to(device), data[1].to(device))
        try:
            steps = train(
                job.plan,
                model,
                nn.functional.cross_entropy,
                placed,
                optimiser,
                log,
                on_step=self._counting(on_step),
                stop=lambda: self._reached(model, test, log),
                physical_batch=128,
            )
        except BaseException:
            # What began counts, whatever broke. If even this cannot be sent, the deadline posts all of it.
            self._post(log.steps_begun())
            raise
        self._post(steps)
        return steps

    def _reached(self, model: nn.Module, test: tuple[Tensor, Tensor], log: StepLog) -> bool:
        """Whether the public target is met, asked at the end of each block: a begun block counts in full anyway."""
        target = self._job.accuracy_target
        if target is None or self._ran == 0 or self._ran < log.steps_begun():
            return False
        return accuracy(model, test) >= target

    def _counting(self, on_step: OnStep) -> OnStep:
        def count(step: int, steps: int) -> None:
            self._ran = step
            on_step(step, steps)

        return count

    def _post(self, steps: int) -> None:
        job = self._job
        body: c.Object = {"charge": job.id, "steps": steps}
        answer = self._own.submit(self._signer, job.actor, "post", body)
        self._say(f"{steps} of {job.plan.steps} steps posted, entry {answer.index}")

    def _release_model(self, model: nn.Module) -> str:
        """Tell the providers, ask for the model's release, and write it only when it is permitted."""
        job = self._job
        tensors = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
        data = save(tensors, {"charge": job.id, "contract": job.contract, "plan": job.plan.digest})
        leaving = Leaving(job, self._service, self._signer, data)
        index: int | None
        try:
            leaving.announce()
            index = leaving.ask()
        except Refused as refused:
            self._say(f"the model stays in the clean room: {refused.detail}")
            # Before any waiting, so that a process that ends meanwhile loses nothing.
            self._seal_model(data)
            if self._pause is None or not too_soon(refused):
                return ""
            index = self._waited(leaving, self._pause)
        if index is None:
            return ""
        self._say(f"model released, entry {index}")
        return leaving.model

    def _waited(self, leaving: Leaving, pause: Pause) -> int | None:
        try:
            return leaving.ask_until(pause)
        except Refused as refused:
            self._say(f"the model stays in the clean room: {refused.detail}")
            return None

    def _seal_model(self, data: bytes) -> None:
        """What may not leave, or not yet, is written sealed: only an attested clean room opens it, by an entry."""
        job = self._job
        sealed, key = seal_model(KeptModel(data, self._signer).to_bytes(), job.id)
        name = c.digest(sealed)
        try:
            deposit = self._own.deposit_key()
            self._own.deposit_model_key(job.id, name, seal_deposit(key, deposit, job.id, name))
        except (Refused, Unreachable) as fault:
            # A model whose key nobody keeps would be noise: then it goes with this process.
            self._say(f"the model is not kept: {fault}")
            return
        write_whole(job.output / "model.sealed", sealed)
        self._say(f"the model is sealed as {name}, for attested clean rooms alone")


def tensors(data: bytes, what: str) -> tuple[Tensor, Tensor]:
    """Inputs (records, 64), from 0 to 1, and targets (records,). Raises: Malformed, for what one record cannot change.

    The shapes and types of the whole decide, never a record's value: that would tell of it.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
            inputs, targets = np.asarray(arrays["inputs"]), np.asarray(arrays["targets"])
    except Exception:  # noqa: BLE001 - a damaged archive fails in a dozen ways, and NumPy's words could quote a record
        raise Malformed(what, "is not a NumPy archive of inputs and targets, all of them numbers") from None
    if inputs.dtype.kind not in "fiu" or targets.dtype.kind not in "iu":
        raise Malformed(what, "must hold numbers as inputs and integers as targets")
    if inputs.shape[:1] != targets.shape or inputs.shape[1:] not in _IMAGES:
        raise Malformed(what, f"must have one target for each row of {models.PIXELS} inputs")
    with np.errstate(over="ignore", invalid="ignore"):
        inputs = inputs.astype(np.float32)
    return torch.from_numpy(inputs.reshape(-1, models.PIXELS)), torch.from_numpy(targets.astype(np.int64))


def accuracy(model: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    """The share of a public set that the model gets right."""
    device = next(model.parameters()).device
    with torch.no_grad():
        right = model(test[0].to(device)).argmax(dim=1) == test[1].to(device)
    return float(right.double().mean())
