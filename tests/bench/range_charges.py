"""What a charge over many partitions costs beside one over one: processor time, in turns, in the same run.

The book is one file with 1,024 open partitions of a dataset; each charge is sent alone and committed before the next.
"""

from __future__ import annotations

import argparse
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time
from typing import Final

from ledger.domain.partition_ranges import PARTITIONS_MAX
from ledger.wire import canonical_json as c
from tests.bench.book_rows import Condition, report
from tests.factories.documents import SMALL
from tests.factories.people import HOSPITAL
from tests.factories.stored import StoredWorld, open_world

WIDTHS: Final = {52: Condition(most=3), PARTITIONS_MAX: Condition(most=20)}
_OPENED_AT_ONCE: Final = 64
_NAMES: Final = count()


def charge_over(world: StoredWorld, width: int) -> float:
    """The seconds of a processor that a charge over the newest partitions takes."""
    dataset = f"{HOSPITAL}/digits"
    ranged: c.Object = {"dataset": dataset, "first": _slice(PARTITIONS_MAX - width), "last": _slice(PARTITIONS_MAX - 1)}
    if width == 1:
        sent = world.charge(f"run-{next(_NAMES)}", run=SMALL, partitions=(f"{dataset}/{_slice(PARTITIONS_MAX - 1)}",))
    else:
        sent = world.charge(f"run-{next(_NAMES)}", run=SMALL, partitions=(), ranges=[ranged])
    begun = process_time()
    (done,) = world.submit(sent)
    spent = process_time() - begun
    assert done.code.word == "pending", done
    return spent


def _slice(place: int) -> str:
    return f"s{place:04d}"


def range_charges(requested: argparse.Namespace) -> None:
    """By width, the cost of a charge beside that of one over a single partition."""
    with TemporaryDirectory() as folder, open_world(Path(folder), "sqlite") as world:
        names = [_slice(place) for place in range(PARTITIONS_MAX)]
        for start in range(0, PARTITIONS_MAX, _OPENED_AT_ONCE):
            world.found(*map(world.partition, names[start : start + _OPENED_AT_ONCE]))
        # The first ones compute prices and make caches.
        for width in (1, *WIDTHS):
            charge_over(world, width)
        ratios: dict[int, list[float]] = {width: [] for width in WIDTHS}
        for _ in range(4 * requested.rounds):
            one = charge_over(world, 1)
            for width, found in ratios.items():
                found.append(charge_over(world, width) / one)
    for width, condition in WIDTHS.items():
        report(f"a charge over {width} partitions", ratios[width], condition, "of one over one partition")
