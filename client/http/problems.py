"""Errors of a request: the service answered with a problem (RFC 9457), or did not answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.domain.exit_codes import ExitCode
from ledger.domain.outcomes import Code
from ledger.wire.canonical_json import Json, Object

_SERVER_ERROR: Final = 500
_EXIT_BY_STATUS: Final = {
    401: ExitCode.NOT_AUTHORISED,
    403: ExitCode.NOT_AUTHORISED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.CONFLICT,
    412: ExitCode.CONFLICT,
    429: ExitCode.RETRY,
    503: ExitCode.RETRY,
}
"""Exit codes of problems that only HTTP knows: the caller, the resource, and when to retry."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a refusal: a stable code and a sentence."""

    code: str
    detail: str


class Refused(Exception):  # noqa: N818 - the glossary's word
    """The service answered with a problem (RFC 9457).

    Attributes:
        status: the HTTP status.
        code: the stable code, one of :mod:`ledger.domain.outcomes` or of the API's own few.
        title: what the code means, the same at every occurrence.
        detail: what is wrong this time.
        reasons: every check that failed, in order.
        field: where in the input, as a dotted path; empty where no field is to blame.
        id: the command's id, empty where none was read.
        index: the index of the entry that records the refusal; None where it is not recorded.
        retry_s: seconds after which to retry, as the service says; 0 where it does not.
        advice: lines for people, by the caller: what would be admitted instead.
        next_step: a sentence for people, by the caller, in place of the usual one; empty where that fits.
    """

    def __init__(self, status: int, problem: Object, retry_s: int = 0) -> None:
        """Read a problem body; what it lacks stays empty, so that a foreign body still has its status."""
        self.status, self.retry_s = status, retry_s
        self.code = _text(problem.get("code")) or f"http_{status}"
        self.title = _text(problem.get("title"))
        self.detail = _text(problem.get("detail"))
        self.field = _text(problem.get("field"))
        self.id = _text(problem.get("id"))
        index = problem.get("index")
        self.index = index if isinstance(index, int) else None
        self.reasons = _reasons(problem.get("reasons"))
        self.advice: tuple[str, ...] = ()
        self.next_step = ""
        super().__init__(f"{self.code}: {self.detail or self.title or f'HTTP status {status}'}")

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a command line that ends with it."""
        try:
            return Code.of(self.code).exit_code
        except KeyError:
            return _EXIT_BY_STATUS.get(
                self.status, ExitCode.INTERNAL_ERROR if self.status >= _SERVER_ERROR else ExitCode.INVALID
            )


class Unreachable(Exception):  # noqa: N818 - reads as what it says
    """No answer came, also after sending the same bytes again; whether they were recorded is unknown.

    Attributes:
        sent: whether the bytes may have arrived; False where no connection was ever made, so that nothing is recorded.
    """

    exit_code: Final = ExitCode.RETRY

    def __init__(self, message: str, *, sent: bool = True) -> None:
        """Name the server that did not answer."""
        super().__init__(message)
        self.sent = sent


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _reasons(value: Json) -> tuple[Reason, ...]:
    items = value if isinstance(value, list) else []
    return tuple(Reason(_text(item.get("code")), _text(item.get("detail"))) for item in items if isinstance(item, dict))


def may_be_recorded(error: Exception) -> bool:
    """Whether the service may have recorded the command whose call ended with this error."""
    if isinstance(error, Refused):
        return error.exit_code in {ExitCode.INTERNAL_ERROR, ExitCode.RETRY}
    return isinstance(error, Unreachable) and error.sent
