"""Places that coroutines wait for: a caller has a part of them, callers take turns, and the line has an end."""

from __future__ import annotations

import asyncio

import pytest

from api.http.caller_places import CallerPlaces, PlaceTerms
from api.http.problems import Problem

WAIT_S = 60.0
TWO_EACH = PlaceTerms(2, 3, 5, "too many of yours", "too many of others")


class Room:
    """Places that coroutines wait for: each stays until it is let go, and says who entered."""

    def __init__(self, places: int) -> None:
        self.places = CallerPlaces(places, TWO_EACH)
        self.entered: list[str] = []
        self.go = asyncio.Semaphore(0)

    async def stay(self, caller: str, wait_s: float = WAIT_S) -> str:
        """Take a place of a caller until it is let go."""
        async with self.places.awaited(caller, wait_s):
            self.entered.append(caller)
            await self.go.acquire()
        return caller

    async def begun(self, *callers: str) -> list[asyncio.Task[str]]:
        """Their requests, which have places or wait for them."""
        tasks = [asyncio.create_task(self.stay(caller)) for caller in callers]
        await asyncio.sleep(0)
        return tasks

    async def let_go(self, tasks: list[asyncio.Task[str]]) -> None:
        """Let each end."""
        for _ in tasks:
            self.go.release()
        assert len(await asyncio.gather(*tasks)) == len(tasks)


def test_a_caller_has_a_part_of_the_places_and_callers_take_turns() -> None:
    """Two places of three, while another caller has one; of those that wait, one of each caller enters in turn."""

    async def scene() -> None:
        room = Room(3)
        tasks = await room.begun("a", "a", "a", "a", "a")
        assert room.entered == ["a", "a"]
        tasks += await room.begun("b")
        assert room.entered == ["a", "a", "b"]
        tasks += await room.begun("c", "b")
        await room.let_go(tasks)
        assert room.entered[3:] == ["a", "c", "b", "a", "a"]
        assert room.places.waiting == 0

    asyncio.run(scene())


def test_the_line_of_one_caller_and_of_all_has_an_end() -> None:
    """Whose own requests wait is told 429 at once, others 503."""

    async def scene() -> None:
        room = Room(2)
        tasks = await room.begun("a", "a", "a", "a", "a", "b", "b")
        assert room.places.waiting == 5
        for caller, status, why in (("a", 429, "too many of yours"), ("c", 503, "too many of others")):
            with pytest.raises(Problem, match=why) as caught:
                await room.stay(caller)
            assert caught.value.status == status
        await room.let_go(tasks)

    asyncio.run(scene())


def test_who_waits_no_more_leaves_the_line() -> None:
    """Because its time is over, or its request is gone: the place goes to the next one."""

    async def scene() -> None:
        room = Room(2)
        tasks = await room.begun("a", "a")
        for caller, status in (("a", 429), ("b", 503)):
            with pytest.raises(Problem) as caught:
                await room.stay(caller, 0)
            assert caught.value.status == status
        (gone,) = await room.begun("b")
        assert room.places.waiting == 1
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert room.places.waiting == 0
        tasks += await room.begun("c")
        await room.let_go(tasks)
        assert room.entered == ["a", "a", "c"]

    asyncio.run(scene())


def test_a_place_that_comes_as_its_request_goes_is_free_again() -> None:
    """It was given in the same turn of the loop in which the request was cancelled."""

    async def scene() -> None:
        room = Room(1)
        (first,) = await room.begun("a")
        (gone,) = await room.begun("b")
        room.go.release()
        assert await first == "a"
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        await room.let_go(await room.begun("c"))

    asyncio.run(scene())
