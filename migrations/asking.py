"""What the commands of ``epsilon db`` share: arguments, the keys they are given, progress, and how a fault ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from ledger.verifier import Checkpoint, LogKey
    from migrations.opening import Limits

VERIFICATION_FAILED: Final = 7
MALFORMED: Final = 2
_CONFLICT: Final = 5
_FILE_BYTES_MAX: Final = 65_536

Book = Annotated[
    str, typer.Argument(metavar="BOOK", help="The book: an SQLite file, or the postgresql:// URL of a database.")
]
Log = Annotated[
    Path | None,
    typer.Option(
        "--log", metavar="FILE", help="The log's verifier key, as you kept it; log.vkey beside the book if not given."
    ),
]
Kept = Annotated[
    Path | None, typer.Option("--kept", metavar="FILE", help="The newest signed checkpoint that you kept.")
]
LockTimeout = Annotated[
    float,
    typer.Option(
        "--lock-timeout", metavar="S", min=0, max=86_400, help="Seconds to wait for whoever has the book open."
    ),
]
StatementTimeout = Annotated[
    float,
    typer.Option(
        "--statement-timeout", metavar="S", min=0, max=86_400, help="Seconds that one statement may take; 0 for any."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
LOCK_S: Final = 10.0
STATEMENT_S: Final = 0.0
CODES: Final = (
    "Exit codes: 0 done; 2 bad input; 4 there is no such book or file; 5 what is there does not allow it, "
    "and nothing was changed; 7 something does not verify."
)


def epilog(*examples: str) -> str:
    """What stands below a command's help."""
    return "\n\n".join(("Examples:", *(f"  epsilon db {one}" for one in examples), CODES))


def limits(lock: float, statement: float) -> Limits:
    """The two timeouts as one value."""
    from migrations.opening import Limits

    return Limits(lock_s=lock, statement_s=statement)


@contextmanager
def faults_told(*, as_json: bool = False) -> Iterator[None]:
    """Say a fault in one plain sentence, and end with its exit code."""
    from ledger.malformed import Malformed
    from ledger.replay import Broken
    from migrations.faults import NotDone

    try:
        yield
    except NotDone as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(fault.exit_code) from None
    except Malformed as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(MALFORMED) from None
    except Broken as fault:
        if as_json:
            typer.echo(json.dumps({"entry": fault.index, "fault": str(fault), "ok": False}))
        else:
            typer.echo(str(fault), err=True)
        raise typer.Exit(VERIFICATION_FAILED) from None
    except OSError as fault:
        typer.echo(str(fault), err=True)
        raise typer.Exit(_CONFLICT) from None


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error while somebody watches; gives what is to be told of each step."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def find_key(log: Path | None, *places: Path | None) -> LogKey | None:
    """The log's key: of the file that is named, else of a log.vkey beside one of these. Raises: Malformed, OSError."""
    from ledger.verifier import LogKey

    beside = [place.parent / "log.vkey" for place in places if place is not None]
    for one in [log] if log is not None else [file for file in beside if file.is_file()]:
        return LogKey.parse(_text(one, "log").strip())
    return None


def need_key(log: Path | None, *places: Path | None) -> LogKey:
    """The log's key, without which nothing is proven. Raises: Malformed, OSError."""
    from ledger.malformed import Malformed

    key = find_key(log, *places)
    if key is None:
        raise Malformed("log", "there is no log.vkey beside the book: name the log's verifier key with --log")
    return key


def read_kept(kept: Path | None, key: LogKey) -> Checkpoint | None:
    """The checkpoint that someone kept, its signature checked. Raises: Malformed, OSError."""
    from ledger.verifier import Checkpoint

    return None if kept is None else Checkpoint.open(_text(kept, "kept"), key)


def _text(path: Path, field: str) -> str:
    from ledger.malformed import Malformed

    with path.open("rb") as file:
        data = file.read(_FILE_BYTES_MAX + 1)
    if len(data) > _FILE_BYTES_MAX:
        raise Malformed(field, f"{path} has more than {_FILE_BYTES_MAX} bytes")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed(field, f"{path} is not UTF-8") from None
