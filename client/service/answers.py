"""What the service answers to a command and to a document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from ledger.verifier import RECEIPT_BYTES_MAX
from ledger.wire import canonical_json as c

_TAG_MAX: Final = 100
_WARNINGS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What the service did: ``body`` is the entry's body, ``receipt`` proves the entry at ``index`` offline.

    Attributes:
        repeated: the service had this very command already; everything else is the same answer again.
        warnings: caps that it states and under which no run, or not the declared plan, could be admitted; of a quote,
            that an account which is shared with others may have no room, or that the run would be a first charge.
        envelope: of a key release, the data keys sealed to the clean room; None from an authorise-only store.
    """

    outcome: str
    id: str
    index: int | None
    body: c.Object
    receipt: str | None
    repeated: bool = False
    envelope: c.Object | None = None
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, value: c.Object) -> Answer:
        """The answer to a command, read strictly. Raises: Malformed."""
        members = ("body", "id", "index", "outcome", "receipt", "repeated")
        values = c.fields(value, "answer", members, ("envelope", "warnings"))
        index, receipt = values["index"], values["receipt"]
        return cls(
            outcome=c.string(values["outcome"], "answer.outcome"),
            id=c.name(values["id"], "answer.id"),
            index=None if index is None else c.integer(index, "answer.index", 0, c.INTEGER_MAX),
            body=values["body"],
            receipt=None if receipt is None else c.string(receipt, "answer.receipt", RECEIPT_BYTES_MAX),
            repeated=c.boolean(values["repeated"], "answer.repeated"),
            envelope=values.get("envelope"),
            warnings=tuple(c.strings(values["warnings"], "answer.warnings", _WARNINGS_MAX))
            if "warnings" in values
            else (),
        )


class Stored(NamedTuple):
    """A document beside the log, and the signature over it, each by its digest.

    Attributes:
        replaces: the tag of the version of a policy or a contract that the document would replace.
    """

    document: str
    signature: str
    replaces: str | None

    @classmethod
    def of(cls, value: c.Object) -> Stored:
        """The answer to a document, read strictly. Raises: Malformed."""
        replaces = value.get("replaces")
        return cls(
            document=c.sha256(value.get("document"), "document"),
            signature=c.sha256(value.get("signature"), "signature"),
            replaces=None if replaces is None else c.string(replaces, "replaces", _TAG_MAX),
        )
