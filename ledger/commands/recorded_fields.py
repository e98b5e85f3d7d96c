"""Fields of what entries record beside the request and the outcome."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.records import Record

Natural = Annotated[int, Meta(ge=0, le=INTEGER_MAX)]
Count = Annotated[int, Meta(ge=1, le=INTEGER_MAX)]
Index = Annotated[int, Meta(ge=0, le=INTEGER_MAX, description="an index in the log")]
NodeIndex = Annotated[int, Meta(ge=0, le=INTEGER_MAX, description="a node of the lineage, by the index of its entry")]
RecordedHolder = Annotated[
    str, Meta(pattern="^(global|lineage:(0|[1-9][0-9]{0,15}))$", description="everyone, or one lineage by its node")
]


class RecordedLoss(Record, frozen=True):
    """By coordinate of the partition's rule: units of loss, and how many charges without bound."""

    finite: tuple[Natural, ...]
    infinite: tuple[Natural, ...]
