"""What several lineage commands share: lists of organisations, and the nodes that their entries record."""

from __future__ import annotations

from typing import Annotated, Final

from ledger.commands.recorded_fields import NodeIndex
from ledger.wire.field_types import Did, distinct
from ledger.wire.records import Record

BODIES_MAX: Final = 64
"""Organisations that one lineage command names."""
Organisations = Annotated[tuple[Did, ...], distinct(BODIES_MAX)]
Several = Annotated[tuple[Did, ...], distinct(BODIES_MAX, 2)]


class Parents(Record, frozen=True):
    """The nodes whose knowledge comes together, as the entry records them."""

    parents: tuple[NodeIndex, ...]
