"""Files that a command reads: the log's key, and kept checkpoints. None is read beyond a limit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from ledger.files.named_file import open_named
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from ledger.verifier import Checkpoint, LogKey, Policy

FILE_BYTES_MAX: Final = 65_536


def find_key(log: Path | None, *places: Path | None) -> LogKey | None:
    """The log's key: from the named file, else from a log.vkey beside one of these places.

    Raises:
        Malformed: if it cannot be read, or holds no key. FileNotFoundError: if the named file does not exist.
    """
    from ledger.log.verification import parse_log_key

    beside = [place.parent / "log.vkey" for place in places if place is not None]
    for path in [log] if log is not None else [file for file in beside if file.is_file()]:
        try:
            return parse_log_key(read_text(path, "log").strip())
        except Malformed as error:
            if error.field == "log":
                raise
            raise Malformed("log", f"{path} holds no verifier key of a log, as log.vkey does: {error}") from None
    return None


def need_key(log: Path | None, *places: Path | None) -> LogKey:
    """The log's key, without which nothing is proven. Raises: Malformed, FileNotFoundError."""
    key = find_key(log, *places)
    if key is None:
        raise Malformed("log", "there is no log.vkey beside the book: name the log's verifier key with --log")
    return key


def read_kept(kept: Path, key: LogKey | Policy) -> Checkpoint:
    """A kept checkpoint, its signature checked. Raises: Malformed, FileNotFoundError."""
    from ledger.log.verification import open_checkpoint

    return open_checkpoint(read_text(kept, "kept"), key)


def trusted_in(url: str, key: LogKey) -> LogKey | Policy:
    """All keys that a book's log had, if it proves that the known key is among them; else the known key alone."""
    from sqlalchemy.exc import DatabaseError

    from ledger.store.engine import engine_of
    from ledger.store.log_key.rotation_proofs import trusted

    engine = engine_of(url, writes=False)
    try:
        with engine.begin() as connection:
            return trusted(connection, key)
    except (DatabaseError, Malformed):
        # Verification reports what is wrong with the book.
        return key
    finally:
        engine.dispose()


def read_text(path: Path, field: str, bytes_max: int = FILE_BYTES_MAX) -> str:
    """A text file whole. Raises: Malformed, FileNotFoundError."""
    try:
        return read_bytes(path, field, bytes_max).decode()
    except UnicodeDecodeError:
        raise Malformed(field, f"{path} is not UTF-8") from None


def read_bytes(path: Path, field: str, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """A file whole.

    Raises:
        Malformed: if it is longer than it may be, or cannot be read: a folder, or a file of another user.
        FileNotFoundError: if there is none; its message is a sentence too.
    """
    try:
        with open_named(path) as file:
            data = file.read(bytes_max + 1)
    except FileNotFoundError:
        raise FileNotFoundError(f"{field}: there is no file {path}") from None
    except OSError as error:
        raise Malformed(field, f"{path} cannot be read: {error.strerror}") from None
    if len(data) > bytes_max:
        raise Malformed(field, f"{path} has more than {bytes_max} bytes")
    return data
