"""The fenced blocks of the pages, and who runs each.

A comment on a line of its own says it of all blocks up to the next such comment:

    <!-- run by: tests/e2e/test_quick_start.py -->
    <!-- output -->

A test that is named reads the page and runs its blocks; ``output`` are blocks that show what something prints, or the
form of a file, and are no code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
OUTPUT: Final = "output"
_MARK: Final = re.compile(r"<!-- (?:run by: (\S+)|(output)) -->")
_FENCE: Final = re.compile(r"```(\w*)(?: ([^\n]+))?")
_ENDS: Final = re.compile(r"  # ends with (\d+)$")


@dataclass(frozen=True)
class Block:
    """One block: the line it begins at, from 1; its language; what follows that; its text; who runs it."""

    line: int
    language: str
    place: str
    text: str
    run_by: str | None


def pages() -> list[Path]:
    """Every page, the rooms' own among them."""
    docs = ROOT / "docs"
    inner = (ROOT / "api" / "console", ROOT / "policy" / "depa")
    rooms = [*(one / "README.md" for one in inner), *ROOT.glob("[a-z]*/README.md")]
    return sorted({*ROOT.glob("*.md"), *rooms, *docs.rglob("*.md")})


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    found: list[Block] = []
    run_by, begun = None, None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(keepends=True), 1):
        if begun is not None and line.rstrip() == "```":
            at, language, place, lines = begun
            found.append(Block(at, language, place, "".join(lines), run_by))
            begun = None
        elif begun is not None:
            begun[3].append(line)
        elif fence := _FENCE.match(line):
            begun = (number, fence[1], fence[2] or "", list[str]())
        elif mark := _MARK.match(line):
            run_by = mark[1] or mark[2]
    assert begun is None, f"{page}: a block without an end"
    return found


def commands(page: Path, run_by: str) -> list[tuple[str, int]]:
    """The lines of the shell blocks of a page that one test runs, each with the exit code that the page says."""
    found = []
    for block in blocks(page):
        if block.language == "sh" and block.run_by == run_by:
            for line in filter(None, block.text.splitlines()):
                ends = _ENDS.search(line)
                found.append((_ENDS.sub("", line), int(ends[1]) if ends else 0))
    return found
