"""Decisions: permits and refusals, newest first, and every check of one with what would pass instead."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from api.auth.authorisation import sees_entry
from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.names import CHECK_COLUMNS, check, organisation, partition
from api.console.frame.pages import ROWS_MAX, Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import log as log_routes
from api.wire.command_answers import Decision
from ledger.commands.entry import Entry
from ledger.commands.registry import KINDS
from ledger.domain.gate import Check
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.records import convert

PAGES: Final = Pages()
KINDS_MAX: Final = 200
"""Newest entries of some kinds that are read for one page."""
LOOKED_MAX: Final = 100_000
"""The newest entries among which those of some kinds are looked for."""
READ_MAX: Final = 1_000
"""Entries that are read for one page."""
_CHUNK: Final = 250
_NAMED: Final = ("contract", "document", "charge", "organisation", "provider", "dataset", "model")


class Wanted(NamedTuple):
    """Which decisions: of a kind, refused or not, of an actor; what is empty or None filters nothing."""

    kind: str = ""
    refused: bool | None = None
    actor: str = ""

    def matches(self, entry: Entry) -> bool:
        """Whether an entry is one of them."""
        return (
            self.kind in {"", entry.kind}
            and self.refused in {None, entry.code.refused}
            and self.actor in {"", entry.actor}
        )


@PAGES.page("/decisions", "Decisions", log_routes.list_decisions)
def decisions(reader: Reader, inputs: Inputs) -> Page:
    """The decisions that the caller may see, newest first. Raises: Malformed."""
    kind = inputs.get("kind") if inputs.get("kind") in KINDS else ""
    refused = {"refused": True, "permitted": False}.get(inputs.get("outcome"))
    actor = inputs.get("actor")
    start = place_of(inputs.get("before"), reader.facts.size)
    found, before = newest_first(reader, start, Wanted(kind, refused, actor))
    rows = tuple(
        (
            cells.count(index, address("log", str(index))),
            cells.moment(entry.time),
            cells.text(entry.kind.replace("_", " ")),
            cells.text(entry.id, address("decisions", entry.id)),
            organisation(reader, entry.actor),
            cells.mark(entry.code.word.replace("_", " "), passed=not entry.code.refused),
        )
        for index, entry in found
    )
    asked = {"kind": kind or None, "outcome": inputs.get("outcome") or None, "actor": actor or None}
    table = Table(
        "decisions",
        "Decisions, newest first",
        ("Entry", "Time", "Kind", "Id", "By", "Outcome"),
        rows,
        "No decision that you may see among these entries.",
        following=address("decisions", before=before, **asked) if before else "",
    )
    chosen = {"kind": kind, "outcome": inputs.get("outcome"), "actor": actor}
    return Page("decisions.html", "Decisions", (table,), {"kinds": sorted(KINDS), "chosen": chosen})


def newest_first(reader: Reader, before: int, wanted: Wanted) -> tuple[list[tuple[int, Entry]], int]:
    """Entries before an index that the caller may see, newest first; and where the next page begins, 0 for none.

    One page reads a bounded number of entries, so it may hold fewer rows than there is room for, and still have a next.
    """
    found: list[tuple[int, Entry]] = []
    read, stop = 0, min(before, reader.facts.size)
    while stop and read < READ_MAX and len(found) < ROWS_MAX:
        start = max(0, stop - _CHUNK)
        chunk = [*enumerate(reader.facts.entries(start, stop), start)]
        for index, data in reversed(chunk):
            entry, stop = Entry.parse(data), index
            if wanted.matches(entry) and sees_entry(reader.caller, entry, reader.facts):
                found.append((index, entry))
            if len(found) == ROWS_MAX:
                break
        read += len(chunk)
    return found, stop


def newest_of(reader: Reader, kinds: Sequence[str]) -> list[tuple[int, Entry]]:
    """The newest entries of some kinds that the caller may see, among the last hundred thousand of the log."""
    facts = reader.facts
    assert isinstance(facts, Snapshot)
    found = facts.newest_of(kinds, max(0, facts.size - LOOKED_MAX), KINDS_MAX)
    parsed = ((index, Entry.parse(data)) for index, data in found)
    return [(index, one) for index, one in parsed if sees_entry(reader.caller, one, facts)]


def place_of(text: str, most: int) -> int:
    """An index in an address, and the newest one for anything else."""
    return min(int(text), most) if text.isascii() and text.isdecimal() and len(text) <= 16 else most


@PAGES.page("/decisions/{id}", "", log_routes.read_decision)
def decision(reader: Reader, inputs: Inputs) -> Page:
    """One decision with every check on record. Raises: Malformed, Problem."""
    known = reader.read(log_routes.read_decision, inputs.path["id"])
    # As the entry has them: the API's answer passes them through.
    checks = convert(tuple[Check, ...], [*known.checks], "checks")
    failed = [one for one in checks if not one.passed]
    facts = [
        ("Outcome", cells.mark(known.outcome.replace("_", " "), passed=known.permit)),
        ("Kind", cells.text(known.kind.replace("_", " "))),
        ("By", organisation(reader, known.actor)),
        ("Time", cells.moment(known.time)),
        ("Entry, with its receipt", cells.count(known.index, address("log", str(known.index)))),
        ("Signed with", cells.digest(known.key_id)),
    ]
    return Page(
        "decision.html",
        f"Decision on {known.id}",
        (_checks(checks), _named(known)),
        {
            "about": facts,
            "known": known,
            "binding": failed[0] if failed else None,
            "advice": known.kind == "charge" and not known.permit,
            "receipt": shlex.join(["epsilon", "receipt", "book.sqlite", known.id, "evidence"]),
        },
    )


def _checks(checks: tuple[Check, ...]) -> Table:
    empty = "The entry holds no check: of a permit it records what was decided, and the rules of its versions hold."
    return Table("checks", "Checks", CHECK_COLUMNS, tuple(map(check, checks)), empty)


def _named(known: Decision) -> Table:
    """What the command named, and nothing of its plan."""
    request = known.request if isinstance(known.request, dict) else {}
    given = ((name, request.get(name)) for name in _NAMED)
    rows = [(cells.text(name), _cell(name, value)) for name, value in given if isinstance(value, str)]
    rows += [(cells.text("partition"), partition(ref)) for ref in _refs(request.get("partitions"))]
    return Table("named", "What the command names", ("Name", "Value"), tuple(rows), "Nothing by name.")


def _refs(value: c.Json) -> list[str]:
    return [one for one in value if isinstance(one, str) and one.count("/") == 2] if isinstance(value, list) else []


def _cell(name: str, value: str) -> Cell:
    if name in {"contract", "document", "model"}:
        return cells.digest(value)
    return cells.text(value, address("runs", value) if name == "charge" else "")
