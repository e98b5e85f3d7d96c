"""Fields that several kinds of command share: in their bodies, and in what their entries record beside the request."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.field_types import Did, distinct
from ledger.wire.records import Record

BODIES_MAX: Final = 64
"""Organisations that one lineage command names."""
Organisations = Annotated[tuple[Did, ...], distinct(BODIES_MAX)]
Several = Annotated[tuple[Did, ...], distinct(BODIES_MAX, 2)]
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


class Parents(Record, frozen=True):
    """The nodes whose knowledge comes together, as the entry records them."""

    parents: tuple[NodeIndex, ...]
