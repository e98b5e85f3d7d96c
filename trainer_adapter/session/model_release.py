"""A trained model's way out of its clean room: announced to the providers, asked for, and waited for.

A policy may want its providers told some hours before a model leaves (``notice_hours``). Until then the answer is a
refusal with the one reason ``release_too_soon``, and asking again later is another question; any other refusal is
final for the clean room that asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from client.http.access_tokens import CleanRoomCredentials
from client.http.problems import Refused
from client.keys.signer import Signer
from client.service.service import Service
from ledger.domain.outcomes import Code
from ledger.host.atomic_file import replace_file
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.session.receipt_check import check_recorded

MODEL_FILE: Final = "model.safetensors"
PAUSE_FIRST_S: Final = 60.0
PAUSE_MAX_S: Final = 3_600.0
TOO_SOON: Final = "release_too_soon"
RECEIPT_BYTES_MAX: Final = 65_536
INDEX_DIGITS_MAX: Final = 16

Pause = Callable[[float], None]
"""Waits some seconds, and asks whoever waits whether to go on by raising."""


class Leaving:
    """One model on its way out, in the name of the clean room that trained it."""

    def __init__(self, job: Assignment, service: Service, signer: Signer, data: bytes) -> None:
        """Ask as ``signer``, the clean room of the job's charge, for the model whose file is ``data``."""
        self._job, self._signer, self._data = job, signer, data
        self._own = service.as_caller(CleanRoomCredentials(signer, job.log.origin, service.clock))
        self.model: Final = c.digest(data)
        self._body: Final[c.Object] = {"charge": job.id, "model": self.model}

    def announce(self) -> None:
        """Tell the providers which model is to leave; again, it is the same notice. Raises: Refused, Unreachable."""
        name = f"release_notice-{c.digest(c.dump(self._body))[:32]}"
        self._own.submit(self._signer, self._job.actor, "release_notice", self._body, name)

    def ask(self) -> int:
        """Ask once, and write the model where it may leave; the entry's index.

        Raises:
            Refused: with :func:`too_soon` true of it, ask again later. Unreachable, Malformed, OSError.
        """
        answer = self._own.submit(self._signer, self._job.actor, "model_release", self._body)
        index = check_recorded(self._own, answer, self._job.log, "model_release", Code.PERMITTED)
        path = self._job.output / MODEL_FILE
        replace_file(_receipt_path(path), str(answer.receipt).encode())
        replace_file(path, self._data)
        return index

    def ask_until(self, pause: Pause) -> int:
        """Ask once it is not too soon any more, looking less and less often; the entry's index.

        Looking leaves no entry: the one question that is recorded is the one that may be permitted.

        Raises:
            Refused: for any other reason. Whatever ``pause`` raises. Unreachable, Malformed, OSError.
        """
        seconds = PAUSE_FIRST_S
        while True:
            try:
                self._own.submit(self._signer, self._job.actor, "model_release", self._body, dry_run=True)
                return self.ask()
            except Refused as refused:
                if not too_soon(refused):
                    raise
            pause(seconds)
            seconds = min(2 * seconds, PAUSE_MAX_S)


@dataclass(frozen=True, slots=True)
class Receipt:
    """The receipt of a release: the index of its entry, and the text that proves it."""

    index: int
    text: str


def receipt_of(model: Path) -> Receipt:
    """The receipt that lies beside a released model. Raises: Malformed, OSError."""
    with _receipt_path(model).open("rb") as file:
        data = file.read(RECEIPT_BYTES_MAX)
    lines = data.decode("utf-8", "replace").split("\n", 2)
    index = lines[1].removeprefix("index ") if len(lines) > 1 else ""
    if not index.isascii() or not index.isdecimal() or len(index) > INDEX_DIGITS_MAX:
        raise Malformed("receipt", "has no index on its second line")
    return Receipt(int(index), data.decode("utf-8", "replace"))


def _receipt_path(model: Path) -> Path:
    return model.with_suffix(".receipt")


def too_soon(refused: Refused) -> bool:
    """Whether the notice to the providers is all that stands in the way."""
    return bool(refused.reasons) and {reason.code for reason in refused.reasons} == {TOO_SOON}
