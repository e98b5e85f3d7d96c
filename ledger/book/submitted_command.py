"""What a client submits to a book, and the outcome it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from msgspec import Struct, structs

from ledger.commands.context import PendingCommand
from ledger.commands.registry import read_command
from ledger.domain.command import Command
from ledger.domain.facts import Facts
from ledger.domain.outcomes import Code
from ledger.store.schema_revision import BookUnusable
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c

__all__ = [
    "BookBusy",
    "BookPaused",
    "BookStopped",
    "BookUnusable",
    "Outcome",
    "PricesChange",
    "PricingRefused",
    "RowsDiffer",
    "Submission",
]


class BookStopped(RuntimeError):  # noqa: N818 - what is the case
    """The book takes no commands: it was closed, or a commit failed and its outcome is unknown."""


CLOSED: Final = "the book is closed"


def reason_to_stop(error: BaseException) -> str:
    """Why a book has stopped, in words: the driver's message, without the statement and its values."""
    reported = str(getattr(error, "orig", None) or error).strip().partition("\n")[0][:300]
    return (
        f"the book stopped after {type(error).__name__}: {reported}. Whether the last commands were "
        "recorded is unknown: open the book again and send them again with the same ids"
    )


class RowsDiffer(BookStopped):
    """Rows that readers see are not what the entries make them: no state is read, while commands are still taken."""


class BookBusy(RuntimeError):  # noqa: N818 - what is the case
    """The book has no capacity for this now; nothing of it was recorded, and the client may retry."""


class PricesChange(BookBusy):
    """The prices of a command change as fast as they are computed; or a row says something else than the entries do."""


class PricingRefused(BookBusy):
    """An organisation has no turn left to be priced: too many of its commands wait, or its quota is used up.

    Attributes:
        wait_s: after so many seconds its quota has room; 0 where too many commands wait.
        decided: outcomes of the commands before it in the same call, which stand; nothing else of the call is recorded.
    """

    def __init__(self, detail: str, wait_s: float = 0.0) -> None:
        """Refuse, in words."""
        super().__init__(detail)
        self.wait_s = wait_s
        self.decided: list[Outcome] = []


class BookPaused(BookBusy):
    """The clock cannot be believed, or the log's key is suspended: nothing is recorded; the client may retry."""


@dataclass(frozen=True)
class Submission:
    """A command as it is sent: canonical bytes and the detached JWS over them. It is parsed once, when first needed.

    Attributes:
        nonce_once: whether it is a conflict, and not recorded, if an entry of the last ten minutes holds its nonce.
    """

    raw: bytes
    signature: str
    nonce_once: bool = False

    @cached_property
    def pending(self) -> PendingCommand:
        """The whole command, its signature not yet verified. Raises: Malformed."""
        found = read_command(self.raw, self.signature)
        return structs.replace(found, nonce_once=True) if self.nonce_once else found

    @property
    def command(self) -> Command:
        """The envelope of the command. Raises: Malformed."""
        return self.pending.command


Views = Callable[[Snapshot, PendingCommand, int], Sequence[Facts]]
"""What the sender of a command may see of a state at a time (ms): the state with the least room that it may have, and
with the most; nothing where it may see the state itself."""


class Outcome(Struct, frozen=True):
    """The outcome of one command.

    Attributes:
        index: its entry's place in the log; None if it was not recorded.
        body: the entry's body, or the checks of a quote.
        prove: puts the receipt together; None if nothing was recorded.
        field: the field that is invalid, if one is.
        repeated: the same command was recorded before, and this is the answer that it got then; its id is an
            idempotency key.
        answered: what an answer says beside the body of the entry; of what was recorded before, nothing.
        uncertain: of a quote, whether the caller may not learn if an account has room.
    """

    code: Code
    id: str
    index: int | None
    body: c.Object
    prove: Callable[[], str] | None
    field: str
    detail: str
    repeated: bool
    answered: c.Object = {}
    uncertain: bool = False

    @property
    def receipt(self) -> str | None:
        """Proof of the entry under a signed checkpoint (C2SP tlog-proof), which is made when it is read."""
        return None if self.prove is None else self.prove()
