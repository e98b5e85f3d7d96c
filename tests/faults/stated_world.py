"""A world whose book states its state every few entries, and writes a snapshot of it about as often."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ledger.book.book import Book
from ledger.book.state import snapshot_file, state_statements
from tests.factories.stored import StoredWorld

SNAPSHOT: Final = "book.snapshot"


class StatedWorld(StoredWorld):
    """A world that is opened by its snapshot, which lies in its folder."""

    def open(self, **changes: Any) -> Book:  # noqa: ANN401 - any argument of Book.open
        """Another opening of the same book."""
        return super().open(**{"statements": True, "snapshot": self.path.with_name(SNAPSHOT), **changes})


def state_often(set_value: Callable[[object, str, object], None]) -> None:
    """Make statements and snapshots as frequent as short tests need them."""
    set_value(state_statements, "EVERY", 8)
    set_value(snapshot_file, "EVERY", 8)
    set_value(snapshot_file, "EVERY_CLOSING", 1)
