"""A page as a reader follows it: a ledger in a first terminal, and in a second one each block, run or written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.documentation.fenced_blocks import Block

ENVIRONMENT: Final = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
"""The commands of this environment are on the path, as the pages ask."""


@contextmanager
def served(place: Path, command: str) -> Iterator[list[str]]:
    """The first terminal with what it shows, until the reader presses Ctrl-C there; on free ports."""
    words = [*command.split(), "--port", "0", "--issuer-port", "0"]
    process = subprocess.Popen(
        words, cwd=place, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    try:
        said: list[str] = []
        for line in process.stdout:
            said.append(line)
            if line.endswith("until interrupted.\n"):
                break
        else:
            raise AssertionError(process.wait())
        yield said
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 0


def followed(place: Path, blocks: list[Block]) -> str:
    """Write each file and run each shell block of the second terminal; what they printed."""
    printed = ""
    for one in blocks:
        if one.language != "sh":
            (place / one.place).write_text(one.text)
        elif not one.place:
            done = subprocess.run(
                ["bash", "-euc", one.text], cwd=place, env=ENVIRONMENT, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, one.text + done.stdout + done.stderr
            printed += done.stdout
    return printed
