"""The log: its checkpoint and newest entries; of one entry the proof, which the browser verifies by itself."""

from __future__ import annotations

import shlex
from typing import Final

from api.console.frame import cells
from api.console.frame.addresses import address, given
from api.console.frame.entry_rows import ENTRY_COLUMNS, entry_row, newest_first, parse_index, read_filter
from api.console.frame.names import organisation
from api.console.frame.pages import Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import log as log_routes
from ledger.commands.entry import Entry
from ledger.commands.registry import KINDS
from ledger.wire import canonical_json as c

PAGES: Final = Pages()
_BYTES: Final = "application/octet-stream"


@PAGES.page("/log", "Log", log_routes.list_decisions)
def log(reader: Reader, inputs: Inputs) -> Page:
    """The checkpoint, and the newest entries that the caller may see and wants to. Raises: Malformed."""
    wanted, chosen = read_filter(inputs)
    entries, before = newest_first(reader, parse_index(inputs.get("before"), reader.facts.size), wanted)
    table = Table(
        "entries",
        "Entries, newest first",
        ENTRY_COLUMNS,
        tuple(entry_row(reader, index, entry) for index, entry in entries),
        "No entry that you may see among these.",
        following=address("log", before=before, **given(chosen)) if before else "",
    )
    checkpoint = bytes(reader.read(log_routes.read_checkpoint).body).decode() if reader.facts.size else ""
    values: dict[str, object] = {
        "checkpoint": checkpoint,
        "vkey": reader.view.context.log.vkey,
        "witnesses": witnesses(checkpoint),
    }
    values |= {"kinds": sorted(KINDS), "chosen": chosen}
    return Page("log.html", "Log", (table,), values)


def witnesses(checkpoint: str) -> list[str]:
    """The witnesses of a checkpoint: the names on the lines after the log's own signature (C2SP signed-note)."""
    lines = [line.split(" ") for line in checkpoint.splitlines() if line.startswith("— ")]
    return [words[1] for words in lines[1:] if len(words) == 3]


@PAGES.page("/log/{index}", "", log_routes.read_entry, log_routes.read_receipt)
def entry(reader: Reader, inputs: Inputs) -> Page:
    """One entry with its receipt. Raises: Malformed, Problem."""
    data = _bytes(reader, inputs)
    parsed = Entry.parse(data)
    index = int(inputs.path["index"])
    receipt = bytes(reader.read(log_routes.read_receipt, parsed.id, cosigned=False).body).decode()
    facts = [
        ("Kind", cells.text(parsed.kind.replace("_", " "))),
        ("Id", cells.text(parsed.id, address("decisions", parsed.id))),
        ("By", organisation(reader, parsed.actor)),
        ("Time", cells.moment(parsed.time)),
        ("Outcome", cells.mark(parsed.code.word.replace("_", " "), passed=not parsed.code.refused)),
        ("Signed with", cells.digest(parsed.key_id)),
        ("SHA-256 of its bytes", cells.digest(c.digest(data))),
        ("Bytes", cells.count(len(data))),
    ]
    return Page(
        "entry.html",
        f"Entry {index}",
        (),
        {
            "about": facts,
            "index": index,
            "receipt": receipt,
            "bytes": address("log", str(index), "bytes"),
            "vkey": reader.view.context.log.vkey,
            "command": shlex.join(["epsilon", "receipt", "book.sqlite", parsed.id, "evidence"]),
        },
    )


@PAGES.page("/log/{index}/bytes", "", log_routes.read_entry)
def entry_bytes(reader: Reader, inputs: Inputs) -> Page:
    """The very bytes of an entry that are hashed into the tree. Raises: Malformed, Problem."""
    return Page("", "", body=(_bytes(reader, inputs), _BYTES))


def _bytes(reader: Reader, inputs: Inputs) -> bytes:
    text = inputs.path["index"]
    index = int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else reader.facts.size
    return bytes(reader.read(log_routes.read_entry, index).body)
