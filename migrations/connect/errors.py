"""What ``epsilon db`` answers when it does not do what was asked: one plain sentence, and an exit code."""

from __future__ import annotations

from typing import ClassVar

from ledger.domain.exit_codes import ExitCode


class NotDone(RuntimeError):  # noqa: N818 - said to people as it is
    """What was asked for does not fit the state it meets; nothing was changed."""

    exit_code: ClassVar = ExitCode.CONFLICT


class Absent(NotDone):
    """There is nothing where something is named."""

    exit_code: ClassVar = ExitCode.NOT_FOUND


class SchemaUnknown(NotDone):
    """The book has a schema this program does not know, or is no book."""
