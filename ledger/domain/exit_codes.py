"""The exit codes of every command line of the project, one meaning each; how an error is reported and which it has."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

_QUOTED: Final = 200


class ExitCode(IntEnum):
    """The exit code of a command."""

    DONE = 0
    INTERNAL_ERROR = 1
    """An error of this program or of the service."""
    INVALID = 2
    """Invalid input: typed, or read from a file."""
    REFUSED = 3
    """Denied by a policy, a rule or a budget."""
    NOT_FOUND = 4
    CONFLICT = 5
    """In conflict with the current state."""
    NOT_AUTHORISED = 6
    VERIFICATION_FAILED = 7
    RETRY = 75
    """A temporary failure (``EX_TEMPFAIL`` of sysexits.h): the same command may succeed later."""
    BROKEN_PIPE = 141
    """128 and the number of SIGPIPE, as a shell reports programs whose reader is gone."""


def describe_error(error: Exception) -> str:
    """An error in one sentence: for an error of the operating system, the file and the reason, without its number."""
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object[:_QUOTED]!a} is not UTF-8, which a name must be that is written down here"
    if not isinstance(error, OSError):
        return str(error)
    where, what = str(error.filename or ""), error.strerror or str(error)
    return f"{where}: {what}" if where else what


def exit_code_of(error: Exception, system: ExitCode = ExitCode.INVALID) -> ExitCode | None:
    """The exit code of a command that an error ends; None for an error that no command expects.

    Args:
        error: may have an ``exit_code`` of its own.
        system: for an error of the operating system, unless a file is missing.
    """
    own = getattr(error, "exit_code", None)
    if isinstance(own, ExitCode):
        return own
    if isinstance(error, OSError):
        return ExitCode.NOT_FOUND if isinstance(error, FileNotFoundError) else system
    return ExitCode.INVALID if isinstance(error, ValueError) else None
