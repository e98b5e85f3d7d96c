"""Reading commands before they are decided."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledger.book.prepare import TOGETHER_MIN, SignatureChecks
from ledger.commands.context import PendingCommand
from ledger.commands.decide import verify_signer
from ledger.commands.registry import read_command
from ledger.domain.decision import Rejected
from tests.bench.grown import TINY
from tests.factories.memory import LOG_PUBLIC, MemoryWorld
from tests.factories.people import BANK_A, BANK_B


@pytest.fixture
def world() -> MemoryWorld:
    """A founded book in memory."""
    made = MemoryWorld()
    made.found()
    return made


@pytest.fixture
def checks() -> Iterator[SignatureChecks]:
    """Those of a book."""
    made = SignatureChecks(LOG_PUBLIC.x)
    yield made
    made.close()


def answer(world: MemoryWorld, pending: PendingCommand) -> str:
    """The key that a command verifies with, or why it does not."""
    try:
        return verify_signer(world.state, pending, LOG_PUBLIC.x).x
    except Rejected as refusal:
        return f"{refusal.decided}"


def test_two_threads_say_of_each_signature_what_one_says(world: MemoryWorld, checks: SignatureChecks) -> None:
    """Right ones, ones over other bytes, ones of another's key and ones that are none, in one call."""
    sent = [world.charge(f"run-{number}", (BANK_A, BANK_B)[number % 2], TINY) for number in range(24)]
    whole = [read_command(one.raw, one.signature) for one in sent]
    mixed = [
        whole[0],
        whole[1]._replace(signature=whole[3].signature),
        whole[2]._replace(signature=whole[5].signature),
        whole[4]._replace(signature="none"),
        whole[6]._replace(command=read_command(sent[7].raw).command),
        *whole[8:],
    ]
    checked = [one for one in checks.verify(world.state, mixed) if isinstance(one, PendingCommand)]
    assert [answer(world, one) for one in checked] == [answer(world, one) for one in mixed]
    assert [bool(one.verified_by) for one in checked] == [place not in range(1, 5) for place in range(len(mixed))]


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


def test_few_commands_are_left_to_whoever_decides(world: MemoryWorld, checks: SignatureChecks) -> None:
    """To wake a thread takes longer than to verify a few."""
    sent = [world.charge(f"run-{number}", BANK_A, TINY) for number in range(TOGETHER_MIN - 1)]
    few = [read_command(one.raw, one.signature) for one in sent]
    assert checks.verify(world.state, few) == few
