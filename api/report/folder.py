"""A report as a folder: one page, and beside it every file that proves a number on it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Final

from markupsafe import Markup

import ledger.verifier
from api.console.frame.assets import inline_style
from api.console.frame.templates import render
from api.report.dataset_report import DatasetReport, Subject, dataset_report
from api.report.evidence import Evidence
from api.report.knowledge_map import knowledge_map
from ledger.audit.evidence_book import EvidenceBook
from ledger.files.atomic_file import SHARED, create_file
from ledger.files.fresh_folder import SHARED_FOLDER, fresh_folder
from ledger.store.log_key.rotation_proofs import all_rotations
from ledger.verifier import LogKey, Policy

_TEMPLATES: Final = str(files("api.report") / "templates")
_SIGNED_BY: Final = re.compile(r"^— (\S+) ", re.MULTILINE)
PAGE: Final = "report.html"
PAPER: Final = "report.pdf"
Printer = Callable[[bytes], bytes]


@dataclass(frozen=True, slots=True)
class Written:
    """What lies in a report's folder."""

    folder: Path
    entries: int
    files: int


def write_report(
    book: EvidenceBook, key: LogKey, subject: Subject, folder: Path, printer: Printer | None = None
) -> Written:
    """Write the report of one dataset, whole or not at all.

    Args:
        key: the log's, as the command was given it.
        subject: what it is about.
        folder: which is not there yet; what lies above it is.
        printer: makes a PDF of the page (:func:`api.report.pdf.pdf_printer`); None for none.

    Raises:
        UnknownDataset: if the book has no such dataset at that size.
        FileExistsError: if there is something of that name.
        OSError: if it cannot be written.
        Malformed: if it cannot be printed.
    """
    evidence = Evidence(book)
    report = dataset_report(evidence, subject)
    page = _page(evidence, report, key)
    count = 0
    with fresh_folder(folder, "--into", mode=SHARED_FOLDER) as made:
        for name, data in _files(evidence, report, key, page):
            path = made / name
            path.parent.mkdir(exist_ok=True)
            create_file(path, data, mode=SHARED)
            count += 1
        if printer is not None:
            create_file(made / PAPER, printer(page), mode=SHARED)
            count += 1
    return Written(folder, book.size, count)


def _page(evidence: Evidence, report: DatasetReport, key: LogKey) -> bytes:
    book = evidence.book
    subject = f"{report.of.provider}/{report.of.dataset}"
    partitions = [book.partitions[f"{subject}/{one.name}"] for one in report.sections]
    command = f"epsilon report BOOK --dataset {shlex.quote(subject)} --as-of {book.size}"
    signers = dict.fromkeys(_SIGNED_BY.findall(book.note))
    return render(
        "report.html",
        _TEMPLATES,
        title=f"Privacy loss of {report.of.dataset}",
        report=report,
        heat=knowledge_map(book, partitions, report.of.time),
        size=book.size,
        head=book.head,
        stated=book.stated,
        vkey=key.vkey,
        witnesses=[one for one in signers if one != book.head.origin],
        command=command,
        style=Markup(inline_style() + _STYLE),  # noqa: S704 - a file of our own
    )


_STYLE: Final = """
h3 { font-size: 1rem; margin: 1.25rem 0 0.4rem; }
[data-source] { text-decoration: underline dotted; text-underline-offset: 0.2em; }
td a, dd a { text-decoration: none; }
section.partition { border-top: 2px solid var(--line); margin-top: 2rem; }
@page { margin: 15mm; }
@media print { section.partition { break-before: page; } a { text-decoration: none; } }
"""


def _files(evidence: Evidence, report: DatasetReport, key: LogKey, page: bytes) -> Iterator[tuple[str, bytes]]:
    yield PAGE, page
    for name in ("check.py", "check_page.py"):
        yield name, (files("api.report") / name).read_bytes()
    yield "verifier.py", Path(ledger.verifier.__file__).read_bytes()
    yield "checkpoint", evidence.book.note.encode()
    yield "log.vkey", f"{key.vkey}\n".encode()
    if isinstance(evidence.book.trust, Policy):
        yield "rotations.json", all_rotations(evidence.book.connection).encode()
    for table in report.tables:
        yield f"tables/{table.name}.csv", table.to_csv()
    yield from evidence.files()
