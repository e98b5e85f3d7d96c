"""Cosignatures of witnesses, stored beside the log: append-only, each verified before it is written.

The database does not verify them, and the writer's role may append any row: a line is verified again when it is read,
and one that is not a cosignature of the checkpoint of its size is passed over. :func:`check_cosignatures` reports it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final, NamedTuple

from sqlalchemy import Select, func, select

from ledger.commands.entry import Entry
from ledger.log.checkpoint import receipt
from ledger.log.verification import parse_witness_key
from ledger.log.verification_findings import VerificationFailed
from ledger.log.witness_protocol import cosignature_time_ms, read_cosignature
from ledger.store.engine import Executor
from ledger.store.projection_table import append_rows
from ledger.store.snapshot import Log
from ledger.store.tables import CHECKPOINT, COSIGNATURE
from ledger.verifier import SIGNATURES_MAX, WitnessKey
from ledger.wire.malformed import Malformed

_LINES: Final = SIGNATURES_MAX - 2
"""Cosignatures that a checkpoint is read with, beside the log's key and the one that it has replaced."""
_ROWS: Final = 2 * _LINES
"""Rows that are read of one size at most."""
_SIZES: Final = 16
"""Sizes that are tried at most, the best of them first."""
_LINE_CHARS: Final = 4_096
"""A longer line is not read."""
_STORED: Final = COSIGNATURE.c.line, COSIGNATURE.c.vkey, CHECKPOINT.c.note, CHECKPOINT.c.tree_size


def store_cosignature(connection: Executor, size: int, key: WitnessKey, line: str) -> None:
    """Store a witness's first cosignature of the checkpoint of one size. Raises: Malformed, KeyError."""
    read_cosignature(line.encode(), checkpoint_at(connection, size), key)
    at = COSIGNATURE.c.tree_size == size, COSIGNATURE.c.vkey == key.vkey
    if connection.execute(select(COSIGNATURE.c.line).where(*at)).first() is None:
        append_rows(connection, COSIGNATURE, [{"tree_size": size, "vkey": key.vkey, "line": line}])


def newest_size(connection: Executor, key: WitnessKey) -> int:
    """The size of the newest checkpoint that a witness cosigned; 0 if it has cosigned none."""
    chosen = _stored(_STORED).where(COSIGNATURE.c.vkey == key.vkey).order_by(COSIGNATURE.c.tree_size.desc())
    found = connection.execute(chosen.limit(_SIZES))
    return next((int(size) for line, vkey, note, size in found if _is_sound(note, vkey, line)), 0)


def cosignature_line(connection: Executor, size: int, key: WitnessKey) -> str | None:
    """A witness's cosignature line of the checkpoint of one size; None if there is none."""
    chosen = _stored(_STORED).where(COSIGNATURE.c.tree_size == size, COSIGNATURE.c.vkey == key.vkey)
    return next(iter(_sound(connection.execute(chosen))), None)


def _stored(columns: Iterable[Any]) -> Select[tuple[Any, ...]]:
    """Rows of cosignatures that have a checkpoint; none is ahead of the newest one."""
    newest = select(func.max(CHECKPOINT.c.tree_size)).scalar_subquery()
    joined = select(*columns).join(CHECKPOINT, CHECKPOINT.c.tree_size == COSIGNATURE.c.tree_size)
    return joined.where(func.length(COSIGNATURE.c.line) <= _LINE_CHARS, COSIGNATURE.c.tree_size <= newest)


def _sound(rows: Iterable[Any]) -> list[str]:
    return [str(line) for line, vkey, note, _ in rows if _is_sound(note, vkey, line)]


@lru_cache(maxsize=_SIZES * _ROWS)
def _is_sound(note: str, vkey: str, line: str) -> bool:
    """Whether a stored line is its own key's cosignature of a checkpoint."""
    try:
        key = parse_witness_key(vkey)
        # Under the log's own name a line could have the id of the log's key, and spoil the checkpoint for readers.
        return key.name != note.partition("\n")[0] and read_cosignature(line.encode(), note, key) == line
    except Malformed:
        return False


def checkpoint_at(connection: Executor, size: int) -> str:
    """The signed checkpoint of one size, without cosignatures. Raises: KeyError."""
    found = connection.execute(select(CHECKPOINT.c.note).where(CHECKPOINT.c.tree_size == size)).scalar()
    if found is None:
        raise KeyError(size)
    return str(found)


def cosigned_checkpoint(connection: Executor, size: int) -> str:
    """The signed checkpoint of one size, with the cosignatures that it has. Raises: KeyError."""
    return checkpoint_at(connection, size) + "".join(_lines_at(connection, size))


def _lines_at(connection: Executor, size: int) -> list[str]:
    chosen = _stored(_STORED).where(COSIGNATURE.c.tree_size == size).order_by(COSIGNATURE.c.vkey).limit(_ROWS)
    return _sound(connection.execute(chosen))[:_LINES]


class CosignedCheckpoint(NamedTuple):
    """A signed checkpoint of the past, and the cosignature lines that it has."""

    size: int
    note: str
    lines: tuple[str, ...]


def newest_checkpoints(connection: Executor, before: int, most: int) -> list[CosignedCheckpoint]:
    """The newest checkpoints of fewer than ``before`` entries, newest first; two statements."""
    chosen = select(CHECKPOINT.c.tree_size, CHECKPOINT.c.note).where(CHECKPOINT.c.tree_size < before)
    found = connection.execute(chosen.order_by(CHECKPOINT.c.tree_size.desc()).limit(most)).all()
    lines: dict[int, list[str]] = defaultdict(list)
    if found:
        within = COSIGNATURE.c.tree_size.between(int(found[-1].tree_size), int(found[0].tree_size))
        kept = _stored(_STORED).where(within).order_by(COSIGNATURE.c.vkey).limit(most * _LINES)
        for line, vkey, note, size in connection.execute(kept):
            if _is_sound(note, vkey, line):
                lines[int(size)].append(str(line))
    return [CosignedCheckpoint(int(size), str(note), tuple(lines[int(size)][:_LINES])) for size, note in found]


def best_size(connection: Executor, index: int, newest: int) -> int:
    """The newest size with most cosignatures that takes in an entry; the newest of all if none was cosigned."""
    count, size = func.count(), COSIGNATURE.c.tree_size
    chosen = _stored((size, count)).where(size > index, size <= newest).group_by(size)
    most, best = 0, newest
    for at, rows in connection.execute(chosen.order_by(count.desc(), size.desc()).limit(_SIZES)).all():
        # So many are there at most, at this size and all after it.
        if most >= min(int(rows), _LINES):
            break
        if (found := len(_lines_at(connection, int(at)))) > most:
            most, best = found, int(at)
    return best


def cosigned_receipt(book: Log, index: int) -> str:
    """An entry's receipt under the checkpoint that most witnesses cosigned. Raises: KeyError."""
    if not 0 <= index < book.size:
        raise KeyError(index)
    size = best_size(book.connection, index, book.size)
    return receipt(index, Log(book.connection, size).tree.proof(index), cosigned_checkpoint(book.connection, size))


def newest_cosigned(book: Log) -> tuple[int, int] | None:
    """The witness's time (ms) in the newest cosignature, and the time of the last entry under it; None without one."""
    chosen = select(COSIGNATURE.c.tree_size, COSIGNATURE.c.vkey, COSIGNATURE.c.line)
    found = book.connection.execute(chosen.order_by(COSIGNATURE.c.tree_size.desc()).limit(1)).first()
    if found is None or not 0 < found.tree_size <= book.size:
        return None
    try:
        note, key = checkpoint_at(book.connection, found.tree_size), parse_witness_key(found.vkey)
        line = read_cosignature(str(found.line).encode(), note, key)
    except (KeyError, Malformed):
        return None
    return cosignature_time_ms(line), Entry.parse(book.entry(found.tree_size - 1)).time


def check_cosignatures(book: Log) -> int:
    """Verify every stored line with its own key and checkpoint; how many there are. Raises: VerificationFailed."""
    lines: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for size, vkey, line in book.connection.execute(
        select(COSIGNATURE.c.tree_size, COSIGNATURE.c.vkey, COSIGNATURE.c.line)
    ):
        lines[int(size)].append((str(vkey), str(line)))
    for size, kept in sorted(lines.items()):
        for vkey, line in kept:
            try:
                same = read_cosignature(line.encode(), checkpoint_at(book.connection, size), parse_witness_key(vkey))
            except KeyError:
                raise VerificationFailed(None, f"{_named(size, vkey)} is over no checkpoint") from None
            except Malformed as error:
                raise VerificationFailed(None, f"{_named(size, vkey)}: {error}") from None
            if same != line:
                raise VerificationFailed(None, f"{_named(size, vkey)} is not one line as witnesses write it")
    return sum(map(len, lines.values()))


def _named(size: int, vkey: str) -> str:
    return f"cosignature at {size} of {vkey}"
