"""The rows of settled charges, and of the keys of clean rooms, compared with the entries that made them, in slices.

A slice is a block of entries that are read together and proven by one path, and its rows are read by one statement: a
slice takes a few statements, however many charges it has. A comparison in full still parses every entry of a slice and
those that changed its charges, some 0.03 ms an entry. So it is done once: of a slice that is whole, and has no pending
charge, the digest of its rows is kept, and later comparisons only read the rows. A digest that is another one proves
nothing, and the slice is compared in full again; so it is after an entry has changed one of its charges. Each
comparison looks at the next third of the log, whatever of it was never compared in full.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

from sqlalchemy import Row, bindparam, select
from sqlalchemy.exc import SQLAlchemyError

from ledger.book.state.pinned_state import Pinned
from ledger.book.state.proven_entries import BLOCK_LEVEL, ProvenEntries
from ledger.book.state.settled_records import SettledRecords
from ledger.commands.entry import Entry
from ledger.commands.governance.model_opening import OpenModel
from ledger.commands.runs.charge_entry import Charged
from ledger.store.database_state import ROW_FAULTS, DatabaseState, check_rows_named
from ledger.store.tables import CHARGES, ENTRY, KEYS

SLICE: Final = 1 << BLOCK_LEVEL
"""Entries whose rows are compared together."""
PARTS: Final = 3
"""Comparisons in which the whole log is looked at: those of a minute."""
LEAST: Final = 64
"""Slices that one comparison looks at, at least."""
_CHARGE, _KEY = CHARGES.table, KEYS.table
_CHARGE_COLUMNS: Final = len(_CHARGE.columns)
# Made once: making a statement costs more than SQLite takes to answer it.
_ROWS: Final = (
    select(_CHARGE, _KEY)
    .select_from(
        ENTRY.join(_CHARGE, _CHARGE.c.id == ENTRY.c.id).outerjoin(_KEY, _KEY.c.key_id == _CHARGE.c.key_id),
    )
    .where(ENTRY.c.position.between(bindparam("first"), bindparam("last")))
    .order_by(ENTRY.c.position)
)
_Rows = Sequence[Row[Any]]
"""The rows of a slice's charges, each with that of its clean room's key."""
Pause = Callable[[float], None]
"""Called with the share of a comparison that is done."""


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

    def compare(self, pinned: Pinned, rows: DatabaseState, pause: Pause, is_over: Callable[[], bool]) -> Compared:
        """Compare the next part, as long as it is not over; ``pause`` is called after each slice.

        Raises:
            VerificationFailed: naming the first row that differs.
            Malformed: if an entry is missing or changed.
        """
        for position in self._records.changed_before(pinned.size):
            self._digests.pop(position // SLICE, None)
        count, looked, full = -(-pinned.size // SLICE), 0, 0
        part = min(count, max(LEAST, -(-count // PARTS)))
        while looked < part and not is_over():
            number = self._next % count
            found = _read_rows(rows, number)
            if found is None or self._digests.get(number) != _digest(found):
                self._compare_in_full(pinned, rows, number, found or [])
                full += 1
            self._next, looked = number + 1, looked + 1
            pause(looked / part)
        return Compared(looked, full)

    def _compare_in_full(self, pinned: Pinned, rows: DatabaseState, number: int, found: _Rows) -> None:
        """Compare the rows that the entries of a slice made with what these and later entries say."""
        self._digests.pop(number, None)
        positions = range(number * SLICE, min((number + 1) * SLICE, pinned.size))
        entries = ProvenEntries.under(pinned.connection, pinned.size, pinned.edge)
        entries.read(positions)
        named = {at: effect.charge.id for at in positions if isinstance(effect := entries.read_at(at).effect, Charged)}
        pending = pinned.parts["charges"]
        # What is leased of a pending charge is in memory alone.
        settled = [name for name in named.values() if name not in pending]
        entries.read(at for name in settled for at in self._records.positions(name) if at < pinned.size)
        charges, keys, opened = dict[str, Any](), dict[str, Any](), dict[str, Any]()
        for position in positions:
            effect = entries.read_at(position).effect
            if isinstance(effect, Charged):
                name = named[position]
                charges[name] = pending.get(name) or self._records.charge(entries, name, pinned.size)
                keys[effect.charge.key_id] = effect.key_at(position)
            elif isinstance(effect, Entry) and isinstance(body := effect.command_body, OpenModel):
                # No charge's row leads to this key.
                key_id = body.clean_room.signing.thumbprint
                opened[key_id] = self._records.key(entries, key_id)
        if opened:
            check_rows_named(rows, "keys", opened)
        if not _agree(found, charges, keys):
            check_rows_named(rows, "charges", charges)
            check_rows_named(rows, "keys", keys)
        elif len(positions) == SLICE and len(settled) == len(named) and not opened:
            self._digests[number] = _digest(found)


def _read_rows(rows: DatabaseState, number: int) -> _Rows | None:
    """The rows of a slice's charges and their keys; None if they cannot be read."""
    within = {"first": number * SLICE, "last": (number + 1) * SLICE - 1}
    try:
        return rows.connection.execute(_ROWS, within).fetchall()
    except (SQLAlchemyError, UnicodeError):
        return None


def _digest(found: _Rows) -> bytes:
    return sha256(repr(found).encode(errors="surrogateescape")).digest()


def _agree(found: _Rows, charges: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
    """Whether the rows of charges and of their keys are what the entries make them, and all of them."""
    stored = dict[str, tuple[Any, Any]]()
    try:
        for row in found:
            values: Any = tuple(row)
            charge, key = CHARGES.load([values[:_CHARGE_COLUMNS]]), KEYS.load([values[_CHARGE_COLUMNS:]])
            stored[charge.id] = charge, key
        return stored == {name: (charge, keys[charge.key_id]) for name, charge in charges.items()}
    except ROW_FAULTS:
        return False
