"""Mechanisms read by themselves, outside any plan."""

from __future__ import annotations

from ledger.mechanisms.decomposition import check_pieces
from ledger.mechanisms.mechanism import AnyMechanism, Mechanism
from ledger.wire.records import convert


def parse_mechanism(value: object) -> Mechanism:
    """Read a mechanism of any kind; the exact inverse of ``to_json``. Raises: Malformed, after bounded work."""
    found: Mechanism = convert(AnyMechanism, value)
    check_pieces(found)
    return found
