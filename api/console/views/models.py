"""Models: announced and released, with the run that made each."""

from __future__ import annotations

from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address
from api.console.frame.cells import Cell
from api.console.frame.entry_rows import newest_of
from api.console.frame.names import organisation, run
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import log as log_routes
from ledger.commands.entry import Entry

PAGES: Final = Pages()
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


@PAGES.page("/models", "Models", log_routes.list_decisions, log_routes.read_model_release)
def models(reader: Reader, _inputs: Inputs) -> Page:
    """The models that the caller may see, among the newest entries. Raises: Malformed."""
    entries = newest_of(reader, [*_KINDS])
    tables = tuple(
        Table(
            name,
            caption,
            ("Run", "By", "Model", "Time", "Outcome", "Entry"),
            tuple(_row(reader, index, entry) for index, entry in entries if entry.kind == kind),
            empty,
            following=address("decisions", kind=kind),
        )
        for kind, (name, caption, empty) in _KINDS.items()
    )
    return Page("list.html", "Models", tables)


def _row(reader: Reader, index: int, entry: Entry) -> tuple[Cell, ...]:
    request = entry.request
    charge, model = request.get("charge"), request.get("model")
    return (
        run(charge) if isinstance(charge, str) else cells.text("–"),
        organisation(reader, entry.actor),
        cells.digest(model if isinstance(model, str) else None),
        cells.moment(entry.time),
        cells.mark(entry.code.word.replace("_", " "), passed=not entry.code.refused),
        cells.count(index, address("log", str(index))),
    )
