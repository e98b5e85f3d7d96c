"""A job's public test set: an archive or a table, which belongs to no partition."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from client.dataset_files.record_schema import RecordSchema
from client.dataset_files.seal import ARCHIVE_SUFFIX, open_records
from ledger.wire.malformed import Malformed
from trainer_adapter.job.preprocessing import PUBLIC_TEST, VALUES_MAX, Constants
from trainer_adapter.layers.tensor_trees import TensorTree
from trainer_adapter.training.training_records import array_names, read_arrays, read_records, tensor_of

TABLES = (".csv", ".parquet", ".pq")
GROUPS = "groups"
"""An archive's array of whole numbers: which declared group each record is of."""


def read_public_set(path: Path, schema: Path | None) -> tuple[Any, Any]:
    """Inputs and targets, as a partition's of the same schema. Raises: Malformed, naming the field; OSError.

    Args:
        path: an archive in one piece, or a table or a folder of tables.
        schema: of the table; the one that the provider sealed its records by.
    """
    if path.suffix.lower() not in TABLES and not path.is_dir():
        data = path.read_bytes()
        try:
            return read_records(data, "test")
        except Malformed:
            if path.suffix.lower() == ARCHIVE_SUFFIX:
                raise
            ends = ", ".join((*TABLES, ARCHIVE_SUFFIX))
            rule = (
                f"{path.name} is neither a table nor an archive: name a file that ends in {ends}, or a folder of tables"
            )
            raise Malformed("test", rule) from None
    if schema is None and not path.is_dir():
        rule = f"is missing: {path.name} is a table; one that ends in {ARCHIVE_SUFFIX} needs none"
        raise Malformed("schema", rule)
    records = open_records(path, RecordSchema() if schema is None else RecordSchema.load(schema))
    rows = np.concatenate([batch.rows for batch in records.batches()] or [np.empty(0, records.layout.dtype)])
    return tensor_of(np.ascontiguousarray(rows["inputs"])), tensor_of(np.ascontiguousarray(rows["targets"]))


def read_public_groups(path: Path, records: int) -> Tensor | None:
    """The declared group of each public record, shape (records,), int64, from an archive's ``groups``; None without.

    Raises:
        Malformed: for groups that are no whole numbers, or not one a record. OSError.
    """
    if path.suffix.lower() in TABLES or path.is_dir():
        return None
    data = path.read_bytes()
    if GROUPS not in array_names(data, "test"):
        return None
    groups = tensor_of(read_arrays(data, "test", GROUPS)[GROUPS])
    if groups.is_floating_point() or groups.shape != (records,):
        raise Malformed("test", f"must hold one whole number a record as {GROUPS}")
    return groups


def classes_of(schema: Path | None) -> int | None:
    """How many classes a schema lists; None where it lists none. Raises: Malformed, OSError."""
    return (len(RecordSchema.load(schema).classes) or None) if schema is not None else None


def constants_from(known: tuple[Constants, ...], inputs: TensorTree) -> tuple[Constants, ...]:
    """The constants of a job, those that are to be computed from its public inputs among them. Raises: Malformed."""
    return tuple(_normalising(inputs) if constants.source == PUBLIC_TEST else constants for constants in known)


def _normalising(inputs: TensorTree) -> Constants:
    flat = inputs.flatten(1).double() if isinstance(inputs, Tensor) else torch.zeros(0, 0)
    if (
        not isinstance(inputs, Tensor)
        or not inputs.is_floating_point()
        or flat.shape[1] > VALUES_MAX
        or inputs.dim() != 2
    ):
        rule = f"normalise from the test set is for rows of at most {VALUES_MAX} numbers: name the constants"
        raise Malformed("preprocessing", rule)
    deviation = flat.std(dim=0, unbiased=False)
    # A column of one value has nothing to be divided by.
    deviation = torch.where(deviation > 0, deviation, 1)
    values = {"mean": flat.mean(dim=0), "deviation": deviation}
    exact = tuple((name, tuple(Fraction(number) for number in found.tolist())) for name, found in values.items())
    return Constants("normalise", exact, PUBLIC_TEST)
