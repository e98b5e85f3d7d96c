"""Shards: which privacy units of a run's records each rank holds. Each unit is in one shard, whole, and in no other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ledger.wire.malformed import Malformed
from trainer_adapter.dpsgd.privacy_units import Records
from trainer_adapter.layers.tensor_trees import TensorTree, count_records, select, tensors


@dataclass(frozen=True, slots=True)
class Shard:
    """The units ``first`` to ``end - 1`` of ``units`` in all."""

    first: int
    end: int
    units: int

    def to_bytes(self) -> bytes:
        """24 bytes."""
        return b"".join(value.to_bytes(8, "big") for value in (self.first, self.end, self.units))

    @classmethod
    def of_bytes(cls, data: bytes) -> Shard:
        """The inverse."""
        first, end, units = (int.from_bytes(data[at : at + 8], "big") for at in (0, 8, 16))
        return cls(first, end, units)


@dataclass(frozen=True, slots=True)
class ShardRecords:
    """The records of one shard.

    Attributes:
        shard: which units these are.
        inputs: (records, ...). targets: (records, ...).
        users: whose each record is, shape (records,), where the plan's unit is the user; else None.
        present: which places hold a record, shape (records,), of a join; else None.
    """

    shard: Shard
    inputs: TensorTree
    targets: TensorTree
    users: Tensor | None = None
    present: Tensor | None = None


def shards_of(units: int, ranks: int) -> list[Shard]:
    """As many blocks of units, one after the other, as even as they can be."""
    ends = [rank * units // ranks for rank in range(ranks + 1)]
    return [Shard(first, end, units) for first, end in pairwise(ends)]


def check_shards(shards: Sequence[Shard]) -> None:
    """Hold the ranks' shards to each other.

    Raises:
        Malformed: where ranks count other units in all, a unit is in two shards, or in none.
    """
    at, units = 0, shards[0].units
    order = sorted(range(len(shards)), key=lambda rank: (shards[rank].first, shards[rank].end))
    for before, rank in zip((None, *order), order, strict=False):
        one = shards[rank]
        if one.units != units:
            raise Malformed("devices", f"rank {rank} counts {one.units} units in all, and rank 0 {units}")
        if one.first < at:
            raise Malformed("devices", f"rank {rank} holds units that rank {before} holds too: each is in one shard")
        if one.first > at or one.end < one.first:
            raise Malformed("devices", f"no rank holds the units from {at} on that precede those of rank {rank}")
        at = one.end
    if at != units:
        raise Malformed("devices", f"no rank holds the last {units - at} of {units} units")


def split(records: Records, users: Tensor | None, present: Tensor | None, ranks: int) -> Iterator[ShardRecords]:
    """Cut a run's records into one shard for each rank, in order; each is made when it is taken.

    All records of one user are in one shard.

    Raises:
        Malformed: for inputs, targets and users of different lengths.
    """
    if isinstance(records, tuple):
        count = count_records(records[0], "inputs")
        if count_records(records[1], "targets") != count:
            raise Malformed("data", f"has {count} inputs, and another number of targets")
    else:
        count = len(records)
    if users is None:
        for shard in shards_of(count, ranks):
            yield _shard(records, torch.arange(shard.first, shard.end), shard, None, present)
        return
    if users.shape != (count,):
        raise Malformed("users", f"must be one integer for each of {count} records")
    known, unit = torch.unique(users.cpu(), return_inverse=True)
    for shard in shards_of(len(known), ranks):
        places = torch.nonzero((unit >= shard.first) & (unit < shard.end)).flatten()
        yield _shard(records, places, shard, users, present)


def _shard(
    records: Records, places: Tensor, shard: Shard, users: Tensor | None, present: Tensor | None
) -> ShardRecords:
    if isinstance(records, tuple):
        inputs, targets = (select(part, places.to(tensors(part)[0].device)) for part in records)
    else:
        inputs, targets = records.take(places)
    held = ShardRecords(shard, inputs, targets)
    return replace(held, users=_at(users, places), present=_at(present, places))


def _at(values: Tensor | None, places: Tensor) -> Any:  # noqa: ANN401 - a tensor or None
    return None if values is None else values[places]
