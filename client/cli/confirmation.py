"""Asking before what cannot be taken back: at a terminal a question, elsewhere `--yes`."""

from __future__ import annotations

import sys

import typer


def confirm(question: str, refused: str, *, required: str) -> None:
    """Ask at a terminal.

    Args:
        refused: what is reported if the answer is no.
        required: why there must be a --yes where no one can be asked; empty if there need not be.

    Raises:
        Malformed: unless a person says yes, or nothing is required and there is no terminal.
    """
    from ledger.wire.malformed import Malformed

    if sys.stdin.isatty():
        # Not the library's own prompt, which would put a blank on stdout.
        typer.echo(f"{question} [y/N] ", nl=False, err=True)
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise Malformed("--yes", refused)
    elif required:
        raise Malformed("--yes", f"is required without a terminal: {required}")
