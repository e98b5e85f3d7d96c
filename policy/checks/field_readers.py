"""Strict readers of values that the ledger's canonical readers do not know: times, amounts, documents.

"2026-01-01T00:00:00Z"    RFC 3339 in UTC with whole seconds; read as Unix milliseconds
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Final

from ledger.wire.exact_numbers import EPSILON_MAX, parse_positive
from ledger.wire.field_types import register_type
from ledger.wire.malformed import Malformed

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS
VERSION_MAX: Final = 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})T([0-9]{2}):([0-9]{2}):([0-9]{2})Z\Z")


class Inconsistent(Malformed):
    """The fields of a document are each valid, but contradict one another."""


def parse_time(value: object, field: str) -> int:
    """Unix milliseconds from RFC 3339 in UTC; leap seconds are refused. Raises: Malformed."""
    match = _TIME.match(value) if isinstance(value, str) else None
    if match is None:
        raise Malformed(field, "must be a time in UTC, as '2026-01-01T00:00:00Z'")
    year, month, day, hour, minute, second = map(int, match.groups())
    try:
        moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    except ValueError:
        raise Malformed(field, "is not a moment of the calendar") from None
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@lru_cache(maxsize=4_096)
def format_time(moment: int) -> str:
    """RFC 3339 in UTC of Unix milliseconds; with milliseconds only if they are not 0."""
    exact = _EPOCH + timedelta(milliseconds=moment)
    return exact.isoformat(timespec="milliseconds" if moment % 1000 else "seconds").replace("+00:00", "Z")


def parse_epsilon(value: object, field: str) -> Fraction:
    """An ε greater than 0 that a budget may promise. Raises: Malformed."""
    epsilon = parse_positive(value, field)
    if epsilon > EPSILON_MAX:
        raise Malformed(field, f"must be at most {EPSILON_MAX}")
    return epsilon


class Timestamp(int):
    """Unix milliseconds, written as a time in UTC (RFC 3339)."""


register_type(
    Timestamp,
    lambda value: Timestamp(parse_time(value, "")),
    format_time,
    {
        "type": "string",
        "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3})?Z$",
        "description": "a time in UTC (RFC 3339)",
    },
)
