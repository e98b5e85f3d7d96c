"""Models: sealed, announced, with how long their notice lasts, and released, with the run that made each."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.entry_rows import NewestEntries, newest_of
from api.console.frame.names import organisation, run
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import log as log_routes
from api.routes.lineage import read_lineage
from ledger.commands.entry import Entry
from ledger.commands.governance.model_release_notice import RELEASE_NOTICE
from ledger.commands.runs.settlement import POST
from ledger.store.snapshot import Snapshot
from policy.checks.field_readers import HOUR_MS
from policy.decisions.documents_in_force import bindings

PAGES: Final = Pages()
_COLUMNS: Final = ("Run", "By", "Model", "Time", "Outcome", "Entry")
_KINDS: Final = {
    "release_notice": ("announced", "Announced, newest first", "No model was announced."),
    "model_release": (
        "released",
        "Released, newest first",
        "No model was released. Its clean room requests the release after the post.",
    ),
    "model_opening": ("opened", "Sealed models that were opened, newest first", "No sealed model was opened."),
    "publication": ("published", "Made public, newest first", "No model was made public."),
}


_AFTER: Final = frozenset({"model_release", "model_opening", "publication"})
"""What ends the time for which a model is sealed, and nothing else."""


@PAGES.page("/models", "Models", log_routes.list_decisions, log_routes.read_model_release)
def models(reader: Reader, _inputs: Inputs) -> Page:
    """The models that the caller may see, among the newest entries. Raises: Malformed."""
    found = newest_of(reader, [*_KINDS])
    waits = _notice_ends(reader, [entry for _, entry in found.entries if entry.kind == RELEASE_NOTICE.name])
    tables = tuple(
        Table(
            name,
            caption,
            (*_COLUMNS, *(["May leave"] if kind == RELEASE_NOTICE.name else [])),
            tuple(
                (
                    *_row(reader, index, entry),
                    *([_countdown(reader, waits.get(entry.id))] if kind == RELEASE_NOTICE.name else []),
                )
                for index, entry in found.entries
                if entry.kind == kind
            ),
            empty,
            following=address("decisions", kind=kind),
            following_words="All such decisions",
        )
        for kind, (name, caption, empty) in _KINDS.items()
    )
    return Page("list.html", "Models", (_sealed(reader, found, waits), *tables))


def _sealed(reader: Reader, found: NewestEntries, waits: dict[str, int]) -> Table:
    """The models that a post names, and that no entry that the caller may see has released or opened since.

    What follows a post has a later entry. So where older entries of those kinds are not read, older posts are left out,
    and a model is listed only if nothing followed.
    """
    permitted = [entry for _, entry in found.entries if not entry.code.refused]
    followed = {entry.request.get("charge") for entry in permitted if entry.kind in _AFTER}
    announced = {entry.request.get("charge"): waits[entry.id] for entry in reversed(permitted) if entry.id in waits}
    rows = tuple(
        (*_row(reader, index, entry), _countdown(reader, announced.get(entry.request.get("charge"))))
        for index, entry in newest_of(reader, [POST.name]).entries
        if index >= found.first
        and not entry.code.refused
        and entry.request.get("model") is not None
        and entry.request.get("charge") not in followed
    )
    caption, columns = "Sealed, and neither released nor opened, newest first", (*_COLUMNS, "May leave")
    return Table("sealed", caption, columns, rows, "No model is sealed that was not released or opened.")


def _row(reader: Reader, index: int, entry: Entry) -> tuple[Cell, ...]:
    request = entry.request
    charge, model = request.get("charge"), request.get("model")
    return (
        run(charge) if isinstance(charge, str) else cells.text("–"),
        replace(organisation(reader, entry.actor), href=_lineage(reader, entry.actor)),
        cells.digest(model if isinstance(model, str) else None),
        cells.moment(entry.time),
        cells.mark(entry.code.word.replace("_", " "), passed=not entry.code.refused),
        cells.count(index, address("log", str(index))),
    )


def _lineage(reader: Reader, did: str) -> str:
    return address("lineage", did) if reader.may(read_lineage) else ""


def _notice_ends(reader: Reader, entries: list[Entry]) -> dict[str, int]:
    """When the notice of each announced model ends (ms), by the policies in force now; by the entry's id."""
    facts = reader.facts
    assert isinstance(facts, Snapshot)
    named = {entry.id: str(entry.request["charge"]) for entry in entries if not entry.code.refused}
    facts.charges.fetch_keys([*named.values()])
    refs = {ref for name in named.values() for ref in facts.charges[name].partitions}
    facts.partitions.fetch_keys([*refs])
    partitions = [facts.partitions[ref] for ref in refs]
    facts.datasets.fetch_keys([*{(opened.provider, opened.dataset) for opened in partitions}])
    facts.streams.fetch_keys([*{(opened.provider, opened.dataset) for opened in partitions}])
    terms = zip(partitions, bindings(facts, partitions, reader.view.time), strict=True)
    hours = {opened.ref: binds.policy.notice_hours for opened, binds in terms if binds is not None}
    ends = {entry.id: entry.time for entry in entries}
    return {
        name: ends[name] + max((hours.get(ref, 0) for ref in facts.charges[charge].partitions), default=0) * HOUR_MS
        for name, charge in named.items()
    }


def _countdown(reader: Reader, ends: int | None) -> Cell:
    """How long a notice that ends then (ms) still lasts, in words; a dash without one."""
    if ends is None:
        return cells.text("–")
    left = ends - reader.view.time
    if left <= 0:
        return Cell("the notice is over", exact=cells.moment(ends).exact)
    days, hours = divmod(-(-left // HOUR_MS), 24)
    words = f"in {days} d {hours} h" if days else f"in {hours} h"
    return Cell(f"{words}, from {cells.moment(ends).text}", exact=cells.moment(ends).exact)
