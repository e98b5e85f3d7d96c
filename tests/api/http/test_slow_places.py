"""Slow requests: a caller has one place, others get theirs in turn, and few wait."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from api.http.caller_places import WAITING_MAX, CallerPlaces
from api.http.problems import Problem

WAIT_S = 60.0


class Door:
    """Places, and who took them in which order; each stays until it is let go."""

    def __init__(self, places: int) -> None:
        self.places = CallerPlaces(places)
        self.entered: list[str] = []
        self.began, self.go = threading.Semaphore(0), threading.Semaphore(0)

    def stay(self, caller: str) -> str:
        """Take a place of a caller until it is let go."""
        with self.places.taken(caller, WAIT_S):
            self.entered.append(caller)
            self.began.release()
            assert self.go.acquire(timeout=WAIT_S)
        return caller

    def await_entered(self) -> str:
        """Who has entered since, one."""
        assert self.began.acquire(timeout=WAIT_S)
        return self.entered[-1]

    def await_waiting(self, count: int) -> None:
        """Go on when so many wait."""
        while self.places.waiting < count:
            pass


def test_a_caller_has_one_place_and_others_have_theirs() -> None:
    """Its second waits while a place is free, its third is refused at once; another caller enters beside it."""
    door = Door(2)
    with ThreadPoolExecutor(3) as threads:
        mine = [threads.submit(door.stay, "a") for _ in range(2)]
        assert door.await_entered() == "a"
        door.await_waiting(1)
        with pytest.raises(Problem, match="another slow request of yours") as caught:
            door.stay("a")
        assert (caught.value.status, caught.value.response().headers["retry-after"]) == (429, "2")
        other = threads.submit(door.stay, "b")
        assert door.await_entered() == "b"
        assert not [one for one in mine if one.done()]
        door.go.release(3)
        assert [one.result(WAIT_S) for one in (*mine, other)] == ["a", "a", "b"]


def test_those_that_wait_enter_in_turn() -> None:
    """A caller's second request comes after the first of each other caller, if these were there before."""
    door = Door(1)
    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(door.stay, "a")]
        assert door.await_entered() == "a"
        for count, caller in enumerate(("b", "c", "a"), 1):
            running.append(threads.submit(door.stay, caller))
            door.await_waiting(count)
        door.go.release(4)
        assert [one.result(WAIT_S) for one in running] == ["a", "b", "c", "a"]
    assert door.entered == ["a", "b", "c", "a"]


def test_few_wait() -> None:
    """One caller more is refused at once; and one that does not wait at all, by whose fault it is."""
    door = Door(1)
    with ThreadPoolExecutor(1 + WAITING_MAX) as threads:
        first = threads.submit(door.stay, "first")
        assert door.await_entered() == "first"
        for caller, status in (("first", 429), ("other", 503)):
            with pytest.raises(Problem) as caught, door.places.taken(caller, 0):
                pass
            assert caught.value.status == status
        others = [threads.submit(door.stay, str(number)) for number in range(WAITING_MAX)]
        door.await_waiting(WAITING_MAX)
        with pytest.raises(Problem, match="too many slow requests") as caught:
            door.stay("more")
        assert caught.value.status == 503
        door.go.release(1 + WAITING_MAX)
        assert [one.result(WAIT_S) for one in (first, *others)] == ["first", *map(str, range(WAITING_MAX))]
    with door.places.taken("more", 0):
        assert door.places.waiting == 0
