"""Records held to what their provider declares of them, before anything is computed from them.

A declaration is sealed with the records (:mod:`client.dataset_files.declared.declaration`), and `epsilon dataset seal`
refuses a record that breaks it. What a file without one holds is not looked at: there a value that is no number counts
as nothing, since to end the run for it would show one record without noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from client.dataset_files.record_parts import INPUTS, TARGETS
from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import PartitionData
from ledger.wire.malformed import Malformed

CHUNK_BYTES: Final = 1 << 22
"""Of the records that are held to it at once."""


def check_declared(opened: Mapping[str, PartitionData]) -> None:
    """Hold each partition to its declaration.

    Raises:
        Malformed: naming the partition and what is declared, never a value or a record. OSError.
    """
    for ref, data in opened.items():
        if isinstance(data, SealedRecords) and data.layout.declared is not None:
            _check(ref, data)


def _check(ref: str, data: SealedRecords) -> None:
    layout, declared = data.layout, data.layout.declared
    assert declared is not None
    if declared.records_max is not None and len(data) > declared.records_max:
        raise Malformed(ref, f"has more than {declared.records_max} records, which its provider declares at most")
    names, size = layout.dtype.names or (), max(1, CHUNK_BYTES // layout.dtype.itemsize)
    for start in range(0, len(data), size):
        rows = data.rows(np.arange(start, min(start + size, len(data)), dtype=np.int64))
        inputs, targets = (rows[part] if part in names else None for part in (INPUTS, TARGETS))
        if broken := declared.broken_by(inputs, targets, layout.columns):
            raise Malformed(ref, f"is not as its provider declares: {broken}")
