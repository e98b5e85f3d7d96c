"""The exit codes of every command line of the project, the same number for the same meaning everywhere."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What a command ends with."""

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
