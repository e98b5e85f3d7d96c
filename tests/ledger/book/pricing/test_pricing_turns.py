"""Organisations take turns at the workers that compute prices; none has all of them, nor a line without end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from ledger.book.pricing.pricing_turns import TURNS_MAX, PricingTurns
from ledger.book.submitted_command import BookStopped, PricingRefused
from tests.factories.people import BANK_A, BANK_B, HOSPITAL

WAIT_S = 60


class Scene:
    """Turns at some workers, and what began in which order; each waits until it is let go."""

    def __init__(self, at_once: int) -> None:
        self.turns = PricingTurns(at_once)
        self.begun: list[str] = []
        self.began = threading.Semaphore(0)
        self.go = threading.Semaphore(0)

    def held(self, name: str) -> Callable[[], str]:
        """Work that waits to be let go."""
        return partial(self._hold, name)

    def _hold(self, name: str) -> str:
        self.begun.append(name)
        self.began.release()
        assert self.go.acquire(timeout=WAIT_S)
        return name

    def next_begun(self) -> str:
        """What has begun since, one."""
        assert self.began.acquire(timeout=WAIT_S)
        return self.begun[-1]


@pytest.fixture
def scene() -> Iterator[Scene]:
    """Two workers."""
    found = Scene(2)
    yield found
    found.go.release(10 * TURNS_MAX)
    found.turns.close()


def test_one_organisation_leaves_workers_to_others(scene: Scene) -> None:
    """Of two workers it has one, however much of it waits; another organisation is served at once."""
    mine = [scene.turns.submit(BANK_A, number, scene.held(f"a-{number}")) for number in range(5)]
    assert scene.next_begun() == "a-0"
    other = scene.turns.submit(BANK_B, "b", scene.held("b"))
    assert scene.next_begun() == "b"
    assert not [one for one in mine if one.done()]
    scene.go.release(6)
    assert other.result(WAIT_S) == "b"
    assert [one.result(WAIT_S) for one in mine] == [f"a-{number}" for number in range(5)]


def test_organisations_are_served_in_turn() -> None:
    """With one worker in all: what came first of each, then the second of each."""
    scene = Scene(1)
    for name in ("a-1", "a-2", "a-3", "b-1", "b-2", "c-1"):
        organisation = {"a": BANK_A, "b": BANK_B, "c": HOSPITAL}[name[0]]
        scene.turns.submit(organisation, name, scene.held(name))
    order = []
    for _ in range(6):
        order.append(scene.next_begun())
        scene.go.release()
    scene.turns.close()
    assert order == ["a-1", "a-2", "b-1", "c-1", "a-3", "b-2"]


def test_the_line_of_an_organisation_is_bounded(scene: Scene) -> None:
    """One turn more is refused and not run; another organisation may wait, and the first again once it is shorter."""
    mine = [scene.turns.submit(BANK_A, number, scene.held("a")) for number in range(1 + TURNS_MAX)]
    assert scene.next_begun() == "a"
    with pytest.raises(PricingRefused, match=f"^{TURNS_MAX} runs of the organisation wait"):
        scene.turns.submit(BANK_A, "more", scene.held("more"))
    scene.turns.submit(BANK_B, "b", scene.held("b"))
    assert scene.next_begun() == "b"
    scene.go.release(2 + TURNS_MAX)
    assert [one.result(WAIT_S) for one in mine] == ["a"] * (1 + TURNS_MAX)
    scene.go.release()
    assert scene.turns.submit(BANK_A, "more", scene.held("later")).result(WAIT_S) == "later"
    assert "more" not in scene.begun


def test_what_is_alike_takes_one_turn(scene: Scene) -> None:
    """It waits with what is there already, whatever the bound, and is run after it."""
    first = scene.turns.submit(BANK_A, 0, scene.held("first"))
    assert scene.next_begun() == "first"
    waiting = [scene.turns.submit(BANK_A, number % TURNS_MAX, partial(int, number)) for number in range(3 * TURNS_MAX)]
    scene.go.release()
    assert first.result(WAIT_S) == "first"
    assert [one.result(WAIT_S) for one in waiting] == [*range(3 * TURNS_MAX)]


def test_an_error_is_that_of_its_work_alone(scene: Scene) -> None:
    """What is alike and comes after it is run all the same."""
    first = scene.turns.submit(BANK_A, 0, scene.held("first"))
    assert scene.next_begun() == "first"
    bad, good = scene.turns.submit(BANK_A, 1, partial(int, "x")), scene.turns.submit(BANK_A, 1, partial(int, "7"))
    scene.go.release()
    assert (first.result(WAIT_S), good.result(WAIT_S)) == ("first", 7)
    with pytest.raises(ValueError, match="invalid literal"):
        bad.result(WAIT_S)


def test_what_waits_at_closing_gets_why(scene: Scene) -> None:
    """So is what comes later; what is running ends by itself."""
    running = scene.turns.submit(BANK_A, 0, scene.held("first"))
    assert scene.next_begun() == "first"
    waiting = scene.turns.submit(BANK_A, 1, scene.held("second"))
    scene.turns.close()
    for stopped in (waiting, scene.turns.submit(BANK_B, 2, scene.held("third"))):
        with pytest.raises(BookStopped):
            stopped.result(WAIT_S)
    scene.go.release()
    assert running.result(WAIT_S) == "first"
    assert scene.begun == ["first"]
