"""The errors of ``epsilon db``: one sentence each, and an exit code."""

from __future__ import annotations

from typing import ClassVar

from ledger.domain.exit_codes import ExitCode


class NotDone(RuntimeError):  # noqa: N818 - its text is the report
    """The request conflicts with the current state; nothing was changed."""

    exit_code: ClassVar = ExitCode.CONFLICT


class Absent(NotDone):
    """There is no book, file or folder of this name."""

    exit_code: ClassVar = ExitCode.NOT_FOUND


class SchemaUnknown(NotDone):
    """The book has a schema that this program does not know, or is not a book."""
