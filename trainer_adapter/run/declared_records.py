"""Records held to their file's form and to what their provider declares, before anything is computed from them.

Every number of sealed records is finite, a declaration is sealed with them
(:mod:`client.dataset_files.declared.declaration`), and `epsilon dataset seal` refuses a record that breaks either. So
of all records that it seals none ends a run, and of two neighbours neither does: an end says that a file was not sealed
in its form, or not as its provider declares, and shows no record.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import PartitionData
from client.dataset_files.tokens.person_tokens import JOIN, PERSON
from client.dataset_files.tokens.token_counts import TOKEN_BYTES
from ledger.wire.malformed import Malformed

CHUNK_BYTES: Final = 1 << 22
"""Of the records that are held to it at once."""
_FINITE: Final = "holds what is no finite number: seal it with `epsilon dataset seal`, which names the record"
Arrays = Mapping[str, NDArray[Any]]


def check_declared(opened: Mapping[str, PartitionData]) -> None:
    """Hold each partition to its form and its declaration.

    Raises:
        Malformed: naming the partition and what is declared, never a value or a record. OSError.
    """
    for ref, data in opened.items():
        if isinstance(data, SealedRecords):
            _check(ref, data)
        else:
            _check_finite(ref, archive_arrays(data))


def form_is_described(opened: Mapping[str, PartitionData]) -> bool:
    """Whether no record's value changes the form of these data: it is in the description of sealed records alone.

    What was sealed in one piece has the types and shapes that its records gave it.
    """
    return all(isinstance(data, SealedRecords) for data in opened.values())


def archive_arrays(data: bytes, *names: str) -> Arrays:
    """The arrays of what was sealed in one piece, or those with ``names``.

    None where it is no archive, which a loop's own reader may know.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files if not names or name in names}
    except Exception:  # noqa: BLE001 - a damaged archive fails in a dozen ways; who reads its records names it
        return {}


def _check(ref: str, data: SealedRecords) -> None:
    layout, declared = data.layout, data.layout.declared
    if declared is not None and declared.records_max is not None and len(data) > declared.records_max:
        raise Malformed(ref, f"has more than {declared.records_max} records, which its provider declares at most")
    names, size = layout.dtype.names or (), max(1, CHUNK_BYTES // layout.dtype.itemsize)
    most = None if declared is None else declared.person_records_max
    tokens = list[NDArray[Any]]()
    for start in range(0, len(data), size):
        rows = data.rows(np.arange(start, min(start + size, len(data)), dtype=np.int64))
        arrays = {name: rows[name] for name in names}
        _check_finite(ref, arrays)
        if declared is not None and (broken := declared.broken_by(arrays, layout.columns)):
            raise Malformed(ref, f"is not as its provider declares: {broken}")
        if most is not None:
            tokens.append(_tokens(ref, arrays))
    if most is not None and tokens and _repeats(np.concatenate(tokens), most):
        rule = f"has more than {most} {'record' if most == 1 else 'records'} of one person, against its declaration"
        raise Malformed(ref, rule)


def _check_finite(ref: str, arrays: Arrays) -> None:
    if any(array.dtype.kind == "f" and not np.isfinite(array).all() for array in arrays.values()):
        raise Malformed(ref, _FINITE)


def _tokens(ref: str, arrays: Arrays) -> NDArray[Any]:
    """The first sixteen bytes of each record's token, shape (records, 2): two persons share them with no chance."""
    found = arrays.get(JOIN, arrays.get(PERSON))
    if found is None or found.dtype != np.uint8 or found.shape[1:] != (TOKEN_BYTES,):
        raise Malformed(ref, "declares how many records one person has, and has no tokens of persons")
    return np.ascontiguousarray(found[:, :16]).view("<u8")


def _repeats(tokens: NDArray[Any], most: int) -> bool:
    """Whether more than ``most`` rows are equal."""
    ordered = tokens[np.lexsort((tokens[:, 1], tokens[:, 0]))]
    return bool((ordered[most:] == ordered[: len(ordered) - most]).all(axis=1).any())
