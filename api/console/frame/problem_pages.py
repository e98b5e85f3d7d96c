"""What a page says where there is nothing to show: what happened, in the words of the API's problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request

from api.http.problems import Problem, ServiceCode, failed, problem_of
from client.http.problems import Refused, Unreachable
from client.login.discovery import LOGIN_FAILED
from ledger.domain.outcomes import Code

SESSION_ENDED: Final = "session_ended"


@dataclass(eq=False)
class ProblemPage(Exception):  # noqa: N818 - RFC 9457's word
    """One problem as a page.

    Attributes:
        code: stable, as the API's.
        log_in: whether to log in is what helps.
    """

    status: int
    code: str
    title: str
    detail: str
    log_in: bool = False

    @classmethod
    def of_problem(cls, problem: Problem) -> ProblemPage:
        """A problem of the API."""
        details = problem.details
        return cls(details.status, details.code, details.title, details.detail)

    @classmethod
    def session_ended(cls) -> ProblemPage:
        """The cookie is no session any more, or never was."""
        detail = "A session lasts at most fifteen minutes. Log in again: you come back to this page."
        return cls(401, SESSION_ENDED, "Your session has ended", detail, log_in=True)

    @classmethod
    def of_error(cls, request: Request, error: Exception) -> ProblemPage:
        """Whatever a page raised; of an internal error the log has the details, and the page none."""
        if isinstance(error, ProblemPage):
            return error
        if isinstance(error, Refused):
            title = "The login failed" if error.code == LOGIN_FAILED else "The request was refused"
            return cls(error.status if error.status < 500 else 502, error.code, title, error.detail, log_in=True)
        if isinstance(error, Unreachable):
            return cls(502, "issuer_unreachable", "The issuer does not answer", str(error), log_in=True)
        if isinstance(error, HTTPException) and error.status_code == Code.NOT_FOUND.http_status:
            return cls.of_problem(Problem(Code.NOT_FOUND, "there is no such page"))
        if isinstance(error, HTTPException) and error.status_code == ServiceCode.METHOD_NOT_ALLOWED.http_status:
            return cls.of_problem(Problem(ServiceCode.METHOD_NOT_ALLOWED, "this page takes no such request"))
        details = problem_of(request, error)
        return cls.of_problem(details or failed(request.method, request.url.path, error))
