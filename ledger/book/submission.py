"""What is sent to a book, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c


class BookStopped(RuntimeError):  # noqa: N818 - what is the case
    """The book takes no commands: it was closed, or a commit failed and its outcome is unknown."""


class BookUnusable(RuntimeError):  # noqa: N818 - what is the case
    """The book cannot be opened; the message says why and what to do."""


class BookBusy(RuntimeError):  # noqa: N818 - what is the case
    """The book has no room for this now; nothing of it was recorded, and it may be sent again."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A command as it is sent: canonical bytes and the detached JWS over them."""

    raw: bytes
    signature: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command got.

    Attributes:
        index: its entry's place in the log; None if it was not recorded.
        body: the entry's body, or the checks of a quote.
        receipt: proof of the entry under a signed checkpoint.
        field: the field at fault, if one is.
        repeated: the very same command was recorded before, and this is the answer it got then.
    """

    code: Code
    id: str
    index: int | None
    body: c.Object
    receipt: str | None
    field: str
    detail: str
    repeated: bool
