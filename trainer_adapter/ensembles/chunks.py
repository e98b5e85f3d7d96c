"""Which chunk a record is in: a keyed hash of its unit alone, whatever other records there are.

Chunks of equal size would need to look at all records, and then one record more or less could move many: every teacher
would change. So sizes differ, by chance; a chunk may be empty, and its teacher then votes a fixed class. The key is
drawn in the room for one training, after the records were sealed, so that no one can fill a chunk on purpose.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ledger.mechanisms.ensembles import CONTENT, POSITION, TEACHERS_MAX, USERS
from ledger.wire.malformed import Malformed
from trainer_adapter.layers.tensor_trees import TensorTree, tensors

KEY_BYTES = 32
Chunks = NDArray[np.int64]


def chunk_of(key: bytes, partition: str, unit: bytes, teachers: int) -> int:
    """The chunk of one unit: BLAKE2b under a key, modulo the teachers; uneven by at most 2^-51 of a chunk's share."""
    assert len(key) == KEY_BYTES
    assert teachers <= TEACHERS_MAX
    text = len(partition).to_bytes(4, "big") + partition.encode() + unit
    return int.from_bytes(hashlib.blake2b(text, key=key, digest_size=8).digest(), "big") % teachers


def chunks_of(  # noqa: PLR0913, PLR0917 - what a chunk depends on
    key: bytes, partition: str, by: str, teachers: int, records: tuple[TensorTree, TensorTree], users: Chunks | None
) -> Chunks:
    """The chunk of each record of a partition, shape (records,).

    Args:
        by: what is hashed: the record's position, its content, or its user's number.
        records: inputs and targets, each (records, ...).
        users: whose each record is, shape (records,), as the partition numbers them; for chunks by user.

    Raises:
        Malformed: for users that are not there, or are not one for each record.
    """
    count = len(tensors(records[0])[0])
    return np.fromiter(
        (chunk_of(key, partition, unit, teachers) for unit in _units(by, count, records, users)), np.int64, count
    )


def _units(by: str, count: int, records: tuple[TensorTree, TensorTree], users: Chunks | None) -> Iterable[bytes]:
    if by == POSITION:
        return (place.to_bytes(8, "big") for place in range(count))
    if by == CONTENT:
        parts = [_rows(part) for tree in records for part in tensors(tree)]
        return (b"".join(row.tobytes() for row in rows) for rows in zip(*parts, strict=True))
    assert by == USERS
    if users is None or users.shape != (count,):
        raise Malformed("users", f"must be one integer for each of {count} records")
    return (int(user).to_bytes(9, "big", signed=True) for user in users)


def _rows(part: Tensor) -> NDArray[np.generic]:
    rows: NDArray[np.generic] = np.ascontiguousarray(part.detach().cpu().numpy())
    return rows
