"""The stretch of time that a chart shows: what an address asks for, or what suits the runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, NamedTuple

from ledger.wire.malformed import Malformed

_FORMS: Final = ("%Y-%m-%dT%H:%M", "%Y-%m-%d")
"""What a browser sends of a field for a moment, and a day; both in UTC."""


class Window(NamedTuple):
    """From one moment to another (Unix milliseconds), the second later than the first."""

    first: int
    last: int

    def fields(self) -> tuple[str, str]:
        """Both as the fields of a form hold them."""
        first, last = (datetime.fromtimestamp(ms / 1000, UTC).strftime(_FORMS[0]) for ms in self)
        return first, last


def chosen_window(first: str, last: str, usual: Window) -> Window:
    """The stretch between two fields, where one is empty to the usual end. Raises: Malformed."""
    begins = usual.first if not first else _moment(first, "from")
    ends = usual.last if not last else _moment(last, "until")
    if ends <= begins:
        raise Malformed("until", "must be later than from")
    return Window(begins, ends)


def _moment(text: str, field: str) -> int:
    for form in _FORMS:
        try:
            return int(datetime.strptime(text, form).replace(tzinfo=UTC).timestamp() * 1000)
        except (ValueError, OverflowError):
            continue
    raise Malformed(field, "must be a day or a minute in UTC, such as 2026-12-31 or 2026-12-31T08:30")
