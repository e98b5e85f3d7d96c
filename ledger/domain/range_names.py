"""Ranges of partitions as people write them, resolved for a signed command: ``claims[2026-W31..2026-W43]``.

``claims[last 52]`` is the newest 52 partitions of the dataset that are neither retired nor past their age. It is
resolved once, before the command is signed; which partitions the range covers does not change afterwards. A name
without its provider is of the one dataset of that id.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final

from ledger.domain.partition_ranges import PARTITIONS_MAX, dataset_of_ref
from ledger.wire.canonical_json import Json, Object
from ledger.wire.malformed import Malformed

_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._~-]*"
RANGE_PATTERN: Final = rf"(?:did:[^/\[\]]+/)?{_NAME}\[(?:{_NAME}\.\.{_NAME}|last [1-9][0-9]{{0,3}})\]"
"""The form of a range, for readers of other programs."""
_RANGE: Final = re.compile(
    rf"(?P<dataset>(?:did:[^/\[\]]+/)?{_NAME})"
    rf"\[(?:(?P<first>{_NAME}?)\.\.(?P<last>{_NAME})|last (?P<count>[1-9][0-9]{{0,3}}))\]"
)
_FORM: Final = "must be 'provider/dataset/partition', 'dataset[first..last]' or 'dataset[last 52]'"


@dataclass(frozen=True, slots=True)
class Opened:
    """A partition: its reference, the index of the entry that opened it, and whether it is retired or past its age."""

    ref: str
    index: int
    closed: bool

    @property
    def dataset(self) -> str:
        """``provider/dataset``."""
        return dataset_of_ref(self.ref)

    @property
    def name(self) -> str:
        """Its name within the dataset."""
        return self.ref.rpartition("/")[2]


class OpenPartitions:
    """The partitions of a book, or those that a caller may see, read when they are first needed."""

    def __init__(self, read: Callable[[], Iterable[Opened]]) -> None:
        """Read with ``read``, once."""
        self._read, self._found = read, list[Opened]()

    @property
    def found(self) -> list[Opened]:
        """Every partition in order of opening."""
        if not self._found:
            self._found = sorted(self._read(), key=lambda one: one.index)
        return self._found

    def dataset(self, name: str, field: str) -> str:
        """The reference of a dataset, given with or without its provider. Raises: Malformed."""
        if "/" in name:
            return name
        datasets = {partition.dataset for partition in self.found if partition.dataset.rpartition("/")[2] == name}
        if len(datasets) != 1:
            rule = "name its provider too" if datasets else "no partition of it is open"
            raise Malformed(field, f"{name} is a dataset of {len(datasets)} providers: {rule}")
        return datasets.pop()

    def of(self, dataset: str) -> list[Opened]:
        """The partitions of one dataset, in order of opening."""
        return [partition for partition in self.found if partition.dataset == dataset]

    def last(self, dataset: str, count: int, field: str) -> list[Object]:
        """The newest open partitions (not retired, not past their age), as ranges without gaps. Raises: Malformed."""
        open_ = [partition.ref for partition in self.of(dataset) if not partition.closed]
        if not 1 <= count <= min(len(open_), PARTITIONS_MAX):
            raise Malformed(field, f"{dataset} has {len(open_)} open partitions, and one run at most {PARTITIONS_MAX}")
        return self.rows(dataset, open_[-count:])

    def rows(self, dataset: str, refs: Sequence[str]) -> list[Object]:
        """Partitions of a dataset as ranges: one for each row without a gap."""
        requested = {*refs}
        rows: list[list[str]] = []
        before = -1
        for place, partition in enumerate(self.of(dataset)):
            if partition.ref not in requested:
                continue
            if not rows or place != before + 1 or not _follows(rows[-1][-1], partition.name):
                rows.append([])
            rows[-1].append(partition.name)
            before = place
        return [{"dataset": dataset, "first": row[0], "last": row[-1]} for row in rows]

    def between(self, named: Object) -> list[str]:
        """The references in a range. Raises: Malformed."""
        refs = [partition.ref for partition in self.of(str(named["dataset"]))]
        ends = [f"{named['dataset']}/{named[side]}" for side in ("first", "last")]
        for end in ends:
            if end not in refs:
                raise Malformed("partitions", f"there is no partition {end}")
        return refs[refs.index(ends[0]) : refs.index(ends[1]) + 1]


def is_range(name: str) -> bool:
    """Whether a name is that of a range, not of a single partition."""
    return "[" in name


def range_named(name: str, field: str) -> re.Match[str]:
    """The parts of a range's name: ``dataset``, and ``first`` and ``last``, or ``count``. Raises: Malformed."""
    match = _RANGE.fullmatch(name)
    if match is None:
        raise Malformed(field, _FORM)
    return match


def ranges_named(
    names: Sequence[str], known: OpenPartitions, field: str = "partitions"
) -> tuple[list[str], list[Object]]:
    """The single partitions among these names, and the ranges. Raises: Malformed; what reading raises."""
    listed, ranges = [], list[Object]()
    for place, name in enumerate(names):
        if not is_range(name):
            listed.append(name)
            continue
        where = f"{field}[{place}]"
        parsed = range_named(name, where)
        dataset = known.dataset(parsed["dataset"], where)
        if parsed["count"] is not None:
            ranges += known.last(dataset, int(parsed["count"]), where)
        else:
            ranges.append({"dataset": dataset, "first": parsed["first"], "last": parsed["last"]})
    return listed, ranges


def with_ranges(body: Object, known: OpenPartitions) -> Object:
    """A charge's body with the ranges among its partitions resolved. Raises: Malformed; what reading raises."""
    names: Json = body.get("partitions")
    if not isinstance(names, list) or not any(isinstance(item, str) and is_range(item) for item in names):
        return body
    listed, ranges = ranges_named([str(item) for item in names], known)
    stated = body.get("ranges")
    return {**body, "partitions": [*listed], "ranges": [*(stated if isinstance(stated, list) else []), *ranges]}


def _follows(first: str, then: str) -> bool:
    """Whether a period follows another one; always true for names that are not periods."""
    days = [_days_of(name) for name in (first, then)]
    return None in days or (days[0] is not None and days[1] is not None and days[0][1] == days[1][0])


def _days_of(name: str) -> tuple[date, date] | None:
    """The first day of a period (ISO 8601: a week, a month, a day) and the first after it; None for another name."""
    try:
        if week := re.fullmatch(r"(\d{4})-W(\d\d)", name):
            monday = date.fromisocalendar(int(week[1]), int(week[2]), 1)
            return monday, monday + timedelta(7)
        if month := re.fullmatch(r"(\d{4})-(\d\d)", name):
            first = date(int(month[1]), int(month[2]), 1)
            return first, (first + timedelta(31)).replace(day=1)
        if re.fullmatch(r"\d{4}-\d\d-\d\d", name):
            return date.fromisoformat(name), date.fromisoformat(name) + timedelta(1)
    except (ValueError, OverflowError):
        return None
    return None
