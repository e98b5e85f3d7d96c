"""What became of each change, one letter a change, and the file that keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

KILLED: Final = "k"
ENDLESS: Final = "e"
"""A test did not end with it in eight times its time and five seconds."""
REFUSED: Final = "t"
"""By the strict type check."""
SURVIVED: Final = "s"
UNREACHED: Final = "u"
"""No selected test executes its line."""
NO_TIME: Final = "n"
DROPPED: Final = "d"
NOT_RUN: Final = "."

KEPT: Final = Path(__file__).with_name("decided.txt")
DECIDED: Final = Path("mutants/decided.jsonl")


def read() -> dict[tuple[str, str], str]:
    """The letters of each function that was tried, by its name and the digest of its source."""
    found: dict[tuple[str, str], str] = {}
    if KEPT.exists():
        for line in KEPT.read_text(encoding="utf-8").splitlines():
            name, digest, letters = line.split()
            found[name, digest] = letters
    if DECIDED.exists():
        for line in DECIDED.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            key = one["function"], one["digest"]
            letters = found.get(key, "").ljust(one["place"], NOT_RUN)
            found[key] = letters[: one["place"] - 1] + one["status"] + letters[one["place"] :]
    return found


def write(statuses: Mapping[tuple[str, str], str]) -> None:
    """Keep them all, one function a line."""
    lines = (f"{name} {digest} {letters}\n" for (name, digest), letters in sorted(statuses.items()))
    KEPT.write_text("".join(lines), encoding="utf-8")
