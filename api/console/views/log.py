"""The log: its checkpoint and newest entries; of one entry the proof, which the browser verifies by itself."""

from __future__ import annotations

import shlex
from typing import Final

from api.auth.visibility import not_found
from api.console.frame import cells
from api.console.frame.addresses import address, given
from api.console.frame.entry_rows import ENTRY_COLUMNS, entry_row, newest_first, parse_index, read_filter
from api.console.frame.names import organisation
from api.console.frame.pages import ROWS_MAX, Inputs, Page, Pages
from api.console.frame.reader import Reader
from api.console.frame.tables import Table
from api.routes import log as log_routes
from ledger.commands.entry import Entry
from ledger.commands.registry import KINDS
from ledger.store.cosignatures import cosigned_checkpoint, newest_checkpoints
from ledger.wire import canonical_json as c

PAGES: Final = Pages()
_BYTES: Final = "application/octet-stream"
_NOTE: Final = "text/plain; charset=utf-8"


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
    """The witnesses of a checkpoint: the names on its signature lines but the log's own (C2SP signed-note)."""
    origin, *rest = checkpoint.splitlines() or [""]
    lines = [line.split(" ") for line in rest if line.startswith("— ")]
    return [words[1] for words in lines if len(words) == 3 and words[1] != origin]


@PAGES.page("/log/checkpoints", "", log_routes.list_decisions, log_routes.read_consistency)
def checkpoints(reader: Reader, inputs: Inputs) -> Page:
    """Every checkpoint that was signed, newest first, each with the witnesses that cosigned it. Raises: Malformed."""
    newest = reader.facts.size + 1
    before = parse_index(inputs.get("before"), newest)
    found = newest_checkpoints(reader.facts.connection, before, ROWS_MAX + 1)
    times = reader.facts.times([one.size - 1 for one in found[:ROWS_MAX]])
    rows = tuple(
        (
            cells.count(one.size, address("log", "checkpoints", str(one.size), "bytes")),
            cells.digest(one.note.splitlines()[2]),
            cells.moment(times.get(one.size - 1)),
            cells.text(", ".join(witnesses(one.note + "".join(one.lines))) or "no witness"),
        )
        for one in found[:ROWS_MAX]
    )
    following = address("log", "checkpoints", before=found[ROWS_MAX - 1].size) if len(found) > ROWS_MAX else ""
    columns = ("Entries, and its signed note", "Root of the tree", "Time of its last entry", "Cosigned by")
    table = Table("checkpoints", "Checkpoints, newest first", columns, rows, "The log is empty.", following=following)
    return Page("list.html", "Checkpoints of the log", (table,))


@PAGES.page("/log/checkpoints/{size}/bytes", "", log_routes.list_decisions, log_routes.read_consistency)
def checkpoint_note(reader: Reader, inputs: Inputs) -> Page:
    """One signed checkpoint with its cosignatures, as bytes. Raises: Problem."""
    try:
        size = parse_index(inputs.path["size"], reader.facts.size + 1)
        note = cosigned_checkpoint(reader.facts.connection, size)
    except KeyError:
        raise not_found(f"checkpoint of {inputs.path['size']} entries") from None
    return Page("", "", body=(note.encode(), _NOTE))


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
