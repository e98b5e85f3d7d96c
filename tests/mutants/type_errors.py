"""Which changes the strict type check sees: those need no test, since ``make check`` refuses them.

All changed copies of a module's functions stand beside the functions in one text, which mypy reads in the module's
place. A copy is refused if mypy says of its lines what it does not say of a copy without a change.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.mutants.changes import Function

_ERROR: Final = re.compile(r"(?P<path>[^:]+):(?P<line>\d+):(?:\d+:)? error: (?P<text>.*)")
_UNCHANGED: Final = 0
_NAME: Final = "copy_{place}_{name}"
_ANY_NAME: Final = re.compile(r"\bcopy_\d+_")
_Copies = dict[int, tuple[str, int]]
"""The function and place of the change whose copy holds a line."""


def refused(modules: Sequence[Sequence[Function]], folder: Path) -> set[tuple[str, int]]:
    """The function and place of each change that mypy refuses, among the functions of each of these modules."""
    copies: dict[str, _Copies] = {}
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", "--cache-dir", str(folder / "cache")]
    folder.mkdir(parents=True, exist_ok=True)
    for found in modules:
        path = found[0].path
        text, copies[str(path)] = _beside(path, found)
        shadow = folder / str(path).replace("/", ".")
        shadow.write_text(text, encoding="utf-8")
        command += ["--shadow-file", str(path), str(shadow)]
    paths = [str(found[0].path) for found in modules]
    done = subprocess.run([*command, *paths], capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        raise RuntimeError(done.stdout + done.stderr)
    said: dict[tuple[str, int], set[str]] = {}
    for error in filter(None, map(_ERROR.match, done.stdout.splitlines())):
        copy = copies.get(error["path"], {}).get(int(error["line"]))
        if copy is not None:
            said.setdefault(copy, set()).add(_ANY_NAME.sub("", error["text"]))
    return {(name, place) for (name, place), texts in said.items() if texts - said.get((name, _UNCHANGED), set())}


def _beside(path: Path, found: Sequence[Function]) -> tuple[str, _Copies]:
    """The module's text with all copies behind their function, and which copy each line belongs to."""
    source = path.read_text(encoding="utf-8").splitlines()
    lines: list[str] = []
    copies: _Copies = {}
    after = 0
    for function in found:
        lines += source[after : function.body.stop - 1]
        after = function.body.stop - 1
        name = function.qualname.rpartition(".")[2]
        texts = [(_UNCHANGED, function.source), *((change.place, change.text) for change in function.changes)]
        for place, text in texts:
            copy = text.replace(f"def {name}(", f"def {_NAME.format(place=place, name=name)}(", 1)
            start = len(lines) + 1
            lines += [*function.decorators, *copy.splitlines()]
            copies.update(dict.fromkeys(range(start, len(lines) + 1), (function.name, place)))
    return "\n".join([*lines, *source[after:]]) + "\n", copies
