"""A demonstration's archive, sealed in frames with what its provider declares of it."""

from __future__ import annotations

import io

import numpy as np

from client.dataset_files.declared.column_rule import ColumnRule
from client.dataset_files.declared.declaration import Declaration
from client.dataset_files.sealed_records import RecordLayout, write_sealed


def sealed_archive(archive: bytes, data_key: bytes, ref: str, classes: int) -> bytes:
    """The sealed records of an archive whose targets are so many classes, counted from 0. Raises: Malformed."""
    with np.load(io.BytesIO(archive), allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files}
    kinds = np.dtype([(name, array.dtype.newbyteorder("<").str, array.shape[1:]) for name, array in arrays.items()])
    rows = np.zeros(len(arrays["targets"]), kinds)
    for name, array in arrays.items():
        rows[name] = array
    declared = Declaration(target=ColumnRule(categories=tuple(str(number) for number in range(classes))))
    file = io.BytesIO()
    write_sealed(file, data_key, ref, RecordLayout(rows.dtype, declared=declared), [rows])
    return file.getvalue()
