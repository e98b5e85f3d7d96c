"""Commands to print: quoted for a POSIX shell, relative to where this program was started, so that they can be pasted.

The program is named by its path: another terminal need not have the environment of this one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import join


def shown(path: Path) -> str:
    """A path, relative to this folder if it is below it."""
    # Not resolved: in an environment the interpreter is a link, and what it links to lacks our packages.
    here = Path.cwd()
    absolute = here / path
    return str(absolute.relative_to(here)) if absolute.is_relative_to(here) else str(path)


def epsilon_command(*words: str | Path) -> str:
    """A line of shell that runs this program with these words."""
    program = Path(sys.argv[0])
    if program.name == "epsilon":
        name = shown(program)
        started = [name if "/" in name else f"./{name}"]
    else:
        started = [shown(Path(sys.executable)), "-m", "epsilon_ledger"]
    return join([*started, *(shown(word) if isinstance(word, Path) else word for word in words)])
