"""Cosignatures of witnesses, stored beside the log: append-only, each verified before it is written."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from sqlalchemy import func, select

from ledger.commands.entry import Entry
from ledger.log.checkpoint import receipt
from ledger.log.verification import parse_witness_key
from ledger.log.verification_findings import VerificationFailed
from ledger.log.witness_protocol import cosignature_time_ms, read_cosignature
from ledger.store.engine import Executor
from ledger.store.projection_table import append_rows
from ledger.store.snapshot import Log
from ledger.store.tables import CHECKPOINT, COSIGNATURE
from ledger.verifier import WitnessKey
from ledger.wire.malformed import Malformed


def store_cosignature(connection: Executor, size: int, key: WitnessKey, line: str) -> None:
    """Store a witness's first cosignature of the checkpoint of one size. Raises: Malformed, KeyError."""
    read_cosignature(line.encode(), checkpoint_at(connection, size), key)
    if cosignature_line(connection, size, key.vkey) is None:
        append_rows(connection, COSIGNATURE, [{"tree_size": size, "vkey": key.vkey, "line": line}])


def newest_size(connection: Executor, key: WitnessKey) -> int:
    """The size of the newest checkpoint that a witness cosigned; 0 if it has cosigned none."""
    found = connection.execute(select(func.max(COSIGNATURE.c.tree_size)).where(COSIGNATURE.c.vkey == key.vkey)).scalar()
    return int(found or 0)


def cosignature_line(connection: Executor, size: int, vkey: str) -> str | None:
    """A witness's cosignature line at one size; None if there is none."""
    found = connection.execute(
        select(COSIGNATURE.c.line).where(COSIGNATURE.c.tree_size == size, COSIGNATURE.c.vkey == vkey)
    ).scalar()
    return None if found is None else str(found)


def checkpoint_at(connection: Executor, size: int) -> str:
    """The signed checkpoint of one size, without cosignatures. Raises: KeyError."""
    found = connection.execute(select(CHECKPOINT.c.note).where(CHECKPOINT.c.tree_size == size)).scalar()
    if found is None:
        raise KeyError(size)
    return str(found)


def cosigned_checkpoint(connection: Executor, size: int) -> str:
    """The signed checkpoint of one size, with every cosignature that it has. Raises: KeyError."""
    lines = connection.execute(
        select(COSIGNATURE.c.line).where(COSIGNATURE.c.tree_size == size).order_by(COSIGNATURE.c.vkey)
    ).scalars()
    return checkpoint_at(connection, size) + "".join(lines)


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
        kept = select(COSIGNATURE.c.tree_size, COSIGNATURE.c.line).where(within).order_by(COSIGNATURE.c.vkey)
        for size, line in connection.execute(kept):
            lines[int(size)].append(str(line))
    return [CosignedCheckpoint(int(size), str(note), tuple(lines[int(size)])) for size, note in found]


def best_size(connection: Executor, index: int, newest: int) -> int:
    """The newest size with most cosignatures that takes in an entry; the newest of all if none was cosigned."""
    count = func.count()
    chosen = select(COSIGNATURE.c.tree_size).where(COSIGNATURE.c.tree_size > index, COSIGNATURE.c.tree_size <= newest)
    ordered = chosen.group_by(COSIGNATURE.c.tree_size).order_by(count.desc(), COSIGNATURE.c.tree_size.desc()).limit(1)
    found = connection.execute(ordered).scalar()
    return newest if found is None else int(found)


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
