"""``epsilon report``: the evidence on one dataset, as one page with the files that prove its numbers."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ledger.cli.book_access import AsJson, BookName, LogFile, book_engine
from ledger.cli.command_errors import failure
from ledger.cli.terminal_output import examples, progress
from ledger.cli.verbose_option import verbosely
from ledger.command_line.printable_text import json_text, say
from ledger.domain.exit_codes import ExitCode
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from ledger.store.snapshot import Log

app: Final = typer.Typer(pretty_exceptions_show_locals=False)
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
_SIZE: Final = re.compile(r"(0|[1-9][0-9]{0,15})\Z")


@app.command(
    epilog=examples(
        "report",
        "demo/book.sqlite --dataset did:web:lotus-hospital.demo.invalid/digits",
        "demo/book.sqlite --dataset did:web:lotus-hospital.demo.invalid/digits --as-of 2026-12-31 --into evidence",
    )
)
@verbosely
def report(  # noqa: PLR0913 - one argument an option
    book: BookName,
    dataset: Annotated[str, typer.Option(help="The dataset: provider/dataset.")],
    as_of: Annotated[
        str,
        typer.Option(
            "--as-of",
            metavar="DAY|TIME|SIZE",
            help="The end of a day in UTC (2026-12-31), a moment (2026-12-31T12:00:00Z), or so many entries; default: "
            "all.",
        ),
    ] = "",
    into: Annotated[
        Path | None,
        typer.Option(help="The folder that is made; default: named by dataset and size. One that is there is kept."),
    ] = None,
    log: LogFile = None,
    *,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Write the page as report.pdf too, by the Chromium of this machine.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the evidence on a dataset: one page to read or print, and the files that prove its numbers."""
    from api.report.dataset_report import Subject
    from api.report.folder import write_report
    from api.report.pdf import pdf_printer
    from ledger.audit.evidence_book import EvidenceBook
    from ledger.cli.input_files import need_key
    from ledger.store.log_key.rotation_proofs import trusted
    from ledger.store.snapshot import Log

    with book_engine(book) as engine, engine.begin() as connection:
        printer = pdf_printer("--pdf") if pdf else None
        provider, name = _names(dataset)
        size, now = _point(Log(connection), as_of)
        key = need_key(log, None if "://" in book else Path(book))
        trust = trusted(connection, key)
        with progress("replaying") as step:
            facts = EvidenceBook(connection, size, trust, step)
        folder = into or Path(f"report-{name}-{size}")
        subject = Subject(provider, name, facts.time if now is None else now)
        done = write_report(facts, key, subject, folder, printer)
    result = {"entries": done.entries, "files": done.files, "folder": str(done.folder)}
    page, check = (shlex.quote(f"{done.folder}/{name}") for name in ("report.html", "check.py"))
    words = (
        f"wrote {page} and {done.files - 1} files beside it, of {done.entries} entries: "
        f"check it by `python {check} --log log.vkey`"
    )
    say(json_text(result) if as_json else words)


def _names(text: str) -> tuple[str, str]:
    """Provider and dataset. Raises: Malformed."""
    provider, _, dataset = text.rpartition("/")
    if not provider or not dataset:
        raise Malformed("dataset", "must be provider/dataset, as `epsilon dataset list` shows it")
    return provider, dataset


def _point(log: Log, text: str) -> tuple[int, int | None]:
    """The size of the log at a point, and its time (ms) if one was named. Raises: Malformed, typer.Exit."""
    if _SIZE.match(text) or not text:
        size = int(text) if text else log.size
        if size > log.size:
            raise failure(f"the log has {log.size} entries, fewer than {size}", ExitCode.NOT_FOUND)
        if not size:
            raise failure("there is no entry yet to report of", ExitCode.NOT_FOUND)
        return size, None
    time = _moment(text)
    size = log.size_at(time)
    if not size:
        raise failure(f"the log has no entry before {text}: its first one is later", ExitCode.NOT_FOUND)
    return size, time


def _moment(text: str) -> int:
    """The last millisecond of a day, or a moment. Raises: Malformed."""
    found: datetime | None
    try:
        found = datetime.fromisoformat(text)
        day = found.replace(tzinfo=UTC) + timedelta(days=1) if _DAY.match(text) else None
    except (ValueError, OverflowError):
        found = day = None
    if day is not None:
        return int(day.timestamp() * 1000) - 1
    if found is None or found.tzinfo is None:
        rule = "must be a day (2026-12-31), a moment with its zone (2026-12-31T12:00:00Z), or a number of entries"
        raise Malformed("as-of", rule)
    return int(found.timestamp() * 1000)
