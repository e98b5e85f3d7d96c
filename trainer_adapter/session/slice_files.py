"""The partitions of a job that names a range, each with its file: ``slices/2026-W31/share/records.sealed``.

A job maps ``claims[2026-W31..2026-W43]`` or ``claims[last 52]`` to the folder of ``epsilon dataset advance``, in which
each slice has a folder of its name. Which slices these are is fixed when the run is charged; a run that is resumed has
those of its charge.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from client.http.problems import Refused
from client.service.named_ranges import open_partitions
from client.service.service import Service
from ledger.domain.outcomes import Code
from ledger.domain.range_names import is_range, ranges_named
from ledger.wire import canonical_json as c

if TYPE_CHECKING:
    from trainer_adapter.job.job_spec import Assignment

SEALED: Final = Path("share", "records.sealed")


def with_slices(known: Assignment, service: Service) -> Assignment:
    """An assignment that names every partition. Raises: Malformed, Refused, Unreachable."""
    if not any(map(is_range, known.data)):
        return known
    opened, data, ranges = open_partitions(service), dict[str, Path](), list[c.Object]()
    charged = _charged(service, known.id)
    for name, file in known.data.items():
        if not is_range(name):
            data[name] = file
            continue
        (_, found) = ranges_named([name], opened, "train.data")
        if charged:
            dataset = str(found[0]["dataset"])
            found = opened.rows(dataset, [ref for ref in charged if ref.rpartition("/")[0] == dataset])
        ranges += found
        for one in found:
            data |= {ref: file / ref.rpartition("/")[2] / SEALED for ref in opened.between(one)}
    return replace(known, data=data, ranges=tuple(ranges), listed=tuple(one for one in known.data if not is_range(one)))


def _charged(service: Service, name: str) -> list[str]:
    """The partitions of the charge of this name, if there is one. Raises: Refused, Unreachable."""
    try:
        partitions: Any = service.charge(name).get("partitions")
    except Refused as refused:
        if refused.code == Code.NOT_FOUND.word:
            return []
        raise
    return [str(one) for one in partitions]
