"""Verifiers and a witness that are not ours, from a folder of their own, as ``make test`` installs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final

HOME: Final = Path(sys.prefix) / "witness"


def other(name: str) -> ModuleType:
    """A module of theirs; their folder is on the path only while it is imported."""
    if not HOME.is_dir():
        message = f"{HOME} is missing: 'make test' installs it"
        raise FileNotFoundError(message)
    sys.path.append(str(HOME))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(HOME))


def run(module: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """A command of theirs."""
    return subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(),
    )


class Witness:
    """A witness of theirs, a process of its own on a loopback port, which knows one log."""

    def __init__(self, config: Path, vkey: str, url: str) -> None:
        self.config, self.vkey, self.url = config, vkey, url

    @property
    def named(self) -> str:
        """As ``epsilon witness`` is told of it."""
        return f"{self.vkey}={self.url}"


@contextmanager
def serving(folder: Path, name: str, origin: str, log: str) -> Iterator[Witness]:
    """A witness with a key and a database of its own, while the block runs; one that a folder has goes on."""
    config = folder / "witness.json"
    fresh = () if config.exists() else ("--name", name, "--listen", "127.0.0.1:0")
    made = run("aics_witness", "init", "-c", config, *fresh)
    assert made.returncode == 0, made.stderr
    known = run("aics_witness", "add-log", "-c", config, "--origin", origin, "--vkey", log)
    assert known.returncode == 0, known.stderr
    with subprocess.Popen(
        [sys.executable, "-m", "aics_witness", "serve", "-c", str(config)],
        stderr=subprocess.PIPE,
        text=True,
        env=_environment(),
    ) as process:
        assert process.stderr is not None
        try:
            reported = []
            for line in process.stderr:
                reported.append(line)
                found = re.search(r"listening on (http://127\.0\.0\.1:\d+)", line)
                if found:
                    yield Witness(config, made.stdout.strip(), found[1])
                    return
            raise AssertionError("".join(reported))
        finally:
            process.terminate()


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(HOME), "PYTHONUNBUFFERED": "1"}
