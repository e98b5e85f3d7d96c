"""A snapshot of the database with what the writer has in memory at the same size of the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection


@dataclass(frozen=True, slots=True)
class Pinned:
    """A snapshot of the database, and what the writer has in memory, at one size of the log.

    Attributes:
        connection: reads the snapshot; its receiver closes it.
        edge: the nodes of the tree's right edge, which its root is made of.
        counts: how many charges and keys there are, settled ones included.
    """

    connection: Connection
    size: int
    edge: dict[tuple[int, int], bytes]
    parts: dict[str, dict[Any, Any]]
    counts: dict[str, int]
