"""What ``epsilon db`` answers when it does not do what was asked: one plain sentence, and an exit code."""

from __future__ import annotations

from typing import ClassVar


class NotDone(RuntimeError):  # noqa: N818 - said to people as it is
    """What was asked for does not fit the state it meets; nothing was changed."""

    exit_code: ClassVar = 5


class Absent(NotDone):
    """There is nothing where something is named."""

    exit_code: ClassVar = 4


class SchemaUnknown(NotDone):
    """The book has a schema this program does not know, or is no book."""
