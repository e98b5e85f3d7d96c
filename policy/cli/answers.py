"""Shared by the read-only commands: how files and times are read, and how an answer is printed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from ledger.command_line.printable_text import json_text, printable, say
from ledger.domain.exit_codes import ExitCode

At = Annotated[str, typer.Option(help="Evaluate at this time, as 2026-01-01T00:00:00Z; now if omitted.")]


def file_bytes(path: Path, field: str) -> bytes:
    """A whole file. Raises: Malformed, also if it does not exist: for these commands it is an invalid argument."""
    from ledger.cli.input_files import read_bytes
    from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
    from ledger.wire.malformed import Malformed

    try:
        return read_bytes(path, field, POLICY_DOCUMENT_BYTES_MAX)
    except FileNotFoundError as error:
        raise Malformed("", str(error)) from None


def moment(at: str) -> int:
    """The time in Unix milliseconds; default: now. Raises: Malformed."""
    from policy.checks.field_readers import parse_time

    return parse_time(at, "--at") if at else time.time_ns() // 1_000_000


def print_answer(value: Any, lines: Iterator[str], *, as_json: bool, refused: bool = False) -> None:  # noqa: ANN401 - JSON
    """Print an answer as text or as JSON, and end with the exit code of a refusal if it is one."""
    for line in (json_text(value, ensure_ascii=False),) if as_json else map(printable, lines):
        say(line)
    if refused:
        raise typer.Exit(ExitCode.REFUSED)
