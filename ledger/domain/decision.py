"""The decision on a command before it is an entry, and the rejection that a guard raises."""

from __future__ import annotations

from msgspec import Struct

from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c


# A struct is made in C: one of these is made for every command.
class Decision(Struct, frozen=True):
    """An outcome before it is an entry; ``derived`` is what the entry's body adds to the request.

    Attributes:
        spelled: the canonical bytes of the entry's body without the request, if they are known.
        answered: fields of the answer that the entry does not record.
    """

    code: Code
    detail: str = ""
    field: str = ""
    derived: c.Object = {}
    spelled: bytes = b""
    answered: c.Object = {}


class Rejected(Exception):  # noqa: N818 - a rejection is a value; it is raised by one guard and ends in a Decision
    """A guard rejects the command."""

    def __init__(self, code: Code, detail: str, where: str = "", derived: c.Object | None = None) -> None:
        """The decision that this rejection gives."""
        super().__init__(detail)
        self.decided = Decision(code, detail, where, derived or {})
