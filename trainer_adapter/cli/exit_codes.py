"""Exit codes of the trainer's commands, and what to do next, where entries were recorded before an error.

An exit code that says that nothing was recorded is given only where that is so. Once the log holds the entry that the
command requested, its error is one of the run's: exit code 1, or 75 where the same command can be resumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ledger.domain.exit_codes import ExitCode

if TYPE_CHECKING:
    from client.service.service import Service


_GO_ON: Final = "run it again with --resume, which keeps it the same run."
_POSTED_FOR_NOTHING: Final = (
    "No step was begun, so the charge was posted for none and the budget is as before. Fix the field named above and "
    "retry under a new id and output in the job."
)
_VOIDED: Final = "a charge whose key is never released is voided at its deadline."
_OPEN_AGAIN: Final[dict[int, str]] = {
    ExitCode.REFUSED: "Change the fields above and run the command again.",
    ExitCode.RETRY: "Run the command again in a moment.",
}


def end_check(error: Exception, code: int, then: str) -> tuple[int, str]:
    """The exit code of ``epsilon job check`` and what to do next: a folder that is used ends it as it ends the run."""
    if isinstance(error, FileExistsError):
        return ExitCode.CONFLICT, "Nothing was recorded: see what is there."
    return code, then


@dataclass(frozen=True)
class OpeningEnding:
    """Of ``epsilon evaluate`` and ``epsilon release``, which may be run again as they are.

    Attributes:
        service: what was recorded by.
    """

    service: Service

    def __call__(self, error: Exception, code: int, then: str) -> tuple[int, str]:
        """The exit code and what to do next."""
        from client.service.seen_checkpoint import SeenCheckpointError
        from trainer_adapter.session.receipt_check import NotProven

        if isinstance(error, NotProven | SeenCheckpointError):
            step = f"Keep the evidence and report it to the other organisations. {self.recorded()}"
            return ExitCode.VERIFICATION_FAILED, step
        return self.after(error, code) if self.service.recorded else self.before(error, code, then)

    def before(self, _error: Exception, code: int, then: str) -> tuple[int, str]:
        """No answer named an entry."""
        return code, then

    def after(self, _error: Exception, code: int) -> tuple[int, str]:
        """What was recorded stays."""
        again = _OPEN_AGAIN.get(code)
        return (code, f"{self.recorded()} {again}") if again else (ExitCode.INTERNAL_ERROR, self.recorded())

    def recorded(self) -> str:
        """What is recorded, in a sentence."""
        recorded = [str(index) for index in dict.fromkeys(self.service.recorded)]
        if not recorded:
            return "Nothing was recorded."
        return f"Recorded: entr{'y' if len(recorded) == 1 else 'ies'} {', '.join(recorded)}."


@dataclass(frozen=True)
class TrainEnding(OpeningEnding):
    """Of ``epsilon train``.

    Attributes:
        id: of the charge. profile: the consumer's, as a shell reads it.
        resumes: whether the job says how a run goes on.
    """

    id: str
    profile: str
    resumes: bool

    def before(self, error: Exception, code: int, then: str) -> tuple[int, str]:
        """No answer named an entry."""
        from client.http.problems import Unreachable
        from ledger.wire.malformed import Malformed

        if code == ExitCode.REFUSED:
            return self.after(error, code)
        if isinstance(error, FileExistsError):
            go_on = f", or {_GO_ON}" if self.resumes else "."
            return ExitCode.CONFLICT, f"Nothing was recorded: see what is there{go_on}"
        if isinstance(error, Malformed) and error.field.partition(".")[0] == "answer":
            # The service answered, and not in a way that can be read: what it did is unknown.
            code = ExitCode.INTERNAL_ERROR
        if code not in {ExitCode.INTERNAL_ERROR, ExitCode.RETRY}:
            return code, then.replace("another --id", "another id and output in the job")
        if isinstance(error, Unreachable) and not error.sent:
            return code, "Nothing was recorded: run the command again in a moment."
        return code, f"Whether {self.id} was charged is unknown: {_GO_ON if self.resumes else _VOIDED}"

    def after(self, error: Exception, code: int) -> tuple[int, str]:
        """What was recorded stays; the keys of a run that does not resume are gone with its process."""
        from client.dataset_files.stored_partition import NotOpened
        from trainer_adapter.session.key_grants import NotGranted

        if code == ExitCode.REFUSED:
            # Of a charge that was refused there is no state to show.
            charged = any(index != getattr(error, "index", None) for index in self.service.recorded)
            recorded = f"{self.recorded()}{self.voidable()}" if charged else super().recorded()
            return code, f"{recorded} Change the fields above and retry under a new id and output in the job."
        over = isinstance(error, NotGranted | NotOpened) and error.posted
        if over:
            return ExitCode.INTERNAL_ERROR, f"{self.recorded()} {_POSTED_FOR_NOTHING}"
        if code == ExitCode.RETRY and self.resumes:
            return code, f"{self.recorded()} {_GO_ON.capitalize()}"
        return ExitCode.INTERNAL_ERROR, self.recorded()

    def voidable(self) -> str:
        """How the charge is voided, in a sentence after another, where it is pending without a key released."""
        from client.http.problems import Refused, Unreachable

        try:
            charge = self.service.charge(self.id)
        except (Refused, Unreachable):
            return ""
        if charge.get("state") != "pending" or charge.get("key_release") is not None:
            return ""
        return f" No data key was released, so `epsilon charge void {self.profile} {self.id}` returns all of it."

    def recorded(self) -> str:
        """What is recorded, and where its state is shown."""
        shows = f"`epsilon charge show {self.profile} {self.id}` shows the current state of the charge."
        return f"{super().recorded()} {shows}"
