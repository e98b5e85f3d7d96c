"""Buckets against a model that keeps what is in each, and adds what comes back."""

from __future__ import annotations

import threading
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from api.http.refilling_buckets import RefillingBuckets


class Seconds:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now


class Model:
    """One bucket, in exact numbers: what it holds, below zero where more was charged."""

    def __init__(self, amount: int, window_s: int) -> None:
        self.amount, self.rate, self.held = amount, Fraction(amount, window_s), Fraction(amount)

    def pass_time(self, seconds: int) -> None:
        """Refill it."""
        self.held = min(Fraction(self.amount), self.held + self.rate * seconds)

    def take(self, cost: int) -> bool:
        """Whether there was as much."""
        if self.held < min(cost, self.amount):
            return False
        self.held -= cost
        return True


STEPS = st.lists(st.tuples(st.sampled_from(["take", "charge", "wait"]), st.integers(1, 40)), max_size=40)


@given(st.integers(1, 30), st.integers(1, 60), STEPS)
def test_a_bucket_admits_what_the_model_admits(amount: int, window_s: int, steps: list[tuple[str, int]]) -> None:
    """And says how long to wait: at that time it admits, and whole units are shown as they are."""
    clock = Seconds()
    buckets, model = RefillingBuckets(amount, window_s, clock), Model(amount, window_s)
    for what, number in steps:
        if what == "wait":
            clock.now += number
            model.pass_time(number)
        elif what == "charge":
            buckets.charge("one", number)
            model.held -= number
        else:
            wait_s = buckets.take("one", number)
            assert (wait_s == 0) is model.take(number)
            needed = min(number, amount) - model.held
            assert wait_s == 0 or abs(wait_s - needed / model.rate) < 1e-6
        level = buckets.level("one")
        assert level.left == max(0, model.held // 1)
        assert abs(level.full_s - (amount - model.held) / model.rate) <= 1
        assert (buckets.wait_s("one") < 1e-6) is (model.held >= 1)
    assert buckets.take("another") == 0


def test_memory_is_bounded_and_a_caller_that_is_forgotten_has_its_whole_quota() -> None:
    """The one that was seen least recently is forgotten first."""
    buckets = RefillingBuckets(1, 60, Seconds(), keys_max=10)
    for key in range(10):
        assert buckets.take(key) == 0
    assert buckets.take(0) > 0
    buckets.charge(0, 1)
    buckets.take("new")
    assert len(buckets) == 10
    assert [buckets.take(key) > 0 for key in (0, "new", 2)] == [True, True, True]
    assert buckets.take(1) == 0
    assert len(buckets) == 10


def test_threads_take_no_unit_twice() -> None:
    """Eight of them, all at once, get exactly what is there."""
    buckets, start, taken = RefillingBuckets(1_000, 3_600, Seconds()), threading.Barrier(8), list[int]()

    def take() -> None:
        start.wait()
        taken.append(sum(buckets.take("one") == 0 for _ in range(200)))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sum(taken) == 1_000
