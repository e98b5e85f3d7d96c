"""The checker of histories, on a true one and on every way to forge it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import pytest

from tests.factories.people import BANK_B
from tests.factories.stored import StoredWorld, open_world
from tests.faults.history import Call, Inconsistent, Read, check_history
from tests.faults.killing import Book

Log = list[bytes]
Calls = list[Call]
Reads = list[Read]


def _history(world: StoredWorld) -> tuple[Log, Calls, Reads, int]:
    """One caller after another, each a step of the clock: asked at 10 n, answered at 10 n + 5, read at 10 n + 7."""
    founded, calls, reads = world.size, list[Call](), list[Read]()
    sent = [
        world.charge("a"),
        world.charge("b", BANK_B),
        world.settle("a", 30),
        world.void("a"),
        world.charge("c"),
        world.void("c"),
        *(world.charge(f"full-{number}") for number in range(9)),
        world.charge("a"),
    ]
    for step, one in enumerate(sent):
        (got,) = world.submit(one)
        calls.append(Call(got.id, 10 * step, 10 * step + 5, got.code.word, got.index, got.repeated))
        with world.book.read() as facts:
            reads.append(Read(10 * step + 6, 10 * step + 7, facts.size, facts.root.hex()))
    return Book(world.path.parent, world.url, founded).entries(), calls, reads, founded


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[Log, Calls, Reads, int]:
    """A true history, with refusals and a repeated command in it."""
    with open_world(tmp_path_factory.mktemp("book")) as world:
        return _history(world)


def test_a_true_history_passes(history: tuple[Log, Calls, Reads, int]) -> None:
    """Also if an answer never came, and if two overlapped."""
    log, calls, reads, founded = history
    assert {"pending", "posted", "voided", "conflict", "budget_exhausted"} <= {one.word for one in calls}
    check_history(log, calls, reads, founded)
    lost = [replace(one, ended=1 << 62, word="", index=None) if place % 3 else one for place, one in enumerate(calls)]
    check_history(log, lost, reads, founded)
    check_history(log, [replace(one, began=0, ended=900) for one in calls], (), founded)


def _at(calls: Calls, place: int, **changes: object) -> Calls:
    return [replace(one, **changes) if at == place else one for at, one in enumerate(calls)]  # type: ignore[arg-type] # fields by name


Forgery = Callable[[Log, Calls, Reads], tuple[Log, Calls, Reads]]
FORGED: Final[dict[str, tuple[Forgery, str]]] = {
    "an answer that is not there": (lambda log, calls, reads: (log[:-1], calls, reads[:3]), "and stands at None"),
    "another index": (lambda log, calls, reads: (log, _at(calls, 0, index=12), reads), "was told 12"),
    "another outcome": (lambda log, calls, reads: (log, _at(calls, 2, word="voided"), reads), "posted stands"),
    "an entry twice": (lambda log, calls, reads: ([*log, log[-1]], calls, reads), "stands twice"),
    "an entry that nobody asked for": (lambda log, calls, reads: (log, calls[:-2], reads), "nobody asked"),
    "an order that real time forbids": (
        lambda log, calls, reads: (log, _at(calls, 0, began=95, ended=96), reads[9:]),
        "was answered before it was asked for",
    ),
    "an unanswered command too early": (
        lambda log, calls, reads: (log, _at(calls, 1, began=95, ended=1 << 62, word="", index=None), reads[9:]),
        "was answered before it was asked for",
    ),
    "a refusal with room": (
        lambda log, calls, _: (
            [
                data.replace(b'"outcome":"pending"', b'"outcome":"budget_exhausted"') if b'"id":"c"' in data else data
                for data in log
            ],
            [*_at(calls, 4, word="budget_exhausted")],
            [],
        ),
        "but there was room",
    ),
    "a conflict with nothing": (
        lambda log, calls, reads: (log, _at(calls, 3, id="void-b"), reads),
        "nothing had settled b",
    ),
    "a pending charge without a place": (
        lambda log, calls, reads: (log, _at(calls, 1, index=None), reads),
        "without a place",
    ),
    "another root": (
        lambda log, calls, reads: (log, calls, [*reads[:-1], replace(reads[-1], root="00" * 32)]),
        "is not that of the entries",
    ),
    "a stale read": (
        lambda log, calls, reads: (log, calls, [replace(reads[0], began=60, ended=61)]),
        "were answered",
    ),
    "a read of what was not asked for yet": (
        lambda log, calls, reads: (log, calls, [replace(reads[5], began=1, ended=2)]),
        "was asked for",
    ),
    "a read beyond the log": (
        lambda log, calls, reads: (log, calls, [replace(reads[0], size=len(log) + 1)]),
        "saw",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_history_is_found_out(history: tuple[Log, Calls, Reads, int], name: str) -> None:
    """Whatever is changed in it."""
    log, calls, reads, founded = history
    forge, said = FORGED[name]
    with pytest.raises(Inconsistent, match=said):
        check_history(*forge(log, calls, reads), founded)
