"""Statements of state: when the book makes them, what they say, and that a wrong one is found out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from client.keys.signer import Signer
from ledger.audit.replay import verify_book
from ledger.book.state import state_statements
from ledger.book.state.state_statements import WAIT_MS
from ledger.commands.context import PendingCommand
from ledger.commands.entry import Entry
from ledger.commands.governance import state_statement
from ledger.commands.governance.state_statement import DISTANCE_MAX, STATEMENT
from ledger.crypto import detached_jws
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.decision import Rejected
from ledger.domain.memory_state import MemoryState
from ledger.state_tree import journal
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate
from tests.factories.documents import SMALL
from tests.factories.people import BANK_A, BANK_B, LOG, LOG_KEY, SRO, CleanRoom, private_key
from tests.factories.stored import StoredWorld, no_step, open_world
from tests.ledger.audit.forge import broken, entries_of, forged

STATED: Final = "statement"
LIMIT_S: Final = 30


def stating(world: StoredWorld) -> StoredWorld:
    """The same book, which states its state from now on."""
    world.book.close()
    world.book = world.open(statements=True)
    return world


def wake(world: StoredWorld) -> None:
    """Have the writer look for what is due."""
    world.book._writer.send(()).result()  # noqa: SLF001 - it looks by itself, but by the real clock


def statements(world: StoredWorld) -> list[tuple[int, int]]:
    """Where each stands, and the size that it describes."""
    with world.book.read() as facts:
        entries = [Entry.parse(one) for one in facts]
    return [(index, int(str(one.request["size"]))) for index, one in enumerate(entries) if one.kind == STATED]


def close(world: StoredWorld) -> list[tuple[int, int]]:
    """Close the book; the statements that it has then."""
    world.book.close()
    world.book = world.open()
    return statements(world)


def test_closing_states_what_changed_and_no_more(world: StoredWorld) -> None:
    """One statement of the last state; a book that only states itself grows no more."""
    size = world.size
    stating(world)
    assert close(world) == [(size, size)]
    for _ in range(2):
        stating(world)
        wake(world)
        assert close(world) == [(size, size)]
    stating(world).submit(world.charge("run-1"))
    assert close(world) == [(size, size), (size + 2, size + 2)]
    verify_book(world.url, LOG, no_step, gate=gate)


def test_a_change_is_stated_within_a_minute(world: StoredWorld) -> None:
    """Not at once; and what is due is found without a command."""
    size = world.size
    world.clock.now += WAIT_MS
    stating(world)
    while not statements(world):
        wake(world)
    world.submit(world.charge("run-1"))
    world.clock.now += WAIT_MS - 1
    wake(world)
    assert len(statements(world)) == 1
    world.clock.now += 1
    while len(statements(world)) == 1:
        wake(world)
    assert statements(world) == [(size, size), (size + 2, size + 2)]
    wake(world)
    assert close(world) == [(size, size), (size + 2, size + 2)]


def test_many_entries_are_stated_on_the_way(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """However few milliseconds pass between them, a state is stated after so many entries."""
    monkeypatch.setattr(state_statements, "EVERY", 4)
    stating(world).submit(*(world.command(BANK_A, "void", {"charge": "run"}, f"no-{n}") for n in range(3)))
    commands = [*(world.charge(f"run-{n}") for n in range(8)), *(world.settle(f"run-{n}", 1) for n in range(8))]
    for first in range(0, len(commands), 4):
        before = len(statements(world))
        world.submit(*commands[first : first + 4])
        while len(statements(world)) == before:
            wake(world)
    found = close(world)
    sizes = [size for _, size in found]
    places = [0, *(place for place, _ in found)]
    assert len(found) >= len(commands) // 4
    assert sizes == sorted({*sizes})
    assert all(later - earlier <= 8 + 1 for earlier, later in pairwise(places[1:]))
    verify_book(world.url, LOG, no_step, gate=gate)
    verify_book(world.url, LOG, no_step, decisions=False)


@pytest.mark.parametrize("calls", [1, 12])
def test_no_commit_waits_for_a_state_that_is_being_hashed(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """Not if more entries come meanwhile than a statement may lie behind: then a later state is stated instead."""
    for module in (state_statements, state_statement, journal):
        monkeypatch.setattr(module, "DISTANCE_MAX", 8)
    stating(world)
    hashing, held = world.book._writer._state.statements._hashing, threading.Event()  # noqa: SLF001 - held up
    hashing.submit(held.wait)
    # Due only now: the writer looks by itself, and would have begun to hash.
    monkeypatch.setattr(state_statements, "EVERY", 2)
    world.clock.now += WAIT_MS
    # A writer that waits would do so for ever.
    late = threading.Timer(LIMIT_S, held.set)
    late.start()
    size, commands = world.size, [world.charge(f"run-{n}", run=SMALL) for n in range(12)]
    for first in range(0, 12, 12 // calls):
        assert {one.code.word for one in world.submit(*commands[first : first + 12 // calls])} == {"pending"}
    assert (held.is_set(), statements(world), world.size) == (False, [], size + 12)
    late.cancel()
    held.set()
    while not statements(world):
        wake(world)
    ((place, stated),) = statements(world)
    assert size + 12 == stated <= place <= stated + 8
    close(world)
    verify_book(world.url, LOG, no_step, gate=gate)


def test_a_state_that_was_folded_anew_is_stated_as_replay_makes_it(world: StoredWorld) -> None:
    """With charges that were settled and announced before, in the same fold and while the book was open."""
    model: c.Object = {"charge": "run-1", "model": "0" * 64}
    world.submit(world.charge("run-1"), world.charge("run-2"), world.charge("run-3", recipients=[BANK_B]))
    world.submit(world.release("run-1"), world.void("run-2"))
    world.submit(world.settle("run-1", 40))
    stating(world)
    world.submit(world.command(BANK_A, "release_notice", model, "notice-1", CleanRoom("run-1").signer))
    assert len(close(world)) == 1
    stating(world).submit(world.merger(), world.charge("run-5", BANK_B))
    assert len(close(world)) == 2
    verify_book(world.url, LOG, no_step, gate=gate)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[StoredWorld]:
    """A world in a database that several processes may open."""
    with open_world(tmp_path, "postgresql") as found:
        yield found


def test_two_processes_follow_each_others_statements(shared: StoredWorld) -> None:
    """The one that has the lock states; the other takes it over, checks its root, and does not repeat it."""
    world = stating(shared)
    with_other = world.open(statements=True)
    try:
        world.submit(world.charge("run-1"))
        mine, world.book = world.book, with_other
        world.submit(world.charge("run-2"))
        world.clock.now += WAIT_MS
        while not statements(world):
            wake(world)
        ((place, size),) = statements(world)
        assert with_other._writer._state.statements.newest(world.size) is not None  # noqa: SLF001 - in memory alone
        world.book = mine
        while mine._writer._state.statements.newest(world.size) is None:  # noqa: SLF001
            wake(world)
        assert statements(world) == [(place, size)]
        trees = [one._writer._state.statements.newest(place + 1) for one in (mine, with_other)]  # noqa: SLF001
        assert len({one.tree.root for one in trees if one is not None}) == 1
    finally:
        with_other.close()
    assert close(world) == [(place, size)]


Lie = Callable[[Entry, StoredWorld], Entry]


def _root(entry: Entry, _world: StoredWorld) -> Entry:
    return _stated(entry, root="0" * 64)


def _size(entry: Entry, _world: StoredWorld) -> Entry:
    return _stated(entry, size=int(str(entry.request["size"])) - 1)


def _future(entry: Entry, _world: StoredWorld) -> Entry:
    return _stated(entry, size=int(str(entry.request["size"])) + 1)


def _other(entry: Entry, world: StoredWorld) -> Entry:
    return _signed(replace(entry, actor=SRO, key_id=world.signers[SRO].key_id), SRO)


def _unnamed(entry: Entry, _world: StoredWorld) -> Entry:
    return _signed(entry, SRO)


def _stated(entry: Entry, **changes: c.Json) -> Entry:
    return _signed(replace(entry, body={**entry.body, "request": {**entry.request, **changes}}))


def _signed(entry: Entry, by: str = "") -> Entry:
    key = private_key(by) if by else LOG_KEY
    return replace(entry, signature=detached_jws.sign(key, replace(entry).command.to_bytes()))


@pytest.mark.parametrize(
    ("lie", "wrong"),
    [
        (_root, "root: is not that of the state"),
        (_size, "root: is not that of the state"),
        (_future, "body.size: must be one of the last"),
        (_other, "not the key that signed"),
        (_unnamed, "signature"),
    ],
)
def test_a_wrong_statement_is_found_out(tmp_path: Path, lie: Lie, wrong: str) -> None:
    """Even where the log's key signs it, and every checkpoint over it anew."""
    with open_world(tmp_path) as world:
        stating(world).submit(world.charge("run-1"))
        world.book.close()
        entries = entries_of(world.path)
        lied = [lie(one, world) if one.kind == STATED else one for one in entries]
        found = broken(forged(world.path, tmp_path / "forged", lied, LOG_KEY))
    assert (found.index, wrong in str(found)) == (len(entries) - 1, True), str(found)


def test_a_statement_of_long_ago_is_found_out(tmp_path: Path) -> None:
    """It lies too far behind, though its root was right."""
    with open_world(tmp_path) as world:
        world.book.close()
        entries = entries_of(world.path)
        size = len(entries)
        root = "0" * 64
        request: c.Object = {"size": size, "root": root}
        key_id = detached_jws.public_key(LOG_KEY).thumbprint
        body: c.Object = {"outcome": "permitted", "request": request}
        made = Entry(STATED, "late", entries[-1].time, LEDGER_ACTOR, key_id, body, "")
        context = STATEMENT.context(MemoryState(), _pending(made), made.time, size + DISTANCE_MAX + 1, gate)
    with pytest.raises(Rejected, match=f"one of the last {DISTANCE_MAX} sizes"):
        STATEMENT.decide(context)


def _pending(entry: Entry) -> PendingCommand:
    return PendingCommand(entry.command, entry.command_body, entry.command.to_bytes(), entry.signature)


def test_no_client_states_anything(world: StoredWorld) -> None:
    """A statement is the book's own entry, whoever signs it and under whatever name."""
    body: c.Object = {"size": world.size, "root": "0" * 64}
    for actor, signer in ((SRO, world.signers[SRO]), (LEDGER_ACTOR, Signer(LOG_KEY))):
        outcome = world.send(actor, STATED, body, "mine", signer)
        assert (outcome.code.word, outcome.field, outcome.index) == ("not_authorised", "kind", None)
