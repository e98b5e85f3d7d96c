"""docs/limits.md: every limit of the product, read off the source. ``python -m tests.project.write_limits`` writes it.

A limit is a constant of a module whose name ends in ``_MAX``, with or without a unit after it; a time is one whose name
ends in ``_S`` or ``_MS``, units of time aside. The line of text below a constant says what it means.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "docs" / "limits.md"
PACKAGES: Final[list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "importlinter"
]["root_packages"]
_NAME: Final = re.compile(r"_?[A-Z][A-Z0-9_]*_(MAX(_[A-Z]+)?|S|MS)")
_UNIT: Final = re.compile(r"_?(MINUTE|HOUR|DAY|WEEK|YEAR)_M?S")
_HEAD: Final = """# Limits

Every limit on size, depth, number and time, read off the source, and every other time that is fixed there: how long
something is waited for, kept or valid, and how often something is done. Limits are the names with `_MAX`. A name's last
part is its unit where it has one: `_S` seconds, `_MS` milliseconds, `_BYTES` bytes.
`python -m tests.project.write_limits` writes this page, and a test compares it with the source.
"""


@dataclass(frozen=True)
class Limit:
    """One constant: its value as the source writes it, and the text below it."""

    name: str
    value: str
    text: str


def limits_of(path: Path) -> Iterator[Limit]:
    """The limits that one module sets."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for place, statement in enumerate(body):
        if not isinstance(statement, ast.AnnAssign | ast.Assign) or isinstance(statement.value, ast.Tuple | None):
            continue
        target = statement.target if isinstance(statement, ast.AnnAssign) else statement.targets[0]
        if isinstance(target, ast.Name) and _NAME.fullmatch(target.id) and not _UNIT.fullmatch(target.id):
            below = body[place + 1] if place + 1 < len(body) else None
            text = below.value.value if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) else ""
            yield Limit(target.id, ast.unparse(statement.value), " ".join(str(text).split()))


def page() -> str:
    """The whole page."""
    parts = [_HEAD]
    for package in PACKAGES:
        rows = [
            f"| `{limit.name.lstrip('_')}` | `{limit.value}` | {limit.text} | `{path.relative_to(ROOT)}` |"
            for path in sorted((ROOT / package).rglob("*.py"))
            for limit in limits_of(path)
        ]
        if rows:
            parts.append(
                "\n".join([f"## {package}\n", "| name | value | meaning | where |", "|---|---|---|---|", *rows])
            )
    return "\n".join(part if part.endswith("\n") else part + "\n" for part in parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
