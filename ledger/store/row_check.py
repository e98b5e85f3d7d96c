"""The stored rows of the projections against a state that was made of the entries alone."""

from __future__ import annotations

from typing import Any

from ledger.domain.memory_state import MemoryState
from ledger.log.verification_findings import VerificationFailed
from ledger.store.database_state import PROJECTIONS, DatabaseState


def check_rows(book: DatabaseState, state: MemoryState) -> None:
    """Every stored row is what the entries make it, and none is missing. Raises: VerificationFailed."""
    for name in PROJECTIONS:
        rebuilt: dict[Any, Any] = getattr(state, name)
        rows = getattr(book, name)
        count, last = 0, None
        try:
            for place, value in rows.stored():
                # Rows come by their keys: one that is there twice would hide one that is gone.
                if place == last:
                    raise VerificationFailed(None, f"{name}: the row of {place} is there twice")
                count, last = count + 1, place
                if rebuilt.get(place) != value:
                    row = rows.row_that_differs(place, value, rebuilt.get(place))
                    raise VerificationFailed(None, f"{name}: the row of {row} is not what the entries make it")
        except _FAULTS:
            _find_unreadable(name, rows)
            raise
        if count != len(rebuilt):
            place = min(rebuilt.keys() - {place for place, _ in rows.stored()})
            row = rows.row_that_differs(place, None, rebuilt[place])
            raise VerificationFailed(None, f"{name}: the row of {row} is missing: it is not what the entries make it")


def _find_unreadable(name: str, rows: Any) -> None:  # noqa: ANN401 - of any table
    for place in rows:
        try:
            rows[place]
        except _FAULTS as fault:
            raise VerificationFailed(None, f"{name}: the row of {place} cannot be read: {fault}") from None


_FAULTS = (LookupError, AssertionError, ValueError, ArithmeticError, TypeError, AttributeError)
