"""The release of a trained model: announced to the providers, requested, and waited for; sealed until it may leave.

A policy may require that providers are notified some hours before a model leaves (``notice_hours``). Until then the
answer is a refusal with the one reason ``release_too_soon``, and a later request is another command; any other refusal
is final for the clean room that made the request.

A model that may not leave, or not yet, is written sealed: only an attested clean room opens it, each time by an entry
of its own (:mod:`client.keys.sealed_model`). The signing key of the clean room that trained it goes with it, because
only the clean room of a charge may request the release of its model. What is sealed is one line of RFC 8785 JSON, a
line feed, and the model as safetensors:

    {"kind":"kept_model","signing":"<base64url, 32 bytes>","v":1}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

from client.http.access_tokens import CleanRoomCredentials
from client.http.problems import Refused, Unreachable
from client.keys.sealed_model import seal_deposit, seal_model
from client.keys.signer import Signer
from client.service.service import Service
from ledger.domain.outcomes import Code
from ledger.files.atomic_file import replace_file
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.session.receipt_check import check_recorded
from trainer_adapter.session.watermark_key import commitment_in

MODEL_FILE: Final = "model.safetensors"
SEALED_FILE: Final = "model.sealed"
PAUSE_FIRST_S: Final = 60.0
PAUSE_MAX_S: Final = 3_600.0
TOO_SOON: Final = "release_too_soon"
RECEIPT_BYTES_MAX: Final = 65_536
INDEX_DIGITS_MAX: Final = 16
LINE_MAX: Final = 1_000

_OTHER_MODEL: Final = frozenset({"body.model", "body.post"})
"""The fields that a conflict names where the model is not the one that the run's post names."""

Pause = Callable[[float], None]
"""Waits some seconds, and ends the wait by raising."""


@dataclass(frozen=True, slots=True)
class SealedContents:
    """What a sealed model holds.

    Attributes:
        model: safetensors; known by its SHA-256 where it is announced and released.
        signer: of the clean room that trained it.
    """

    model: bytes
    signer: Signer

    def to_bytes(self) -> bytes:
        """As it is sealed; never written otherwise."""
        head: c.Object = {"kind": "kept_model", "signing": c.base64url(self.signer.secret()), "v": 1}
        return c.dump(head) + b"\n" + self.model

    @classmethod
    def parse(cls, data: bytes) -> SealedContents:
        """What :meth:`to_bytes` made. Raises: Malformed."""
        head, mark, model = data.partition(b"\n")
        if not mark:
            raise Malformed("model", "is no kept model: it has no first line")
        members = c.fields(c.parse(head, LINE_MAX, "model"), "model", ("kind", "signing", "v"))
        c.one_of(members["kind"], "model.kind", ("kept_model",))
        c.integer(members["v"], "model.v", 1, 1)
        return cls(model, Signer.of_secret(c.unbase64url(members["signing"], "model.signing")))


class ModelReleaseRequest:
    """The release of one model, requested by the clean room that trained it.

    Attributes:
        model: the SHA-256 of the model's file.
    """

    def __init__(self, job: Assignment, service: Service, signer: Signer, data: bytes, post: str | None = None) -> None:
        """Of the model ``data``, safetensors, by the clean room of the job's charge; ``post`` names it, if one does."""
        self._job, self._signer, self._data = job, signer, data
        self._own = service.as_caller(CleanRoomCredentials(signer, job.log.origin, service.clock))
        self.model: Final = c.digest(data)
        self._notice: Final[c.Object] = {"charge": job.id, "model": self.model}
        mark = commitment_in(data)
        named = {name: value for name, value in (("post", post), ("watermark", mark)) if value}
        self._body: Final[c.Object] = {**self._notice, **named}

    def announce(self) -> None:
        """Notify the providers of the model; again, it is the same notice. Raises: Refused, Unreachable."""
        name = f"release_notice-{c.digest(c.dump(self._notice))[:32]}"
        self._own.submit(self._signer, self._job.actor, "release_notice", self._notice, name)

    def submit(self) -> int:
        """Request once, and write the model where it may leave; the entry's index.

        Raises:
            Refused: with :func:`too_soon` true of it, try again later. Unreachable, Malformed, OSError.
        """
        answer = self._own.submit(self._signer, self._job.actor, "model_release", self._body)
        index, _ = check_recorded(self._own, answer, self._job.log, "model_release", Code.PERMITTED)
        path = self._job.output / MODEL_FILE
        replace_file(_receipt_path(path), str(answer.receipt).encode())
        replace_file(path, self._data)
        return index

    def submit_when_due(self, pause: Pause) -> int:
        """Request once it is not too soon any more, polling less and less often; the entry's index.

        Polling leaves no entry: the one request that is recorded is the one that may be permitted.

        Raises:
            Refused: for any other reason. Whatever ``pause`` raises. Unreachable, Malformed, OSError.
        """
        seconds = PAUSE_FIRST_S
        while True:
            try:
                self._own.submit(self._signer, self._job.actor, "model_release", self._body, dry_run=True)
                return self.submit()
            except Refused as refused:
                if not too_soon(refused):
                    raise
            pause(seconds)
            seconds = min(2 * seconds, PAUSE_MAX_S)

    def submit_or_seal(self, say: Callable[[str], None], pause: Pause | None) -> str:
        """Notify the providers, request the release, and write the model only then; its SHA-256, or nothing.

        Args:
            say: receives one line for each stage.
            pause: waits some seconds: with it the clean room stays until the providers' notice has run.

        Raises:
            Unreachable, Malformed, OSError. Whatever ``pause`` raises.
        """
        try:
            self.announce()
            index = self.submit()
        except Refused as early:
            say(f"the model stays in the clean room: {early.detail}")
            if early.status == HTTPStatus.CONFLICT and early.field in _OTHER_MODEL:
                # The ledger says that it is not the run's one model: it leaves in no form.
                return ""
            # Before any waiting, so that a process that ends meanwhile loses nothing.
            self._seal(say)
            if pause is None or not too_soon(early):
                return ""
            try:
                index = self.submit_when_due(pause)
            except Refused as refused:
                say(f"the model stays in the clean room: {refused.detail}")
                return ""
        say(f"model released, entry {index}")
        return self.model

    def _seal(self, say: Callable[[str], None]) -> None:
        job = self._job
        sealed, key = seal_model(SealedContents(self._data, self._signer).to_bytes(), job.id)
        name = c.digest(sealed)
        try:
            sealed_key = seal_deposit(key, self._own.deposit_key(), job.id, name)
            self._own.deposit_model_key(self._signer, job.id, name, sealed_key)
        except (Refused, Unreachable) as error:
            # A model whose key no one keeps would be noise: then it goes with this process.
            say(f"the model is discarded: {error}")
            return
        replace_file(job.output / SEALED_FILE, sealed)
        say(f"the model is sealed as {name}, for attested clean rooms alone")


def post_of(service: Service, charge: str) -> str | None:
    """The id of the post that settled a run and named its model; None where none did. Raises: Refused, Unreachable."""
    post = service.charge(charge).get("post")
    return post if isinstance(post, str) else None


def receipt_of(model: Path) -> tuple[int, str]:
    """The receipt beside a released model: its entry's index, and the text. Raises: Malformed, OSError."""
    with _receipt_path(model).open("rb") as file:
        text = file.read(RECEIPT_BYTES_MAX).decode("utf-8", "replace")
    lines = text.split("\n", 2)
    index = lines[1].removeprefix("index ") if len(lines) > 1 else ""
    if not index.isascii() or not index.isdecimal() or len(index) > INDEX_DIGITS_MAX:
        raise Malformed("receipt", "has no index on its second line")
    return int(index), text


def _receipt_path(model: Path) -> Path:
    return model.with_suffix(".receipt")


def too_soon(refused: Refused) -> bool:
    """Whether the providers' notice is the only reason for the refusal."""
    return bool(refused.reasons) and {reason.code for reason in refused.reasons} == {TOO_SOON}
