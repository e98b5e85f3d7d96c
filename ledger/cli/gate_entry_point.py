"""The gate that is installed beside this program: it comes by its entry point, since the ledger imports no policy."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Final

from ledger.domain.gate import Gate

GATES: Final = "epsilon.gate"
"""The group of entry points whose one member is the gate."""


def installed_gate() -> Gate | None:
    """The installed gate; None where there is none. Raises: ValueError, if there are several."""
    found = list(entry_points(group=GATES))
    if len(found) > 1:
        raise ValueError(f"several gates are installed: {', '.join(sorted(one.value for one in found))}")
    gate: Gate | None = found[0].load() if found else None
    return gate
