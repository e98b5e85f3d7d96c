"""Rows of entries: the newest that the caller may see, filtered, each as one row of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from api.auth.authorisation import sees_entry
from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import organisation
from api.console.frame.pages import ROWS_MAX, Inputs
from api.console.frame.reader import Reader
from ledger.commands.entry import Entry
from ledger.commands.registry import KINDS
from ledger.store.snapshot import Snapshot

ENTRY_COLUMNS: Final = ("Entry", "Time", "Kind", "Id", "By", "Outcome")
KINDS_MAX: Final = 200
"""Newest entries of some kinds that are read for one page."""
SEARCHED_MAX: Final = 100_000
"""The newest entries among which those of some kinds are searched."""
READ_MAX: Final = 1_000
"""Entries that are read for one page."""
_CHUNK: Final = 250


class EntryFilter(NamedTuple):
    """Which entries: of a kind, refused or not, of an actor; what is empty or None filters nothing."""

    kind: str = ""
    refused: bool | None = None
    actor: str = ""

    def matches(self, entry: Entry) -> bool:
        """Whether an entry passes the filter."""
        return (
            self.kind in {"", entry.kind}
            and self.refused in {None, entry.code.refused}
            and self.actor in {"", entry.actor}
        )


def read_filter(inputs: Inputs) -> tuple[EntryFilter, dict[str, str]]:
    """The filter in an address, and the values of its form."""
    kind = inputs.get("kind") if inputs.get("kind") in KINDS else ""
    outcome, actor = inputs.get("outcome"), inputs.get("actor")
    refused = {"refused": True, "permitted": False}.get(outcome)
    return EntryFilter(kind, refused, actor), {"actor": actor, "kind": kind, "outcome": outcome}


def entry_row(reader: Reader, index: int, entry: Entry) -> tuple[Cell, ...]:
    """An entry as a row under :data:`ENTRY_COLUMNS`."""
    return (
        cells.count(index, address("log", str(index))),
        cells.moment(entry.time),
        cells.text(entry.kind.replace("_", " ")),
        cells.text(entry.id, address("decisions", entry.id)),
        organisation(reader, entry.actor),
        cells.mark(entry.code.word.replace("_", " "), passed=not entry.code.refused),
    )


def newest_first(reader: Reader, before: int, wanted: EntryFilter) -> tuple[list[tuple[int, Entry]], int]:
    """Entries before an index that the caller may see, newest first; and where the next page begins, 0 for none.

    One page reads a bounded number of entries, so it may hold fewer rows than fit on it, and still have a next page.
    """
    rows: list[tuple[int, Entry]] = []
    read, stop = 0, min(before, reader.facts.size)
    while stop and read < READ_MAX and len(rows) < ROWS_MAX:
        start = max(0, stop - _CHUNK)
        chunk = [*enumerate(reader.facts.entries(start, stop), start)]
        for index, data in reversed(chunk):
            entry, stop = Entry.parse(data), index
            if wanted.matches(entry) and sees_entry(reader.caller, entry, reader.facts):
                rows.append((index, entry))
            if len(rows) == ROWS_MAX:
                break
        read += len(chunk)
    return rows, stop


class NewestEntries(NamedTuple):
    """Entries with their indexes, newest first; from the index ``first`` on none of their kinds is left out."""

    entries: list[tuple[int, Entry]]
    first: int


def newest_of(reader: Reader, kinds: Sequence[str]) -> NewestEntries:
    """The newest entries of some kinds that the caller may see, among the last hundred thousand of the log."""
    facts = reader.facts
    assert isinstance(facts, Snapshot)
    start = max(0, facts.size - SEARCHED_MAX)
    newest = facts.newest_of(kinds, start, KINDS_MAX)
    parsed = ((index, Entry.parse(data)) for index, data in newest)
    seen = [(index, entry) for index, entry in parsed if sees_entry(reader.caller, entry, facts)]
    return NewestEntries(seen, newest[-1][0] if len(newest) == KINDS_MAX else start)


def parse_index(text: str, index_max: int) -> int:
    """The index in an address, at most ``index_max``; that for any text that is no index."""
    return min(int(text), index_max) if text.isascii() and text.isdecimal() and len(text) <= 16 else index_max
