"""What a charge has to state where a policy refuses one that leaves it out: a sentence for the people who wrote it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_FIELDS: Final = {
    "leases_not_asked": '"step_leases": true',
    "pipeline_not_named": '"pipeline": "the SHA-256 of the file of what runs"',
}
"""By the code of a check that fails, the member of the charge that it needs."""


def missing_field(code: str) -> Iterator[str]:
    """What to add to the charge for a check with this code; nothing for a check that no field passes."""
    if code in _FIELDS:
        yield f"  add to the charge: {_FIELDS[code]}"
