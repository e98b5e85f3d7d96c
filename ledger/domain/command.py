"""The envelope of a command: what organisations and clean rooms request, as it is signed and sent.

    {"actor":"did:web:bank-a.example","body":{...},"id":"run-1","key_id":"8kPT...","kind":"charge","v":1}

The signed bytes are the RFC 8785 form of the whole command, and the HTTP body is those bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from ledger.wire.field_types import Did, KeyBytes, Name, Ref, constant, pattern
from ledger.wire.records import Record, convert, write

COMMAND_BYTES_MAX: Final = 32_768
"""Half of an entry's limit; the other half is for the decision."""
LEDGER_ACTOR: Final = "did:web:ledger.invalid"
"""The actor of the book's own entries, signed with the log's key."""
REASON_MAX: Final = 2_000
"""Characters of the reason that a command gives."""


class Command(Record, frozen=True):
    """One command of ``actor``, signed by the key ``key_id``, under an id that the client made."""

    kind: Annotated[str, pattern("[a-z_]{1,32}", "must be the name of a kind of command")]
    id: Name
    actor: Did
    key_id: KeyBytes
    body: dict[str, Any]
    v: Literal[1] = constant(1)

    def to_bytes(self) -> bytes:
        """The canonical bytes, as they are signed."""
        return write(self)


def parse_ref(value: object, field: str) -> str:
    """A partition reference, ``provider/dataset/partition``. Raises: Malformed."""
    return convert(Ref, value, field)
