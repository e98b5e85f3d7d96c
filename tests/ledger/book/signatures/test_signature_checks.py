"""Signatures of many commands, with another process that verifies some of them and without."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import product

import pytest
from msgspec import structs

from ledger.book.signatures import signature_process
from ledger.book.signatures.signature_checks import STARTED_AFTER, TOGETHER_MIN, SignatureChecks
from ledger.book.signatures.signature_process import SignatureProcess
from ledger.commands.context import PendingCommand
from ledger.commands.decide import verify_signer
from ledger.commands.registry import read_command
from ledger.domain.decision import Rejected
from tests.bench.grown import TINY
from tests.factories.memory import LOG_PUBLIC, MemoryWorld
from tests.factories.people import BANK_A, BANK_B, LOG_KEY


@pytest.fixture
def world() -> MemoryWorld:
    """A founded book in memory."""
    made = MemoryWorld()
    made.found()
    return made


@pytest.fixture(scope="module")
def started() -> Iterator[SignatureProcess]:
    """A process that is ready."""
    made = SignatureProcess()
    assert made.has_answered(60)
    assert made.is_ready
    yield made
    made.close()


@pytest.fixture(params=["alone", "two processes"])
def checks(request: pytest.FixtureRequest, started: SignatureProcess) -> SignatureChecks:
    """Those of a book."""
    return SignatureChecks(LOG_PUBLIC.x, started if request.param == "two processes" else None)


def answer(world: MemoryWorld, pending: PendingCommand) -> str:
    """The key that a command verifies with, or why it does not."""
    try:
        return verify_signer(world.state, pending, LOG_PUBLIC.x).x
    except Rejected as refusal:
        return f"{refusal.decided}"


def mixed(world: MemoryWorld) -> list[PendingCommand]:
    """Right ones, ones over other bytes, ones of another's key and ones that are none, in both halves."""
    sent = [world.charge(f"run-{number}", (BANK_A, BANK_B)[number % 2], TINY) for number in range(24)]
    whole = [read_command(one.raw, one.signature) for one in sent]
    wrong = [
        structs.replace(whole[1], signature=whole[3].signature),
        structs.replace(whole[2], signature=whole[5].signature),
        structs.replace(whole[4], signature="none"),
        structs.replace(whole[6], command=read_command(sent[7].raw).command),
    ]
    return [whole[0], wrong[0], *whole[8:16], *wrong, *whole[16:], wrong[0]]


def test_each_signature_is_judged_as_alone(world: MemoryWorld, checks: SignatureChecks) -> None:
    """Whoever verifies it, and whether it was sent ahead."""
    commands = mixed(world)
    expected = [answer(world, one) for one in commands]
    right = [len(one) == len(LOG_PUBLIC.x) for one in expected]
    for ahead in (False, True):
        if ahead and checks.can_verify_ahead:
            checks.verify_ahead(world.state, commands)
        checked = [one for one in checks.verify(world.state, commands) if isinstance(one, PendingCommand)]
        assert [answer(world, one) for one in checked] == expected
        assert [bool(one.verified_by) for one in checked] == right


def test_what_the_process_does_not_confirm_is_verified_here(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed, or stalls, with commands sent to it: nothing is taken for verified, and nothing waits for long."""
    commands = mixed(world)
    expected = [answer(world, one) for one in commands]
    monkeypatch.setattr(signature_process, "ANSWER_S", 0.1)
    for end in (signal.SIGKILL, signal.SIGSTOP):
        process = SignatureProcess()
        assert process.has_answered(60)
        checks = SignatureChecks(LOG_PUBLIC.x, process)
        assert checks.can_verify_ahead
        os.kill(process.pid, end)
        checks.verify_ahead(world.state, commands)
        checked = [one for one in checks.verify(world.state, commands) if isinstance(one, PendingCommand)]
        assert [answer(world, one) for one in checked] == expected
        assert process.has_ended
        assert not checks.can_verify_ahead
        checks.close()


def test_what_is_decided_meanwhile_is_judged_as_alone(world: MemoryWorld, started: SignatureProcess) -> None:
    """Before the process has answered, when it has answered in part, and when it has answered all; in any order.

    Sent at once, and sent in pieces.
    """
    checks = SignatureChecks(LOG_PUBLIC.x, started)
    for waits, first in product((False, True), (TOGETHER_MIN, 2 * TOGETHER_MIN, None)):
        commands = mixed(world)
        expected = [answer(world, one) for one in commands]
        assert checks.can_verify_ahead
        checks.begin(world.state, commands[:first])
        if first is not None:
            checks.begin(world.state, commands[first:], goes_on=True)
        if waits:
            assert len(started.receive()) >= TOGETHER_MIN
        else:
            # What is sent next makes it forget these, if it has answered already.
            checks.begin(world.state, mixed(world))
        noted = [checks.noted(one) for one in reversed(commands)][::-1]
        assert [answer(world, one) for one in noted] == expected
        assert all(answer(world, one) == one.verified_by for one in noted if one.verified_by)
        if waits:
            assert sum(bool(one.verified_by) for one in noted) >= len(commands) // 2
        started.receive()


def test_a_process_that_is_silent_confirms_nothing_and_is_ended(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing waits for it, and it is asked no more."""
    monkeypatch.setattr(signature_process, "ANSWER_S", 0.0)
    commands = mixed(world)
    process = SignatureProcess()
    assert process.has_answered(60)
    checks = SignatureChecks(LOG_PUBLIC.x, process)
    assert checks.can_verify_ahead
    os.kill(process.pid, signal.SIGSTOP)
    checks.begin(world.state, commands)
    assert not any(checks.noted(one).verified_by for one in commands)
    checks.begin(world.state, mixed(world))
    assert process.has_ended
    assert not any(checks.noted(one).verified_by for one in commands)


def test_a_request_is_no_longer_than_the_pipe(started: SignatureProcess) -> None:
    """What has no room in it is left to the caller, so that sending never waits."""
    key, message = LOG_KEY.public_key().public_bytes_raw(), bytes(60_000)
    check = key, LOG_KEY.sign(message), message
    assert started.is_ready
    assert started.send([check] * 20) == 17
    assert started.receive() == [True] * 17
    assert started.send([(key, bytes(64), b""), check, (key, bytes(63), b"")]) == 2
    assert started.receive() == [False, True]
    assert started.send([check] * 10) == 10
    assert started.send_more([check] * 10) == 7
    assert started.send_more([(key, bytes(64), b"")]) == 1
    assert started.receive() == [True] * 17 + [False]


def test_a_process_that_stands_still_is_not_waited_for() -> None:
    """Its pipe is full by pages, before as many bytes are in it: what has no room ends it."""
    key, message = LOG_KEY.public_key().public_bytes_raw(), bytes(2_100)
    check = key, LOG_KEY.sign(message), message
    process = SignatureProcess()
    assert process.has_answered(60)
    assert process.is_ready
    os.kill(process.pid, signal.SIGSTOP)
    assert process.send([check] * 8) == 8
    sent = [process.send_more([check] * 8) for _ in range(128)]
    assert sent[-1] < 8
    process.close()
    assert process.has_ended


def test_what_follows_commands_that_were_not_sent_is_not_sent(world: MemoryWorld, started: SignatureProcess) -> None:
    """Few commands are verified here, and so are those read after them."""
    checks = SignatureChecks(LOG_PUBLIC.x, started)
    commands = mixed(world)
    checks.begin(world.state, commands[: TOGETHER_MIN - 2])
    checks.begin(world.state, commands[TOGETHER_MIN:], goes_on=True)
    assert checks.can_verify_ahead
    assert not any(checks.noted(one).verified_by for one in commands)


def test_the_process_is_started_for_a_busy_book(world: MemoryWorld) -> None:
    """After so many commands, however they are divided into pieces; few at a time never start it."""
    checks, sent = SignatureChecks(LOG_PUBLIC.x), 0
    for _ in range(STARTED_AFTER // 2):
        checks.begin(world.state, mixed(world)[: TOGETHER_MIN - 1])
    assert checks.process is None
    while checks.process is None:
        for start in range(0, 16, TOGETHER_MIN):
            some = mixed(world)[start : start + TOGETHER_MIN]
            checks.begin(world.state, some, goes_on=start > 0)
            sent += len(some)
        assert sent <= STARTED_AFTER + 16
    assert sent >= STARTED_AFTER
    assert checks.process.has_answered(60)
    checks.close()


def test_what_was_seen_of_one_key_is_nothing_for_another(world: MemoryWorld, checks: SignatureChecks) -> None:
    """A command that verified with a key that another has replaced meanwhile is verified again."""
    sent = [world.charge(f"run-{number}", BANK_A, TINY) for number in range(TOGETHER_MIN)]
    checked = checks.verify(world.state, [read_command(one.raw, one.signature) for one in sent])
    (other,) = (held for held in world.state.keys.values() if held.owner == BANK_B)
    seen = [one for one in checked if isinstance(one, PendingCommand)]
    assert [answer(world, one) for one in seen] == [one.verified_by for one in seen]
    name = seen[0].command.key_id
    world.state.keys[name] = world.state.keys[name]._replace(x=other.x)
    assert all("another key" in answer(world, one) for one in seen)
