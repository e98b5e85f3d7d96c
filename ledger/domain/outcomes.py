"""States of a charge, and the one closed list of outcome codes.

Codes are in order of precedence: when several apply, the first is used. Only codes marked ``recorded`` become
entries; malformed and unauthenticated input and internal errors are not recorded and may be sent again.
"""

from __future__ import annotations

from enum import Enum, StrEnum

from ledger.domain.exit_codes import ExitCode


class ChargeState(StrEnum):
    """The state of a charge; posted and voided are final."""

    PENDING = "pending"
    POSTED = "posted"
    VOIDED = "voided"


class StableCode(Enum):
    """A code with its HTTP status and a short sentence for people, the same at every occurrence.

    Attributes:
        word: the code as it is written in entries, problems and JSON output.
    """

    def __init__(self, http_status: int, title: str) -> None:
        """Derive the word from the name."""
        self.http_status, self.title = http_status, title
        self.word = self.name.lower()


class Code(StableCode):
    """Every outcome a command can have.

    Attributes:
        exit_code: of a command line that ends with it.
        recorded: whether it becomes an entry, final for the command's id: what is done, or refused by policy or budget.
        refused: requested and not granted.
    """

    MALFORMED = 422, "The input breaks a rule of its format", ExitCode.INVALID
    SIGNATURE_INVALID = 401, "The signature does not verify", ExitCode.NOT_AUTHORISED
    SIGNATURE_MISSING = 401, "A required signature is missing", ExitCode.NOT_AUTHORISED
    NOT_AUTHORISED = 403, "The signer may not ask for this", ExitCode.NOT_AUTHORISED
    ID_REUSED = 409, "The id was used for another command", ExitCode.CONFLICT
    NOT_FOUND = 404, "A thing the command names does not exist", ExitCode.NOT_FOUND
    CONFLICT = 409, "The command does not fit the state it meets", ExitCode.CONFLICT
    NOT_PRICED = 403, "The rule has no proven price for the mechanism", ExitCode.REFUSED
    POLICY_DENIED = 403, "A policy or contract denies it", ExitCode.REFUSED
    BUDGET_EXHAUSTED = 409, "An account has no room for it", ExitCode.REFUSED
    PENDING = 201, "Charged and pending"
    POSTED = 201, "Settled for what ran"
    VOIDED = 201, "Settled for nothing"
    PERMITTED = 201, "Permitted and recorded"

    def __init__(self, http_status: int, title: str, exit_code: ExitCode = ExitCode.DONE) -> None:
        """``DONE`` by default."""
        super().__init__(http_status, title)
        self.exit_code, self.refused = exit_code, exit_code is not ExitCode.DONE
        self.recorded = exit_code in {ExitCode.DONE, ExitCode.REFUSED}

    @classmethod
    def of(cls, word: str) -> Code:
        """The code written ``word``. Raises: KeyError."""
        return _BY_WORD[word]


_BY_WORD = {code.word: code for code in Code}
