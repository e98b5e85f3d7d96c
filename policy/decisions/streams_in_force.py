"""The versions of a stream in force: the newest binds the next slice, the tightest binds the open ones.

A partition is a slice if the stream of its dataset was entered before it. Slices are in the order in which they
opened.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Final

from ledger.domain.facts import Facts, Partition
from policy.documents.partition_commitments import Stored
from policy.documents.stream import StreamBudget, StreamDocument

_KEPT: Final = 256
read_stream = lru_cache(maxsize=_KEPT)(StreamDocument.parse)


@dataclass(frozen=True, slots=True)
class SliceTerms:
    """The terms of a slice now: those it opened with, or tighter ones of a later version.

    Attributes:
        stream: the version under which it opened.
        life_days: the days after which it accepts no more charges.
        window_max: the most slices of the stream in one run.
    """

    stream: StreamDocument
    life_days: int
    life_source: str
    window_max: int
    window_source: str


def stream_in_force(facts: Facts, provider: str, dataset: str) -> StreamDocument | None:
    """The newest version of a dataset's stream; None if it has none."""
    versions = facts.streams.get((provider, dataset))
    return read_stream(facts.documents[versions[-1].document]) if versions else None


def shown_at_most(facts: Facts, provider: str, dataset: str, slices: Iterable[Partition]) -> StreamBudget:
    """The budget of all slices of a stream together: see :mod:`policy.documents.slice_budget`. Raises: KeyError.

    The greatest ε and the greatest δ of the newest version and of those under which slices opened, retired ones too.
    """
    versions = facts.streams[provider, dataset]
    indexes = [version.index for version in versions]
    opened = {bisect_left(indexes, partition.index) - 1 for partition in slices}
    budgets = [read_stream(facts.documents[versions[place].document]).budget for place in {*opened, len(versions) - 1}]
    return StreamBudget(max(budget.delta for budget in budgets), max(budget.epsilon for budget in budgets))


def is_slice(facts: Facts, partition: Partition) -> bool:
    """Whether a partition opened under a stream."""
    versions = facts.streams.get((partition.provider, partition.dataset))
    return versions is not None and versions[0].index < partition.index


def slice_terms(facts: Facts, partition: Partition) -> SliceTerms | None:
    """The terms of a slice; None for a partition that is not a slice."""
    versions = facts.streams.get((partition.provider, partition.dataset))
    if not versions or versions[0].index > partition.index:
        return None
    opening = max(place for place, version in enumerate(versions) if version.index < partition.index)
    since = [read_stream(facts.documents[version.document]) for version in versions[opening:]]
    life, window = min(since, key=lambda terms: terms.life_days), min(since, key=lambda terms: terms.window_max)
    return SliceTerms(since[0], life.life_days, life.source, window.window_max, window.source)


def slices_of(facts: Facts, provider: str, dataset: str, partitions: Iterable[Partition]) -> tuple[Partition, ...]:
    """The slices of a stream among some partitions, in the order in which they opened."""
    slices = (
        partition
        for partition in partitions
        if (partition.provider, partition.dataset) == (provider, dataset) and is_slice(facts, partition)
    )
    return tuple(sorted(slices, key=lambda slice_: slice_.index))


def stored_commitments(digest: str, facts: Facts) -> Stored:
    """A document of commitments, fetched when it is read."""
    return Stored(digest, partial(facts.documents.__getitem__, digest))
