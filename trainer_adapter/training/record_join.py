"""The join of several providers' tables inside the clean room, by the tokens that they were sealed with.

The first partition, the *base*, has a place for each of its records, joined or not. So the number of places is that
partition's, and public; the number of joined records is private. A record of the base for which another table has none
is absent: it is drawn like any other and adds nothing. Then a record of any partition that is zeroed out, added or
removed makes at most ``rows_max`` places absent or present, and changes no other.

That is the premise of the charge: each partition is charged for groups of ``rows_max`` (``unit_records_max``), as a
join of that fan-out demands (Johnson, Near and Song 2018, "Towards Practical Differential Privacy for SQL Queries":
elastic sensitivity). It is counted here and not believed: a table that declares more records of one person, or has
more, ends the run.
Replacing a record may take the partner of one place away and give it to another, which is a group of two: partitions
under ``REPLACE_ONE`` are refused before the charge (:mod:`trainer_adapter.session.join_terms`).
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from client.dataset_files.record_parts import INPUTS, TARGETS
from client.dataset_files.sealed_records import SealedRecords
from client.dataset_files.stored_partition import PartitionData
from client.dataset_files.tokens.person_tokens import JOIN
from client.dataset_files.tokens.token_counts import TOKEN_BYTES
from ledger.mechanisms.statistics_plans import StagedPlan, StatisticsPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.training.declared_categories import check_categories

JOINED_BYTES_MAX: Final = 1 << 30
"""Of all tables of a join together, which are joined in memory."""


def join_partitions(
    opened: dict[str, PartitionData], assignment: Assignment
) -> tuple[dict[str, PartitionData], Tensor | None]:
    """The records that a run trains on: of all partitions, or their join and which of its places hold a record.

    Raises: as :func:`check_categories` and :func:`join_records`.
    """
    check_categories(opened, assignment.plan, assignment.preprocessing, assignment.join)
    if assignment.join is None:
        return opened, None
    _check_tables(opened, assignment)
    archive, present = join_records(opened, assignment.join, assignment.unit_records_max or 1)
    return {assignment.join[0]: archive}, present


def _check_tables(opened: Mapping[str, PartitionData], assignment: Assignment) -> None:
    """Hold each table to the columns and the rows that the charged plan says it has. Raises: Malformed.

    How many rows a table has is public, as its columns are: no record is read.
    """
    plan = assignment.plan
    for table in plan.tables if isinstance(plan, StagedPlan | StatisticsPlan) else ():
        data = opened[table.partition]
        if not isinstance(data, SealedRecords):
            continue
        if data.layout.columns != table.columns:
            raise Malformed(table.partition, "has other columns than the plan's tables say: its provider sealed others")
        if (TARGETS in (data.layout.dtype.names or ())) != table.target:
            raise Malformed(table.partition, "has the target where the plan's tables say it has none, or none at all")
        if table.records_max is not None and data.nbytes > table.records_max * data.layout.dtype.itemsize:
            raise Malformed(
                table.partition, f"has more records than declared, of which it may have {table.records_max}"
            )


def join_records(opened: Mapping[str, PartitionData], order: Sequence[str], rows_max: int = 1) -> tuple[bytes, Tensor]:
    """Join tables by their tokens.

    Args:
        opened: each partition's records, by reference.
        order: the partitions, the base first; the inputs of a joined record are theirs in this order.
        rows_max: how many records of one person the base may have; every other table has one at most.

    Returns:
        A NumPy archive of ``inputs`` (places, columns), ``targets`` (places, ...) and ``join``, the base's tokens
        (places, 32); and which places hold a record, shape (places,), bool. Inputs and targets of an absent one are
        zeros.

    Raises:
        Malformed: for a partition that is no table with tokens, no or two tables with targets, more records of one
            person than allowed, or tables that do not fit memory. OSError.
    """
    for ref in order:
        _check_persons(opened[ref], ref, rows_max if ref == order[0] else 1)
    _check_size([opened[ref] for ref in order])
    tables = [_read(opened[ref], ref) for ref in order]
    predicted = [place for place, table in enumerate(tables) if TARGETS in table]
    if len(predicted) != 1:
        raise Malformed("join", f"must have the target in one partition, and {len(predicted)} have one")
    base = _tokens(tables[0], order[0], rows_max)
    places = [np.arange(len(base))]
    for ref, table in zip(order[1:], tables[1:], strict=True):
        known = {token: place for place, token in enumerate(_tokens(table, ref, 1))}
        places.append(np.array([known.get(token, -1) for token in base], dtype=np.int64))
    present = np.all([place >= 0 for place in places], axis=0)
    columns = [_at(table[INPUTS], place, present) for table, place in zip(tables, places, strict=True)]
    archive = io.BytesIO()
    targets = _at(tables[predicted[0]][TARGETS], places[predicted[0]], present)
    np.savez(archive, inputs=np.concatenate(columns, axis=1), join=tables[0][JOIN], targets=targets)
    return archive.getvalue(), torch.from_numpy(present)


def _check_persons(data: PartitionData, ref: str, rows_max: int) -> None:
    """Hold what a table declares of its persons to what is charged: no record is read. Raises: Malformed."""
    declared = data.layout.declared if isinstance(data, SealedRecords) else None
    most = None if declared is None else declared.person_records_max
    if most is not None and most > rows_max:
        rule = f"declares up to {most} records of one person, and the join takes {rows_max}: join_rows_max, when sealed"
        raise Malformed(ref, rule)


def _check_size(tables: Sequence[PartitionData]) -> None:
    """Bound what is read, and what it is joined to, before either is in memory. Raises: Malformed.

    Every place of the base gets the columns of all tables, so a few wide records beside many narrow ones would be
    repeated to many times the size of both. Sizes are of places and columns, which are public.
    """
    sealed = [data for data in tables if isinstance(data, SealedRecords)]
    wide = sum(data.layout.dtype.itemsize for data in sealed)
    places = sealed[0].nbytes // sealed[0].layout.dtype.itemsize if sealed else 0
    if max(sum(data.nbytes for data in sealed), places * wide) > JOINED_BYTES_MAX:
        raise Malformed("join", f"has more than {JOINED_BYTES_MAX >> 20} MiB of records, which are joined in memory")


def _read(data: PartitionData, ref: str) -> dict[str, NDArray[Any]]:
    if not isinstance(data, SealedRecords):
        raise Malformed(ref, "is no table with join tokens: seal it with --join and --join-key")
    arrays = dict(data.arrays((INPUTS, JOIN, TARGETS)))
    if JOIN not in arrays or arrays[JOIN].shape[1:] != (TOKEN_BYTES,) or arrays[JOIN].dtype != np.uint8:
        raise Malformed(ref, "has no join tokens: seal it with --join and --join-key")
    if INPUTS not in arrays or arrays[INPUTS].ndim != 2:
        raise Malformed(ref, "must be a table, with one row of inputs a record, to be joined")
    return arrays


def _tokens(table: Mapping[str, NDArray[Any]], ref: str, rows_max: int) -> list[bytes]:
    """The token of each record. Raises: Malformed, if a person has more records than the charge is for."""
    data = table[JOIN].tobytes()
    tokens = [data[start : start + TOKEN_BYTES] for start in range(0, len(data), TOKEN_BYTES)]
    if max(Counter(tokens).values(), default=0) > rows_max:
        raise Malformed(ref, f"has more than {rows_max} {'record' if rows_max == 1 else 'records'} of one person")
    return tokens


def _at(values: NDArray[Any], places: NDArray[np.int64], present: NDArray[np.bool_]) -> NDArray[Any]:
    """The rows at some places; zeros where the joined record is absent."""
    rows = np.zeros((len(places), *values.shape[1:]), values.dtype)
    rows[present] = values[places[present]]
    return rows
