"""Commands run in this process: the whole program is assembled once, where a runner of typer's does it for each run."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from typing import NamedTuple

from tests.epsilon_ledger.commands import root

COLUMNS = "200"


class Done(NamedTuple):
    """What a command left: its exit code, stdout and stderr."""

    code: int
    out: str
    err: str


def run_command(words: Sequence[str]) -> Done:
    """Run what stands after ``epsilon``, with nothing to read. Raises: what the command raises."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    columns, stdin = os.environ.get("COLUMNS"), sys.stdin
    os.environ["COLUMNS"], sys.stdin = COLUMNS, io.TextIOWrapper(io.BytesIO())
    code: object = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            root().main([*words], prog_name="epsilon")
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdin = stdin
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
    return Done(code if isinstance(code, int) else 0, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()
