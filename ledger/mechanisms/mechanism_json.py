"""Reading mechanisms: strict, bounded, and the exact inverse of ``Mechanism.to_json``."""

from __future__ import annotations

from typing import Final

from ledger.mechanisms.decomposition import atoms, count_selections, depth, to_steps
from ledger.mechanisms.mechanism import LEAVES_MAX, AnyMechanism, Mechanism
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert

SELECTIONS_MAX: Final = 2
DEPTH_MAX: Final = 6


def parse_mechanism(value: object) -> Mechanism:
    """Read a mechanism of any kind; the exact inverse of ``to_json``. Raises: Malformed, after bounded work."""
    found: Mechanism = convert(AnyMechanism, value)
    check_pieces(found)
    return found


def check_pieces(mechanism: Mechanism) -> None:
    """Raises: Malformed, for more nesting, pieces or selections than are priced."""
    if depth(mechanism) > DEPTH_MAX:
        raise Malformed("", f"is nested deeper than {DEPTH_MAX} mechanisms")
    if sum(1 for _ in atoms(mechanism)) > LEAVES_MAX:
        raise Malformed("", f"holds more than {LEAVES_MAX} mechanisms")
    to_steps(mechanism)
    if count_selections(mechanism) > SELECTIONS_MAX:
        raise Malformed("", f"holds more than {SELECTIONS_MAX} selections")
