"""States of a charge, and the one closed list of outcome codes.

Codes stand in order of precedence: when several apply, the first is given. Only codes marked ``recorded``
become entries; what is malformed, unauthenticated or failed inside is not recorded and may be sent again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from ledger.domain.exit_codes import ExitCode


class ChargeState(StrEnum):
    """The state of a charge; posted and voided are final."""

    PENDING = "pending"
    POSTED = "posted"
    VOIDED = "voided"


@dataclass(frozen=True, slots=True)
class _Meaning:
    word: str
    http_status: int
    exit_code: ExitCode
    recorded: bool
    title: str


class Code(Enum):
    """Every outcome a command can have, with its HTTP status and its exit code on the command line."""

    MALFORMED = _Meaning(
        "malformed", 422, ExitCode.INVALID, recorded=False, title="The input breaks a rule of its format"
    )
    SIGNATURE_INVALID = _Meaning(
        "signature_invalid", 401, ExitCode.NOT_AUTHORISED, recorded=False, title="The signature does not verify"
    )
    SIGNATURE_MISSING = _Meaning(
        "signature_missing", 401, ExitCode.NOT_AUTHORISED, recorded=False, title="A required signature is missing"
    )
    NOT_AUTHORISED = _Meaning(
        "not_authorised", 403, ExitCode.NOT_AUTHORISED, recorded=False, title="The signer may not ask for this"
    )
    ID_REUSED = _Meaning(
        "id_reused", 409, ExitCode.CONFLICT, recorded=False, title="The id was used for another command"
    )
    NOT_FOUND = _Meaning(
        "not_found", 404, ExitCode.NOT_FOUND, recorded=False, title="A thing the command names does not exist"
    )
    CONFLICT = _Meaning(
        "conflict", 409, ExitCode.CONFLICT, recorded=False, title="The command does not fit the state it meets"
    )
    NOT_PRICED = _Meaning(
        "not_priced", 403, ExitCode.REFUSED, recorded=True, title="The rule has no proven price for the mechanism"
    )
    POLICY_DENIED = _Meaning(
        "policy_denied", 403, ExitCode.REFUSED, recorded=True, title="A policy or contract denies it"
    )
    BUDGET_EXHAUSTED = _Meaning(
        "budget_exhausted", 409, ExitCode.REFUSED, recorded=True, title="An account has no room for it"
    )
    PENDING = _Meaning("pending", 201, ExitCode.DONE, recorded=True, title="Charged and pending")
    POSTED = _Meaning("posted", 201, ExitCode.DONE, recorded=True, title="Settled for what ran")
    VOIDED = _Meaning("voided", 201, ExitCode.DONE, recorded=True, title="Settled for nothing")
    PERMITTED = _Meaning("permitted", 201, ExitCode.DONE, recorded=True, title="Permitted and recorded")

    @property
    def word(self) -> str:
        """The stable code as it is written in entries, problems and JSON output."""
        return self.value.word

    @property
    def http_status(self) -> int:
        """The HTTP status that carries it."""
        return self.value.http_status

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a command line that ends with it."""
        return self.value.exit_code

    @property
    def recorded(self) -> bool:
        """Whether it becomes an entry, final for the command's id."""
        return self.value.recorded

    @property
    def title(self) -> str:
        """A short sentence for people, the same at every occurrence."""
        return self.value.title

    @property
    def refused(self) -> bool:
        """Asked for and not given."""
        return self.name in _REFUSED

    @classmethod
    def of(cls, word: str) -> Code:
        """The code written ``word``. Raises: KeyError."""
        return _BY_WORD[word]


_BY_WORD = {code.word: code for code in Code}
_REFUSED = frozenset(code.name for code in Code if code.exit_code)
