"""Which records a staged run holds out: by a hash of the record alone, so that no other record decides it.

A record is known by its user's number, else by the token that it was joined by, else by its own bytes: all records of
one privacy unit are on one side. Then one that is zeroed out, added or removed is on one side or on none, and moves no
other from its side: what is trained and what is measured each see one record less. A split by place, or one that is
stratified, would not do: there a record that is not there moves those after it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

import torch
from torch import Tensor

from client.dataset_files.record_parts import INPUTS, TARGETS
from client.dataset_files.stored_partition import PartitionData
from client.dataset_files.tokens.person_tokens import JOIN
from ledger.wire.malformed import Malformed
from trainer_adapter.statistics.columns import RecordColumns
from trainer_adapter.training.training_records import array_names, read_arrays

_WORDS: Final = 1 << 64
_USERS: Final = "users"


def held_out(opened: Mapping[str, PartitionData], share: Fraction | None) -> Tensor:
    """Which records of all partitions, in order, are held out, shape (records,), bool: about ``share`` of them.

    Raises:
        Malformed: for what one record cannot change.
    """
    sides = [_is_out(key, share) for ref, data in opened.items() for key in _keys(data, ref)]
    return torch.tensor(sides, dtype=torch.bool)


def kept_records(opened: Mapping[str, PartitionData], present: Tensor | None) -> Tensor:
    """Which records count, shape (records,), bool: those of ``present``, which the run knows, or all.

    Raises:
        Malformed: for what one record cannot change.
    """
    return torch.ones(RecordColumns(opened).records, dtype=torch.bool) if present is None else present


def _is_out(key: bytes, share: Fraction | None) -> bool:
    if share is None:
        return False
    word = int.from_bytes(hashlib.sha256(b"held out\n" + key).digest()[:8], "big")
    return word * share.denominator < share.numerator * _WORDS


def _keys(data: PartitionData, ref: str) -> Iterable[bytes]:
    """What each record is known by, whichever others there are. Raises: Malformed."""
    names = array_names(data, ref)
    if JOIN in names or _USERS in names:
        # A user may have several tokens, and what is joined names no users.
        name = _USERS if _USERS in names else JOIN
        rows = read_arrays(data, ref, name)[name]
        # Partitions share no person: the same number in two of them is two users.
        prefix = b"" if name == JOIN else f"{ref}\n".encode()
        return [prefix + row.tobytes() for row in rows]
    parts = sorted(name for name in names if name.partition(".")[0] in {INPUTS, TARGETS})
    arrays = read_arrays(data, ref, *parts)
    lengths = {array.shape[:1] for array in arrays.values()}
    if () in lengths or len(lengths) != 1:
        raise Malformed(ref, "must have one target for each row of inputs")
    return [b"".join(cells) for cells in zip(*([row.tobytes() for row in arrays[name]] for name in parts), strict=True)]
