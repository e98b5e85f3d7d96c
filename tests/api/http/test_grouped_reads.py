"""Checks that wait together are made on one snapshot, and each request gets its own answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.http.grouped_reads import GroupedReads
from api.http.problems import Problem
from ledger.book.book import BookStopped
from ledger.domain.outcomes import Code
from ledger.store.snapshot import Snapshot
from tests.factories.documents import SMALL
from tests.factories.stored import StoredWorld, open_world

WAIT_S = 60


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StoredWorld]:
    """A book with everything that a charge needs."""
    with open_world(tmp_path) as found:
        yield found


async def _together(reads: GroupedReads, *checks: Any) -> list[Any]:  # noqa: ANN401 - functions of a snapshot
    """What checks give that all wait while another one is being made."""
    begun, leave = threading.Event(), threading.Event()

    def hold(facts: Snapshot) -> Snapshot:
        begun.set()
        assert leave.wait(WAIT_S)
        return facts

    first = asyncio.create_task(reads.run(hold))
    await asyncio.to_thread(begun.wait, WAIT_S)
    others = [asyncio.create_task(reads.run(one)) for one in checks]
    await asyncio.sleep(0)
    leave.set()
    return await asyncio.gather(first, *others, return_exceptions=True)


def test_those_that_wait_share_a_snapshot_taken_after_they_came(world: StoredWorld) -> None:
    """What was recorded before a request came is on its snapshot."""
    reads, held = GroupedReads(world.book), list[Snapshot]()

    def keep(facts: Snapshot) -> int:
        held.append(facts)
        return facts.size

    async def ask() -> list[Any]:
        await asyncio.to_thread(world.submit, world.charge("run-1", run=SMALL))
        return await _together(reads, keep, keep, keep)

    first, *others = asyncio.run(ask())
    assert others == [11, 11, 11]
    assert len({id(one) for one in held}) == 1
    assert held[0] is not first


def test_a_refusal_is_one_request_s_own(world: StoredWorld) -> None:
    """And so is a fault: those after it get another snapshot."""

    def refuse(_facts: Snapshot) -> None:
        raise Problem(Code.NOT_FOUND, "there is no such thing")

    def fail(_facts: Snapshot) -> None:
        raise ZeroDivisionError

    def size(facts: Snapshot) -> int:
        return facts.size

    reads = GroupedReads(world.book)
    _, one, two, three, four = asyncio.run(_together(reads, size, refuse, fail, size))
    assert one == 10
    assert isinstance(two, Problem)
    assert isinstance(three, ZeroDivisionError)
    assert four == 10
    assert asyncio.run(reads.run(size)) == 10


def test_a_closed_book_answers_everyone(world: StoredWorld) -> None:
    """None of them waits for ever."""
    reads = GroupedReads(world.book)
    world.book.close()
    with pytest.raises(BookStopped):
        asyncio.run(reads.run(lambda facts: facts.size))
