"""The rows of settled charges, and of the keys of clean rooms, compared with the entries that made them, in slices.

A comparison in full reads and proves every entry of a slice and those that changed its charges, which takes some
0.1 ms an entry. So it is done once: of a slice that is whole, and has no pending charge, the digest of its rows is
kept, and later comparisons only read the rows. A digest that is another one proves nothing, and the slice is compared
in full again; so it is after an entry has changed one of its charges. The rule is one of counts, so that it holds on
any machine: each comparison looks at the next third of the log, and compares :data:`FULL` slices in full at most of
those that never were.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final, NamedTuple

from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError

from ledger.book.state.pinned_state import Pinned
from ledger.book.state.proven_entries import ProvenEntries
from ledger.book.state.settled_records import SettledRecords
from ledger.commands.entry import Entry
from ledger.commands.entry_reader import read_entry
from ledger.commands.governance.model_opening import OpenModel
from ledger.commands.runs.charge_entry import Charged
from ledger.store.database_state import DatabaseState, check_rows_named
from ledger.store.tables import CHARGES, ENTRY, KEYS

SLICE: Final = 256
"""Entries whose rows are compared together."""
PARTS: Final = 3
"""Comparisons in which the whole log is looked at: those of a minute."""
FULL: Final = 64
"""Slices that one comparison compares in full though nothing shows that they differ, and the least that it looks at."""
_CHARGE, _KEY = CHARGES.table, KEYS.table
_ROWS: Final = (
    select(_CHARGE, _KEY)
    .select_from(
        ENTRY.join(_CHARGE, _CHARGE.c.id == ENTRY.c.id).outerjoin(_KEY, _KEY.c.key_id == _CHARGE.c.key_id),
    )
    .order_by(ENTRY.c.position)
)


class Compared(NamedTuple):
    """How many slices one comparison has looked at, and how many of these it compared in full."""

    slices: int
    full: int


class SettledComparison:
    """Goes through the log, a part at each comparison, and begins again at its end; for one thread."""

    def __init__(self, records: SettledRecords) -> None:
        """Begin at the first entry; ``records`` have where the log names each charge and key."""
        self._records = records
        self._digests: dict[int, bytes] = {}
        self._next = 0

    def compare(
        self, pinned: Pinned, rows: DatabaseState, pause: Callable[[], None], is_over: Callable[[], bool]
    ) -> Compared:
        """Compare the next part, as long as it is not over; ``pause`` is called after each slice.

        Raises:
            VerificationFailed: naming the first row that differs.
            Malformed: if an entry is missing or changed.
        """
        for position in self._records.changed_before(pinned.size):
            self._digests.pop(position // SLICE, None)
        count, looked, full = -(-pinned.size // SLICE), 0, 0
        while looked < min(count, max(FULL, -(-count // PARTS))) and not is_over():
            number = self._next % count
            digest = self._digests.get(number)
            # Of those that were never compared, one too many waits until its turn comes again.
            if full < FULL if digest is None else digest != _digest(rows, number):
                self._compare_in_full(pinned, rows, number)
                full += 1
            self._next, looked = number + 1, looked + 1
            pause()
        return Compared(looked, full)

    def _compare_in_full(self, pinned: Pinned, rows: DatabaseState, number: int) -> None:
        """Compare the rows that the entries of a slice made with what these and later entries say."""
        self._digests.pop(number, None)
        positions = range(number * SLICE, min((number + 1) * SLICE, pinned.size))
        entries = ProvenEntries.under(pinned.connection, pinned.size, pinned.edge)
        entries.read(positions)
        charges, keys = dict[str, Any](), dict[str, Any]()
        is_settled = len(positions) == SLICE
        for position in positions:
            entry = read_entry(entries.bytes_at(position))
            if isinstance(entry.effect, Charged):
                # What is leased of a pending charge is in memory alone.
                pending = pinned.parts["charges"].get(entry.id)
                is_settled = is_settled and pending is None
                charges[entry.id] = pending or self._records.charge(entries, entry.id, pinned.size)
                keys[entry.effect.charge.key_id] = entry.effect.key_at(position)
            elif isinstance(entry.effect, Entry) and isinstance(body := entry.effect.command_body, OpenModel):
                # No charge's row leads to this key.
                is_settled = False
                key_id = body.clean_room.signing.thumbprint
                keys[key_id] = self._records.key(entries, key_id)
        check_rows_named(rows, "charges", charges)
        check_rows_named(rows, "keys", keys)
        if is_settled and (digest := _digest(rows, number)) is not None:
            self._digests[number] = digest


def _digest(rows: DatabaseState, number: int) -> bytes | None:
    """The digest of the rows of a slice's charges and their keys; None if they cannot be read."""
    of_slice = ENTRY.c.position.between(number * SLICE, (number + 1) * SLICE - 1)
    try:
        found = rows.connection.execute(_ROWS.where(of_slice)).fetchall()
    except (SQLAlchemyError, UnicodeError):
        return None
    return sha256(repr(found).encode(errors="surrogateescape")).digest()
