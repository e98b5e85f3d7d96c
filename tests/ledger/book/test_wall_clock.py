"""A clock that jumps pauses the book: nothing is recorded and no charge lapses, until the clock is right again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from ledger.book.book import Book, BookPaused
from ledger.book.wall_clock import (
    ABSENCE_MS_MAX,
    AGREEMENT_MS,
    DRIFT_PPM_MAX,
    JUMP_MS_MAX,
    ClockWatch,
    WallClock,
    accept,
    boot_id,
    boottime_ms,
    read_reading,
    unix_ms,
    write_reading,
)
from ledger.commands.entry import Entry
from ledger.domain.outcomes import ChargeState
from ledger.store.cosignatures import store_cosignature
from ledger.store.engine import engine_of
from ledger.store.snapshot import Log
from ledger.wire.field_types import TIME_MAX
from tests.factories.documents import NOW, SMALL
from tests.factories.people import DAY_MS, HOUR_MS, MINUTE_MS, MachineClock
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.log.memory_log import Cosigner

YEARS_MS: Final = 10 * 365 * DAY_MS


@contextmanager
def watched(folder: Path, engine: str = "sqlite", *, pauses: bool = True) -> Iterator[tuple[StoredWorld, MachineClock]]:
    """A founded book on a machine whose clocks a test moves."""
    with open_world(folder, engine) as world:
        machine = MachineClock(NOW)
        world.clock = machine
        reopen(world, machine, pauses=pauses)
        yield world, machine


def reopen(world: StoredWorld, machine: MachineClock, *, pauses: bool = True) -> None:
    """Open the book anew on the same machine."""
    world.book.close()
    world.book = world.open(watch=machine.watch(world.path.with_suffix(".clock"), pauses=pauses))


def entries(book: Book) -> list[Entry]:
    """Every entry."""
    with book.read() as facts:
        return [Entry.parse(data) for data in facts]


@contextmanager
def engine_at(url: str) -> Iterator[Engine]:
    """What writes beside the book's own writer, as the command of a witness does."""
    engine = engine_of(url, writes=True)
    try:
        yield engine
    finally:
        engine.dispose()


@pytest.fixture
def here(tmp_path: Path, engine: str) -> Iterator[tuple[StoredWorld, MachineClock]]:
    """A book and its machine."""
    with watched(tmp_path, engine) as found:
        yield found


def test_a_jump_pauses_commands_quotes_and_lapses(here: tuple[StoredWorld, MachineClock]) -> None:
    """The attack of two commands in another decade records nothing, and ends when the clock is right again."""
    world, machine = here
    assert world.submit(world.charge("before", run=SMALL))[0].code.word == "pending"
    size = world.size
    machine.now += YEARS_MS
    for _ in range(2):
        with pytest.raises(BookPaused, match=r"3650 days, 0:00:00 ahead of what the time since boot makes it"):
            world.submit(world.charge("during", run=SMALL))
    with pytest.raises(BookPaused):
        world.book.quote(world.charge("during", run=SMALL))
    with pytest.raises(BookPaused):
        world.book.now()
    # A batch without a command, as the writer makes it at a deadline.
    with pytest.raises(BookPaused):
        world.book._writer.send(()).result()  # noqa: SLF001 - what the idle writer does
    assert world.size == size
    machine.now -= YEARS_MS
    assert world.book.paused is None
    assert world.submit(world.charge("after", run=SMALL))[0].code.word == "pending"
    with world.book.read() as facts:
        assert facts.charges["before"].state is ChargeState.PENDING
        assert facts.time == NOW


def test_a_repeated_command_waits_too(here: tuple[StoredWorld, MachineClock]) -> None:
    """So that a key is not sealed again by a clock that fell behind its deadline."""
    world, machine = here
    sent = world.charge("run-1", run=SMALL)
    world.submit(sent)
    machine.now -= DAY_MS
    with pytest.raises(BookPaused, match="1 day, 0:00:00 behind what"):
        world.submit(sent)
    machine.now += DAY_MS
    assert world.submit(sent)[0].repeated


def test_suspend_and_small_steps_are_no_jump(here: tuple[StoredWorld, MachineClock]) -> None:
    """Time in suspend counts in both; after a small step back entries keep the last entry's time."""
    world, machine = here
    machine.advance(30 * DAY_MS)
    assert world.submit(world.charge("a", run=SMALL))[0].code.word == "pending"
    machine.now -= JUMP_MS_MAX
    assert world.submit(world.charge("b", run=SMALL))[0].code.word == "pending"
    machine.now += 2 * JUMP_MS_MAX
    assert world.submit(world.charge("c", run=SMALL))[0].code.word == "pending"
    times = [one.time - NOW - 30 * DAY_MS for one in entries(world.book)[-3:]]
    assert times == [0, 0, JUMP_MS_MAX]
    machine.now += 30 * DAY_MS * DRIFT_PPM_MAX // 1_000_000 + 1
    assert world.book.paused is not None


def test_what_is_a_jump_is_said_by_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    """To the millisecond, of the clock and of a log that is ahead of it."""
    machine = MachineClock(NOW)
    clock = WallClock(machine, replace(machine.watch(), jump_ms=2_000))
    clock.begin(NOW + 2_000)
    assert not caplog.messages
    clock.begin(NOW + 2_001)
    assert "0:00:02 ahead of the clock" in caplog.text
    machine.now += 2_000
    assert clock.paused is None
    machine.now += 1
    assert clock.paused is not None


def test_two_readings_that_agree_with_a_witness_end_a_pause(here: tuple[StoredWorld, MachineClock]) -> None:
    """One is not enough, nor two within 30 seconds; a witness of another time, or one that the clock left, is none."""
    world, machine = here
    machine.now += DAY_MS
    world.book.witnessed(NOW)
    machine.advance(2 * AGREEMENT_MS)
    assert world.book.paused is not None
    world.book.witnessed(machine.now)
    assert world.book.paused is not None
    machine.advance(AGREEMENT_MS - 1)
    assert world.book.paused is not None
    machine.now += DAY_MS
    assert world.book.paused is not None
    machine.now -= DAY_MS
    machine.advance(AGREEMENT_MS)
    assert world.book.paused is not None, "the agreement began anew"
    machine.advance(AGREEMENT_MS)
    assert world.book.paused is None
    assert world.submit(world.charge("after", run=SMALL))[0].code.word == "pending"
    machine.now += DAY_MS
    assert world.book.paused is not None, "what was accepted was that step and no other"


def test_the_operator_accepts_one_clock_and_no_later_one(
    here: tuple[StoredWorld, MachineClock], caplog: pytest.LogCaptureFixture
) -> None:
    """The file holds both readings: another jump is another question, also after a restart of the service."""
    world, machine = here
    file = world.path.with_suffix(".clock")
    machine.now += DAY_MS
    assert world.book.paused is not None
    # What the command does, with this machine's clocks.
    right = read_reading(file)
    assert right is not None
    machine.advance(MINUTE_MS)
    write_reading(file, type(right)(machine.boot, machine.boottime, machine.now))
    with caplog.at_level(logging.WARNING, "ledger.clock"):
        assert world.book.paused is None
    assert "the operator has accepted the clock, which reads" in caplog.text
    reopen(world, machine)
    assert world.submit(world.charge("after", run=SMALL))[0].code.word == "pending"
    machine.now += DAY_MS
    assert world.book.paused is not None
    reopen(world, machine)
    assert world.book.paused is not None, "a restart explains nothing"


def test_a_jump_while_the_service_was_down_is_one(here: tuple[StoredWorld, MachineClock]) -> None:
    """Within a boot the file says so; after another boot a clock may be some days ahead of the newest entry."""
    world, machine = here
    world.book.close()
    machine.advance(30 * DAY_MS)
    world.book = world.open(watch=machine.watch(world.path.with_suffix(".clock")))
    assert world.book.paused is None, "the machine was up all the time"
    world.book.close()
    machine.restart(ABSENCE_MS_MAX - 30 * DAY_MS)
    world.book = world.open(watch=machine.watch(world.path.with_suffix(".clock")))
    assert world.book.paused is None
    world.book.close()
    machine.restart(HOUR_MS)
    world.book = world.open(watch=machine.watch(world.path.with_suffix(".clock")))
    with pytest.raises(BookPaused, match="and nothing shows that it is right"):
        world.submit(world.charge("after", run=SMALL))
    world.book.witnessed(machine.now)
    assert world.book.paused is not None
    machine.advance(AGREEMENT_MS)
    assert world.book.paused is None


def test_development_warns_and_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once for each jump."""
    with watched(tmp_path, pauses=False) as (world, machine):
        machine.now += DAY_MS
        with caplog.at_level(logging.WARNING, "ledger.clock"):
            assert world.submit(world.charge("after", run=SMALL))[0].code.word == "pending"
            assert world.submit(world.charge("again", run=SMALL))[0].code.word == "pending"
        assert caplog.text.count("a service in development goes on") == 1


def test_a_log_ahead_of_the_clock_is_said_at_start(
    here: tuple[StoredWorld, MachineClock], caplog: pytest.LogCaptureFixture
) -> None:
    """With how far, and what to do."""
    world, machine = here
    machine.restart(-DAY_MS)
    with caplog.at_level(logging.WARNING, "ledger.clock"):
        reopen(world, machine)
    assert "the newest entry is of 2026-" in caplog.text
    assert "1 day, 0:00:00 ahead of the clock" in caplog.text
    assert world.submit(world.charge("after", run=SMALL, deadline=NOW + HOUR_MS))[0].code.word == "pending"


def test_a_log_ahead_of_a_witness_is_said_at_start(
    here: tuple[StoredWorld, MachineClock], caplog: pytest.LogCaptureFixture
) -> None:
    """And so is a clock that is behind the witness's; a line that no key made says nothing."""
    world, machine = here
    witness = Cosigner("witness.example/w1", 7)
    with engine_at(world.url) as engine, engine.begin() as connection:
        log = Log(connection)
        line = witness.line(log.checkpoint, (NOW - DAY_MS) // 1000)
        store_cosignature(connection, log.size, witness.key, line)
    with caplog.at_level(logging.WARNING, "ledger.clock"):
        reopen(world, machine)
    assert "the log was 1 day, 0:00:00 ahead of the time of the witness that cosigned it last" in caplog.text
    caplog.clear()
    machine.restart(-2 * DAY_MS)
    with caplog.at_level(logging.WARNING, "ledger.clock"):
        reopen(world, machine)
    assert "1 day, 0:00:00 behind the time of the newest cosignature" in caplog.text
    assert world.book.paused is None


@pytest.mark.parametrize("seconds", [TIME_MAX // 1000 + 1, NOW * 1_000_000, (1 << 63) - 1])
def test_a_cosignature_after_the_year_9999_keeps_no_book_closed(
    here: tuple[StoredWorld, MachineClock], caplog: pytest.LogCaptureFixture, seconds: int
) -> None:
    """An earlier program stored that of a witness that counts nanoseconds; it stays, and is compared with nothing."""
    world, machine = here
    witness = Cosigner("witness.example/w1", 7)
    with engine_at(world.url) as engine, engine.begin() as connection:
        log = Log(connection)
        store_cosignature(connection, log.size, witness.key, witness.line(log.checkpoint, seconds))
    with caplog.at_level(logging.WARNING, "ledger.clock"):
        reopen(world, machine)
    assert caplog.messages == ["the newest cosignature states a time after the year 9999: nothing is compared with it"]
    assert world.submit(world.charge("after", run=SMALL))[0].code.word == "pending"


def test_a_paused_writer_lapses_nothing_when_it_is_idle(tmp_path: Path) -> None:
    """The writer's own wake-up is what is watched: it reads the clock again and again, and records nothing."""
    with open_world(tmp_path) as world:
        machine = MachineClock(NOW)
        read = threading.Semaphore(0)

        def boottime() -> int:
            read.release()
            return machine.boottime

        world.clock = machine
        world.book.close()
        world.book = world.open(watch=ClockWatch(None, True, boottime, machine.boot))  # noqa: FBT003 - pauses
        world.submit(world.charge("soon", run=SMALL, deadline=NOW + 200))
        size = world.size
        machine.now += DAY_MS
        # It sleeps until the deadline, finds it passed by a clock that jumped, and looks again a second later.
        while read.acquire(blocking=False):
            pass
        for _ in range(4):
            assert read.acquire(timeout=30)
        assert world.size == size
        machine.now -= DAY_MS
        machine.advance(201)
        assert world.submit(world.charge("after", run=SMALL))[0].code.word == "pending"
        assert [one.kind for one in entries(world.book)[-2:]] == ["lapse", "charge"]


def test_this_machine_s_own_clocks(tmp_path: Path) -> None:
    """They are read, and what the command writes is what a service accepts."""
    reading = accept(tmp_path / "clock")
    assert read_reading(tmp_path / "clock") == reading
    assert (reading.boot_id, abs(reading.wall - unix_ms()) < MINUTE_MS) == (boot_id(), True)
    assert 0 < reading.boottime <= boottime_ms()
    clock = WallClock(lambda: unix_ms() + DAY_MS, ClockWatch(tmp_path / "clock"))
    clock.begin(0)
    assert clock.paused is not None
    (tmp_path / "clock").write_text("no reading")
    assert read_reading(tmp_path / "clock") is None


_STEP = st.one_of(
    st.tuples(st.just("advance"), st.integers(0, 40 * DAY_MS)),
    st.tuples(st.just("step"), st.integers(-20 * DAY_MS, 20 * DAY_MS)),
    st.tuples(st.just("step"), st.integers(-2 * JUMP_MS_MAX, 2 * JUMP_MS_MAX)),
    st.tuples(st.just("right"), st.just(0)),
    st.tuples(st.just("charge"), st.integers(1, 30 * DAY_MS)),
    st.tuples(st.just("reopen"), st.just(0)),
    st.tuples(st.just("witness"), st.just(0)),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(_STEP, min_size=5, max_size=25))
def test_any_jumps_steps_and_suspends(steps: list[tuple[str, int]]) -> None:
    """Times never decrease, none is further from the truth than the bound, and no charge lapses before its time."""
    with TemporaryDirectory() as name, watched(Path(name)) as (world, machine):
        true = NOW
        allowed = least = JUMP_MS_MAX
        for number, (what, ms) in enumerate(steps):
            if what == "advance":
                machine.advance(ms)
                true += ms
                allowed += ms * DRIFT_PPM_MAX // 1_000_000 + 1
            elif what == "step":
                machine.now += ms
            elif what == "right":
                machine.now = true
            elif what == "reopen":
                reopen(world, machine)
            elif what == "witness":
                world.book.witnessed(true)
                world.book.paused  # noqa: B018 - the first of two readings
                machine.advance(AGREEMENT_MS)
                true += AGREEMENT_MS
                if world.book.paused is None:
                    # A clock that a witness confirms may be off by the bound as well.
                    allowed, least = allowed + JUMP_MS_MAX, 0
            else:
                # The deadline is as right as the clock: what matters here is when it passes.
                try:
                    world.submit(world.charge(f"run-{number}", run=SMALL, deadline=max(machine.now, true) + ms))
                except BookPaused:
                    assert abs(machine.now - true) >= least
        found = entries(world.book)
        assert [one.time for one in found] == sorted(one.time for one in found)
        assert all(one.time <= true + allowed for one in found)
        deadlines = {one.id: one.request["deadline"] for one in found if one.kind == "charge"}
        for lapse in (one for one in found if one.kind == "lapse"):
            deadline = deadlines[str(lapse.request["charge"])]
            assert isinstance(deadline, int)
            assert deadline < lapse.time <= true + allowed
