"""Profiles as text: the tables that ``epsilon serve``, ``epsilon dev-issuer`` and the parties' commands read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from ledger.files.atomic_file import SHARED, create_file

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_DELETE: Final = "\x7f"

Value = str | int | bool | tuple[str, ...] | Mapping[str, str]


def profile_text(tables: Mapping[str, Mapping[str, Value]], comment: str = "") -> str:
    """A profile of these tables (TOML 1.0); a value that is a mapping becomes a table of its own, after the others."""
    lines = [*(f"# {line}" for line in comment.splitlines()), "v = 1"]
    for name, table in tables.items():
        nested = {key: member for key, member in table.items() if isinstance(member, Mapping)}
        own = {key: member for key, member in table.items() if not isinstance(member, Mapping)}
        if own:
            lines += ["", f"[{name}]", *(f"{_key(key)} = {_value(value)}" for key, value in own.items())]
        for key, table_ in nested.items():
            lines += ["", f"[{name}.{_key(key)}]", *(f"{_key(each)} = {_value(text)}" for each, text in table_.items())]
    return "\n".join(lines) + "\n"


def create_profile(path: Path, tables: Mapping[str, Mapping[str, Value]], comment: str = "") -> None:
    """Write a new profile. Raises: FileExistsError, OSError."""
    create_file(path, profile_text(tables, comment).encode("utf-8"), mode=SHARED)


def path_for_profile(folder: Path, path: Path) -> str:
    """A path as a profile in a folder names it: relative to the folder if it lies there, else absolute."""
    place, absolute = folder.resolve(), path.resolve()
    return str(absolute.relative_to(place) if absolute.is_relative_to(place) else absolute)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Value) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_value, value))}]"
    # JSON escapes all that TOML's basic strings have to, but for one character.
    return json.dumps(value, ensure_ascii=False).replace(_DELETE, "\\u007f")
