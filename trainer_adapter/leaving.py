"""A trained model's way out of its clean room: announced to the providers, asked for, and waited for.

A policy may want its providers told some hours before a model leaves (``notice_hours``). Until then the answer is a
refusal with the one reason ``release_too_soon``, and asking again later is another question; any other refusal is
final for the clean room that asks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from client.problem import Refused
from client.service import Service
from client.signer import Signer
from client.tokens import CleanRoomCredentials
from ledger import canonical as c
from ledger.outcomes import Code
from trainer_adapter.durable import write_whole
from trainer_adapter.job import Job
from trainer_adapter.recorded import check_recorded

MODEL_FILE: Final = "model.safetensors"
PAUSE_FIRST_S: Final = 60.0
PAUSE_MAX_S: Final = 3_600.0
TOO_SOON: Final = "release_too_soon"

Pause = Callable[[float], None]
"""Waits some seconds, and asks whoever waits whether to go on by raising."""


class Leaving:
    """One model on its way out, in the name of the clean room that trained it."""

    def __init__(self, job: Job, service: Service, signer: Signer, data: bytes) -> None:
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
        write_whole(self._job.output / MODEL_FILE, self._data)
        return index

    def ask_until(self, pause: Pause) -> int:
        """Ask, and while it is only too soon ask again, each time after twice as long; the entry's index.

        Raises:
            Refused: for any other reason. Whatever ``pause`` raises. Unreachable, Malformed, OSError.
        """
        seconds = PAUSE_FIRST_S
        while True:
            try:
                return self.ask()
            except Refused as refused:
                if not too_soon(refused):
                    raise
            pause(seconds)
            seconds = min(2 * seconds, PAUSE_MAX_S)


def too_soon(refused: Refused) -> bool:
    """Whether the notice to the providers is all that stands in the way."""
    return bool(refused.reasons) and {reason.code for reason in refused.reasons} == {TOO_SOON}
