"""Why a change needs no test: what ``explained.toml`` says of it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.mutants.changes import Change, Function

Reasons = Sequence[Mapping[str, str]]
EXPLAINED: Final = Path(__file__).with_name("explained.toml")


def reasons() -> Reasons:
    """All that are written down."""
    found: list[dict[str, str]] = tomllib.loads(EXPLAINED.read_text(encoding="utf-8"))["explained"]
    return found


def explain(function: Function, change: Change, known: Reasons) -> str | None:
    """The reason for a change: of its function alone, or of every change of its kind; None without one."""
    for one in known:
        named = one.get("function", function.name) == function.name
        if named and re.fullmatch(one["was"], change.was) and re.fullmatch(one["now"], change.now):
            return one["why"]
    return None
