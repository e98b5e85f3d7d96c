"""Answers about what was decided: checks, and the decision that an entry records."""

from __future__ import annotations

from typing import Annotated, Any, Final, Self

from msgspec import Meta

from api.http.answers import Answer
from api.http.field_types import Index, KeyBytes, Time, one_of
from ledger.commands.entry import Entry
from ledger.commands.registry import KINDS
from ledger.domain.gate import Check
from ledger.domain.outcomes import Code
from ledger.wire.field_types import Did, Name

RECORDED: Final = one_of(*(code.word for code in Code if code.recorded))
"""Outcomes that an entry records."""
Request = Annotated[Any, Meta(extra_json_schema={"type": "object"}, description="the body of the command")]


class Decision(Answer, frozen=True):
    """The decision on a command, with every check on record: all of a rejection's."""

    actor: Did
    checks: tuple[Check, ...]
    detail: str
    id: Name
    index: Index
    key_id: KeyBytes
    kind: Annotated[str, one_of(*KINDS)]
    outcome: Annotated[str, RECORDED]
    permit: bool
    request: Request
    time: Time

    @classmethod
    def of_entry(cls, entry: Entry, index: int) -> Self:
        """The decision that an entry records."""
        return cls.of(
            entry,
            checks=entry.body.get("checks", []),
            detail=entry.body.get("detail", ""),
            index=index,
            outcome=entry.code.word,
            permit=not entry.code.refused,
        )
