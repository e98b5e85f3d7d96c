"""The partitions of a job that names a range, each with its file: ``slices/2026-W31/share/records.sealed``.

A job maps ``claims[2026-W31..2026-W43]`` or ``claims[last 52]`` to the folder of ``epsilon dataset advance``, in which
each slice has a folder of its name. Which slices these are is fixed when the run is charged; a run that is resumed has
those of its charge, whatever the names would mean now.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from client.http.problems import Refused
from client.service.named_ranges import open_partitions
from client.service.service import Service
from ledger.domain.outcomes import Code
from ledger.domain.partition_ranges import dataset_of_ref
from ledger.domain.range_names import is_range, range_named, ranges_named
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from ledger.domain.range_names import OpenPartitions
    from trainer_adapter.job.job_spec import Assignment

SEALED: Final = Path("share", "records.sealed")
_FIELD: Final = "train.data"


def with_slices(assignment: Assignment, service: Service) -> Assignment:
    """An assignment that names every partition. Raises: Malformed, Refused, Unreachable."""
    if not any(map(is_range, assignment.data)):
        return assignment
    opened, listed = open_partitions(service), tuple(ref for ref in assignment.data if not is_range(ref))
    named = [ref for ref in assignment.data if is_range(ref)]
    charged = _charged(service, assignment.id)
    if charged:
        ranges = _on_record(assignment.id, listed, named, charged, opened)
    else:
        ranges = {name: ranges_named([name], opened, _FIELD)[1] for name in named}
    data = dict[str, Path]()
    for name, file in assignment.data.items():
        if is_range(name):
            data |= {ref: file / ref.rpartition("/")[2] / SEALED for ref in _refs(ranges[name], opened)}
        else:
            data[name] = file
    return replace(assignment, data=data, ranges=tuple(chain.from_iterable(ranges.values())), listed=listed)


def _on_record(
    charge: str, listed: tuple[str, ...], named: list[str], charged: list[str], opened: OpenPartitions
) -> dict[str, list[c.Object]]:
    """The ranges that each name had when the run was charged: in the charge they follow what is listed, in their order.

    Slices that opened or retired since change nothing. Raises: Malformed, for a job that names other partitions.
    """
    left, by_dataset = charged[len(listed) :], dict[str, list[c.Object]]()
    for name in named:
        parts, dataset = range_named(name, _FIELD), dataset_of_ref(left[0]) if left else ""
        if parts["count"] is None:
            last = f"{dataset}/{parts['last']}"
            own = left[: left.index(last) + 1] if last in left else []
            by_dataset[name] = [{"dataset": dataset, "first": parts["first"], "last": parts["last"]}]
        else:
            own = left[: int(parts["count"])]
            by_dataset[name] = opened.rows(dataset, own)
        if not own or not f"/{dataset}".endswith(f"/{parts['dataset']}") or _refs(by_dataset[name], opened) != own:
            raise _other(charge)
        left = left[len(own) :]
    if left or [*listed] != charged[: len(listed)]:
        raise _other(charge)
    return by_dataset


def _refs(ranges: list[c.Object], opened: OpenPartitions) -> list[str]:
    return [ref for range_ in ranges for ref in opened.between(range_)]


def _other(charge: str) -> Malformed:
    return Malformed(_FIELD, f"names other partitions than the charge {charge} has: restore them, or choose another id")


def _charged(service: Service, name: str) -> list[str]:
    """The partitions of the charge of this name, if there is one. Raises: Refused, Unreachable."""
    try:
        partitions: Any = service.charge(name).get("partitions")
    except Refused as refused:
        if refused.code == Code.NOT_FOUND.word:
            return []
        raise
    return [str(partition) for partition in partitions]
