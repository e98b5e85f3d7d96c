"""Errors that a verification reports: the first wrong place, or two histories under one key."""

from __future__ import annotations

import re
from typing import Final

from ledger.verifier import Checkpoint

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class VerificationFailed(Exception):  # noqa: N818 - what is the case
    """The first error of a verification, at the entry ``index`` if it concerns one."""

    def __init__(self, index: int | None, error: str) -> None:
        """Name the place."""
        # A changed byte may be a line feed, or a control character that moves a terminal's cursor.
        readable = _CONTROL.sub(lambda match: repr(match[0])[1:-1], error)
        super().__init__(f"entry {index}: {readable}" if index is not None else readable)
        self.index = index

    def to_json(self) -> dict[str, object]:
        """For programs."""
        return {"entry": self.index, "fault": str(self), "ok": False}


class Fork(VerificationFailed):
    """The log's key has signed two histories: that of a kept checkpoint, and the book's.

    Attributes:
        kept: the head of the kept checkpoint.
        newest: the book's own.
        agreed: the size of the largest kept head that the book extends: the histories part at an entry
            from this index on, and before ``kept.size``.
    """

    def __init__(self, kept: Checkpoint, newest: Checkpoint, agreed: int) -> None:
        """Show both heads."""
        last = kept.size - 1
        place = f"entry {agreed}" if agreed == last else f"one of the entries {agreed} to {last}"
        super().__init__(
            agreed if agreed == last else None,
            f"fork: {kept.origin} has signed two histories. Kept: {_head(kept)}. The book: {_head(newest)}. "
            f"They part at {place}",
        )
        self.kept, self.newest, self.agreed = kept, newest, agreed

    def to_json(self) -> dict[str, object]:
        """For programs."""
        heads = {"book": _head_to_json(self.newest), "kept": _head_to_json(self.kept), "parts_from": self.agreed}
        return {**super().to_json(), "fork": heads}


class Shorter(VerificationFailed):
    """The book has fewer entries than the log's key has signed."""

    def __init__(self, kept: Checkpoint, size: int) -> None:
        """Report how many entries are missing."""
        super().__init__(
            size,
            f"is missing: the book is shorter than a kept checkpoint ({_head(kept)}), and ends with "
            f"{size} entries: a backup was restored, or entries were cut off",
        )
        self.kept = kept


def _head(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.size} entries, root {checkpoint.root.hex()}"


def _head_to_json(checkpoint: Checkpoint) -> dict[str, object]:
    return {"root": checkpoint.root.hex(), "size": checkpoint.size}
