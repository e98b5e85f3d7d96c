"""Opens a book read-only for a command, in its current or a past state; each error is one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ledger.cli.command_errors import failure
from ledger.domain.exit_codes import ExitCode

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ledger.book.past_snapshot import PastSnapshot
    from ledger.store.snapshot import Snapshot


@contextmanager
def opened(book: str) -> Iterator[Snapshot]:
    """Open a book read-only; each error is one sentence on stderr."""
    from ledger.store.snapshot import Snapshot

    with _connected(book) as connection:
        yield Snapshot(connection)


@contextmanager
def past(book: str, as_of: int | None) -> Iterator[Snapshot | PastSnapshot]:
    """The same, in its state after so many entries; the current state if that is None."""
    from ledger.book.past_snapshot import PastSnapshot
    from ledger.store.snapshot import Snapshot

    with _connected(book) as connection:
        now = Snapshot(connection)
        if as_of is not None and as_of > now.size:
            raise failure(f"the log has not grown to {as_of} entries", ExitCode.NOT_FOUND)
        yield now if as_of is None else PastSnapshot(connection, as_of, lambda tree: tree.root().hex())


@contextmanager
def _connected(book: str) -> Iterator[Connection]:
    from sqlalchemy.exc import DatabaseError

    from ledger.store.engine import engine_of, url_of
    from ledger.wire.malformed import Malformed

    if "://" not in book and not Path(book).is_file():
        raise failure(f"there is no book at {book}", ExitCode.NOT_FOUND)
    try:
        engine = engine_of(url_of(book), writes=False)
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            engine.dispose()
    except DatabaseError as error:
        raise failure(f"{book} is not a book: {error.orig}", ExitCode.INVALID) from None
    except (Malformed, OSError) as error:
        raise failure(str(error), ExitCode.INVALID) from None
