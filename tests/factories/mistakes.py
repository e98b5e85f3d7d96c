"""Mistakes as they are typed: the files that a row of the table needs, the run, and what it left behind."""

from __future__ import annotations

import json
import logging
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.factories.parties_walk import Desk

ROOT: Final = Path(__file__).parents[1]
Left = dict[str, tuple[int, int, int]]
"""By path, the mode, size and time of change of a file."""


@dataclass(frozen=True)
class Mistake:
    """One row.

    Attributes:
        name: what is wrong. typed: the command. code: its exit code.
        says: what its report must hold: the field as typed, the rule. then: the next step, in the last line.
        files: by name, what lies there: see :func:`prepare`.
        recorded: whether it is a refusal that the log keeps.
        first: its number among the 101 mistakes of a first trial of the command line; None for those thought of later.
    """

    name: str
    typed: str
    code: int
    says: tuple[str, ...]
    then: str
    files: dict[str, Any]
    recorded: bool
    first: int | None


def table(name: str) -> list[Mistake]:
    """Every row of a file below the folder of all tests."""
    rows = tomllib.loads((ROOT / name).read_text(encoding="utf-8"))["mistake"]
    return [
        Mistake(
            one["name"],
            one["type"],
            one["code"],
            tuple(one["says"]),
            one["then"],
            one.get("files", {}),
            one.get("recorded", False),
            one.get("first"),
        )
        for one in rows
    ]


def prepare(desk: Desk, files: dict[str, Any]) -> None:
    """Make a row's files: ``text``, ``hex`` or ``repeat`` with ``times``; or ``from`` another, changed by ``swap``.

    ``set`` changes members of a JSON file by their dotted names; ``cut`` removes them. ``folder`` makes a folder.
    """
    for name, how in files.items():
        path = desk.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if how.get("folder"):
            path.mkdir(exist_ok=True)
            continue
        data = _content(desk, how)
        path.write_bytes(data)
        path.chmod(how.get("mode", 0o600))


def _content(desk: Desk, how: dict[str, Any]) -> bytes:
    if "hex" in how:
        return bytes.fromhex(how["hex"])
    if "repeat" in how:
        return str(how["repeat"]).encode() * int(how["times"])
    if "text" in how:
        return desk.today(str(how["text"])).encode()
    text = (desk.folder / str(how["from"])).read_text(encoding="utf-8")
    for old, new in how.get("swap", []):
        before = desk.today(old)
        assert before in text, (how, old)
        text = text.replace(before, desk.today(new))
    if "set" in how or "cut" in how:
        value = json.loads(text)
        for place, new in how.get("set", {}).items():
            _inner(value, place)[place.rpartition(".")[2]] = new
        for place in how.get("cut", []):
            del _inner(value, place)[place.rpartition(".")[2]]
        text = json.dumps(value)
    encoding: str = how.get("encoding", "utf-8")
    return text.encode(encoding)


def _inner(value: dict[str, Any], place: str) -> dict[str, Any]:
    for name in place.split(".")[:-1]:
        value = value[name]
    return value


def left(folder: Path) -> Left:
    """Everything in a folder."""
    found: Left = {}
    for path in folder.rglob("*"):
        state = path.lstat()
        # A folder's own time changes when a temporary file comes and goes.
        found[str(path)] = (state.st_mode, 0, 0) if path.is_dir() else (state.st_mode, state.st_size, state.st_mtime_ns)
    return found


def complaints(desk: Desk, one: Mistake) -> list[str]:
    """Make the mistake; what is wrong with how it ended, a line each, with all that was printed. Raises: as it does."""
    prepare(desk, one.files)
    before, size = left(desk.folder), desk.world.size
    with _logging_kept():
        ran = desk.run(f"epsilon {one.typed}")
    shown, lines = ran.out + ran.err, ran.err.splitlines() or [""]
    # An error of typing ends with the sentence, and says before it where the help is.
    step = lines[1] if lines[0].startswith("Usage:") else lines[-1]
    wrong = [f"exit code {ran.code}, not {one.code}"] if ran.code != one.code else []
    wrong += [f"does not say {word!r}" for word in one.says if word not in shown]
    wrong += [f"the next step is not {one.then!r}"] if one.then not in step else []
    wrong += [f"shows {word}" for word in ("Traceback", "b'", "Error(", "None") if word in ran.err]
    wrong += ["left other files"] if left(desk.folder) != before else []
    wrong += ["recorded something"] if desk.world.size != size + one.recorded else []
    return [f"{one.name}: {line}; it printed {shown}" for line in wrong]


@contextmanager
def _logging_kept() -> Iterator[None]:
    """Let a command that logs for its whole process do so until it ends."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
