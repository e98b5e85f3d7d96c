"""What becomes of leased steps that a run did not take, in words: how many came back, and on whose word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ledger.wire.canonical_json import Json

_WORD: Final = {
    "attested": "on fresh evidence (refund: attested), which proves the code that says so and not its memory",
    "stated": "on the clean room's word (refund: stated), which is trust in the clean room: no one can check it",
}


def refund_lines(leases: Json, returned: Json) -> list[str]:
    """A line on leased steps of a pending run, or on those that the post of a settled one returned; none without."""
    if isinstance(returned, dict):
        return [f"{returned['steps']} leased steps came back {_WORD[str(returned['refund'])]}."]
    refund = leases.get("refund") if isinstance(leases, dict) else None
    return [f"Leased steps that are not taken come back {_WORD[refund]}."] if refund in _WORD else []
