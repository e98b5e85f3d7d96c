"""A clock that is set to another decade: what is recorded meanwhile, and that no budget comes back by the way back."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger.audit.replay import verify_book
from ledger.book.book import BookPaused
from ledger.domain.outcomes import ChargeState
from ledger.mechanisms.loss import Loss
from tests.factories.documents import NOW, SMALL
from tests.factories.people import DAY_MS, HOUR_MS, LOG, SRO, MachineClock
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.book.test_clock_correction import YEARS_MS, correction, jump


def test_ten_years_for_two_commands_leave_no_trace(tmp_path: Path) -> None:
    """In production: nothing is recorded, and afterwards the same commands get what they would have got before."""
    with open_world(tmp_path) as world:
        machine = MachineClock(NOW)
        world.clock = machine
        world.book.close()
        world.book = world.open(watch=machine.watch())
        world.submit(world.charge("waiting", run=SMALL))
        size = world.size
        with pytest.raises(BookPaused):
            jump(world)
        machine.now = NOW
        assert world.size == size
        assert [one.code.word for one in world.submit(world.charge("after"), world.release("waiting", SMALL))] == [
            *("pending", "permitted")
        ]


_STEP = st.one_of(
    st.tuples(st.just("advance"), st.integers(1, 20 * DAY_MS)),
    st.tuples(st.just("jump"), st.integers(1, YEARS_MS)),
    st.tuples(st.just("back"), st.just(0)),
    st.tuples(st.just("correct"), st.integers(0, 3 * DAY_MS)),
    st.tuples(st.just("charge"), st.integers(1, 30 * DAY_MS)),
    st.tuples(st.just("settle"), st.integers(0, 3)),
    st.tuples(st.just("reopen"), st.just(0)),
)


class _Book:
    """A book whose clock is believed, as in development, and what must never be undone in it."""

    def __init__(self, world: StoredWorld) -> None:
        self.world, self.true, self.count = world, NOW, 0
        self.posted: dict[tuple[str, str], Loss] = {}
        self.settled: dict[str, str] = {}

    def step(self, what: str, ms: int) -> None:
        """One event, and then every account and every settled charge."""
        world = self.world
        self.count += 1
        if what == "advance":
            self.true += ms
            world.clock.now += ms
        elif what == "jump":
            world.clock.now += ms
        elif what == "back":
            world.clock.now = self.true
        elif what == "correct":
            with world.book.read() as facts:
                before = {name: (one.deadline - facts.time, one.state) for name, one in facts.charges.items()}
                time, size = facts.time, facts.size
            done = correction(world, SRO, name=f"back-{self.count}", time=max(NOW, world.clock.now - ms))
            with world.book.read() as facts:
                after = {name: (one.deadline - facts.time, one.state) for name, one in facts.charges.items()}
            if done.code.word == "permitted" and facts.size == size + 1 and time > world.clock.now:
                waiting = {name for name, (_, state) in before.items() if state is ChargeState.PENDING}
                assert {name: after[name] for name in waiting} == {name: before[name] for name in waiting}
        elif what == "charge":
            world.submit(world.charge(f"run-{self.count}", run=SMALL, deadline=max(world.clock.now, self.time) + ms))
        elif what == "settle":
            pending = self.pending()
            if pending:
                world.submit(world.release(pending[0], SMALL), world.settle(pending[0], ms))
        else:
            world.reopen()
        self.check()

    @property
    def time(self) -> int:
        with self.world.book.read() as facts:
            return facts.time

    def pending(self) -> list[str]:
        with self.world.book.read() as facts:
            return [one.id for one in facts.charges.values() if one.state is ChargeState.PENDING]

    def check(self) -> None:
        """What is posted only grows, and what is settled stays as it is."""
        with self.world.book.read() as facts:
            now = {place: one.posted for place, one in facts.accounts.items()}
            settled = {
                one.id: one.state.value for one in facts.charges.values() if one.state is not ChargeState.PENDING
            }
        for place, before in self.posted.items():
            after = now[place]
            assert all(one <= other for one, other in zip(before.finite, after.finite, strict=True))
            assert all(one <= other for one, other in zip(before.infinite, after.infinite, strict=True))
        assert self.settled.items() <= settled.items()
        self.posted, self.settled = now, settled


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_STEP, min_size=8, max_size=25))
def test_no_way_back_gives_budget_back(steps: list[tuple[str, int]]) -> None:
    """After any jumps and corrections: posted loss only grows, settled charges stay, and the book verifies."""
    with TemporaryDirectory() as name, open_world(Path(name)) as world:
        book = _Book(world)
        for what, ms in steps:
            book.step(what, ms)
        # Then the book is set right, and goes on.
        world.clock.now = max(book.true, NOW)
        if book.time > world.clock.now:
            assert correction(world, SRO, name="last").code.word == "permitted"
        world.clock.now += HOUR_MS
        assert world.submit(world.partition("fresh"))[0].code.word == "permitted"
        assert book.time == world.clock.now
        assert verify_book(world.url, LOG, no_step).entries == world.size
