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
    return next((one["why"] for one in known if fits(one, function, change)), None)


def fits(reason: Mapping[str, str], function: Function, change: Change) -> bool:
    """Whether a reason is one for this change."""
    named = reason.get("function", function.name) == function.name
    return named and all(re.fullmatch(reason[side], getattr(change, side)) for side in ("was", "now"))
