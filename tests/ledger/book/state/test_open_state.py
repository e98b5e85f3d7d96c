"""What the writer keeps of the state answers as the whole state does, and does not grow with what is settled."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from sqlalchemy import create_engine

from ledger.book.book import BookStopped
from ledger.book.writer_state import WriterState
from ledger.commands.apply import apply
from ledger.commands.entry import Entry
from ledger.commands.entry_reader import read_entry
from ledger.domain.facts import Span
from ledger.domain.memory_state import MemoryState
from ledger.domain.organisation_graph import END
from ledger.organisation_lineage.exposure import known_spans, subtract
from ledger.store.database_state import PROJECTIONS, DatabaseState, write_state
from ledger.store.documents import StoredDocuments
from ledger.store.engine import ShortReads
from ledger.store.tables import metadata
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION, SMALL
from tests.factories.lease_tables import lease_id
from tests.factories.people import BANK_A, BANK_B, HOUR_MS, LOG, SRO, CleanRoom
from tests.factories.stored import StoredWorld
from tests.ledger.book.governed import announce, leave, opening, run, words
from tests.ledger.organisation_lineage.test_lineage_graph import KINDS, Play, events
from tests.ledger.store.test_postgresql import execute

RUNS: Final = ("transfer", "publication", "register", "collusion", *KINDS)


def same(state: WriterState, whole: MemoryState) -> None:
    """Every part, every charge and key by name, and every sum that anybody may ask for."""
    facts = state.facts
    facts.begin()
    for name in set(PROJECTIONS) - {"charges", "keys"}:
        assert getattr(facts, name) == getattr(whole, name), name
    assert {name: facts.charges.get(name) for name in whole.charges} == whole.charges
    assert {name: facts.keys.get(name) for name in whole.keys} == whole.keys
    assert "no such" not in facts.charges
    assert "no such" not in facts.keys
    for node in whole.nodes:
        spans = known_spans(whole.nodes, node, END)
        others = [subtract(known_spans(whole.nodes, other, END), spans) for other in whole.nodes]
        for asked in (spans, *others):
            assert facts.runs(asked) == whole.runs(asked)
            assert list(facts.exposures(asked)) == list(whole.exposures(asked))


def same_rows(whole: MemoryState) -> None:
    """The sums that a database makes of its rows, counting equal ones, are those over each charge by itself."""
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        metadata.create_all(connection)
        write_state(connection, whole)
        stored = DatabaseState(connection)
        for node in whole.nodes:
            spans = known_spans(whole.nodes, node, END)
            assert list(stored.exposures(spans)) == list(whole.exposures(spans))
    engine.dispose()


def kept(state: WriterState) -> int:
    """How many records, names and sums are in memory, but for the index of names."""
    parts = sum(map(len, state.facts.in_memory_parts().values()))
    buckets = sum(len(one.sums) for one in state.facts.sums._authors.values())  # noqa: SLF001 - what is held
    read = len(state._entries._appended) + len(state._entries._found)  # noqa: SLF001
    return parts + buckets + read + len(state._deadlines)  # noqa: SLF001


@settings(deadline=None, max_examples=60)
@given(events(*RUNS))
@example([("charge", 0, 0, 1), ("charge", 0, 0, 0), ("post", 0, 0, 1), ("transfer", 0, 1, 0), ("merge", 0, 1, 2)])
def test_what_is_settled_answers_as_if_it_had_stayed(sequence: list[tuple[str, int, int, int]]) -> None:
    """After every event of a lineage: runs that name recipients, settlements, mergers, collusion."""
    play, state = Play(), WriterState(LOG)
    for kind, *numbers in sequence:
        play.event(kind, *numbers)
        for data in play.world.log[state.size :]:
            # A lapse moves the world's clock on, and then back.
            state.time = 0
            state.append(read_entry(data), data)
        state.take_changes()
        pending = {name for name, one in play.world.state.charges.items() if one.steps_posted is None}
        assert set(state.facts.open_charges.open) <= pending
    same(state, play.world.state)
    same_rows(play.world.state)


def test_a_span_that_ends_between_cuts_is_refused() -> None:
    """Sums are exact or not given at all."""
    play, state = Play(), WriterState(LOG)
    for number in (0, 3, 0):
        play.event("charge", number, 0, 0)
    for data in play.world.log:
        state.append(read_entry(data), data)
    first = next(iter(play.world.state.charges.values()))
    with pytest.raises(AssertionError, match=f"no span of charges begins or ends at {first.index + 1}"):
        state.facts.runs([Span(first.author, 0, first.index + 1)])


def writer(world: StoredWorld) -> WriterState:
    """The state of an open book, whose writer rests; it reads as for a new batch."""
    pinned = world.book._writer.pin().result()  # noqa: SLF001 - no commit is under way then
    assert pinned is not None
    pinned.connection.close()
    state = world.book._writer._state  # noqa: SLF001 - what is held
    state.begin(ShortReads(world.book._reads))  # noqa: SLF001
    return state


def whole(world: StoredWorld) -> MemoryState:
    """Everything in memory, made of the log."""
    with world.book.read() as facts:
        state = MemoryState(documents=StoredDocuments(facts.connection))
        for index, data in enumerate(facts):
            apply(state, Entry.parse(data), index)
    return state


def lifecycle(world: StoredWorld) -> None:
    """Runs that end in every way; one goes on to its notices, its release and an opening."""
    run(world, "posted", PARTITION)
    assert announce(world, "posted").code.word == "permitted"
    assert leave(world, "posted").code.word == "permitted"
    assert opening(world, "posted", "inside").code.word == "permitted"
    world.submit(world.charge("voided", BANK_B, SMALL), world.void("voided", BANK_B))
    world.submit(world.charge("lapsed", run=SMALL))
    world.clock.now += HOUR_MS + 1
    world.submit(world.charge("open", run=SMALL, recipients=[BANK_B]))
    leased(world, "leasing")
    leased(world, "leased")
    body: c.Object = {"charge": "leased", "generation": 2, "lease": lease_id("leased"), "model": "ab" * 32, "steps": 1}
    assert world.send(BANK_A, "post", body, "post-leased", CleanRoom("leased").signer).code.word == "posted"


def leased(world: StoredWorld, name: str) -> None:
    """A pending run whose one step is leased to its second generation."""
    room, nonce = CleanRoom(name), world.nonce(name)
    taken: c.Object = {"charge": name, "evidence": world.evidence(name, room, SMALL, nonce), "nonce": nonce}
    step: c.Object = {"charge": name, "first": 1, "generation": 2, "last": 1, "state": "ab" * 32}
    outcomes = world.submit(
        world.charge(name, run=SMALL, step_leases=True),
        world.release(name, SMALL),
        world.command(BANK_A, "run_generation", taken, f"again-{name}", room.signer),
        world.command(BANK_A, "step_lease", step, lease_id(name), room.signer),
    )
    assert words(outcomes) == ["pending", *["permitted"] * 3], outcomes


def test_commands_that_name_what_is_settled_get_the_answers_of_before(world: StoredWorld) -> None:
    """Also after the book was opened anew; and the state is what the log makes it."""
    lifecycle(world)
    for _ in range(2):
        same(writer(world), whole(world))
        number = world.size
        room = CleanRoom("posted").signer
        asked = [
            world.command(BANK_A, "post", {"charge": "posted", "steps": 1}, f"again-{number}", room),
            world.void("voided", BANK_B),
            world.command(BANK_B, "void", {"charge": "voided"}, f"void-{number}"),
            world.command(BANK_A, "void", {"charge": "lapsed"}, f"void-lapsed-{number}"),
            world.command(BANK_A, "void", {"charge": "none"}, f"none-{number}"),
            world.charge(f"key-{number}", clean_room=CleanRoom("voided").to_json()),
            world.charge(f"base-{number}", BANK_B, SMALL, base=["posted"]),
        ]
        done = world.submit(*asked)
        assert [one.code.word for one in done] == [
            "conflict",
            "voided",
            "conflict",
            "conflict",
            "not_found",
            "conflict",
            "conflict",
        ], [one.detail for one in done]
        assert [one.repeated for one in done] == [False, True, *[False] * 5]
        assert done[0].detail == "charge posted is posted already"
        assert done[3].detail == "charge lapsed is voided already"
        assert done[6].detail == "this lineage does not know charge posted: enter the transfer of its model first"
        world.reopen()
    assert opening(world, "posted", "inside").code.word == "conflict"
    handed = world.send(SRO, "transfer", {"charge": "posted", "recipient": BANK_B}, "handed")
    assert handed.code.word == "permitted"
    assert words([announce(world, "posted")]) == ["conflict"]
    same(writer(world), whole(world))


def test_memory_does_not_grow_with_what_is_settled(world: StoredWorld) -> None:
    """But for the index of names, at 16 bytes an entry: counted, not weighed."""
    counts = []
    for first in (0, 20, 40):
        names = [f"run-{n}" for n in range(first, first + 20)]
        world.submit(*(world.charge(name, run=SMALL) for name in names))
        world.submit(*(world.settle(name, 1) for name in names))
        # Names are held until the commit is known; the next batch lets them go.
        world.submit(world.command(BANK_A, "void", {"charge": "none"}, f"none-{first}"))
        counts.append(kept(writer(world)) - len(writer(world)._deadlines))  # noqa: SLF001 - bounded below
    assert counts[0] == counts[1] == counts[2]
    before = kept(writer(world))
    world.reopen()
    assert kept(writer(world)) <= before


@pytest.mark.damages
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE charge SET state = 'pending', steps_posted = NULL",
        "UPDATE charge SET entered = entered + 1, author = 0, key_id = 'x'",
        "UPDATE signing_key SET charge = NULL",
        "UPDATE signing_key SET owner = 'did:web:thief.example', charge = NULL WHERE charge IS NOT NULL",
    ],
)
def test_a_changed_row_changes_no_answer_about_what_is_settled(world: StoredWorld, statement: str) -> None:
    """A charge that is posted is not posted again, and its key is its clean room's."""
    run(world, "posted", PARTITION)
    execute(world.url, statement)
    room = CleanRoom("posted").signer
    again = world.command(BANK_A, "post", {"charge": "posted", "steps": 1}, "again", room)
    assert world.submit(again)[0].detail == "charge posted is posted already"
    reused = world.charge("reused", clean_room=CleanRoom("posted").to_json())
    assert world.submit(reused)[0].field == "body.clean_room.signing"


@pytest.mark.damages
def test_rows_of_charges_that_are_gone_change_no_answer(world: StoredWorld) -> None:
    """Nor does an index that lost them."""
    if world.url.startswith("postgresql"):
        return
    run(world, "posted", PARTITION)
    execute(world.url, "DELETE FROM charge")
    execute(world.url, "DELETE FROM signing_key")
    room = CleanRoom("posted").signer
    again = world.command(BANK_A, "post", {"charge": "posted", "steps": 1}, "again", room)
    assert world.submit(again)[0].detail == "charge posted is posted already"


@pytest.mark.damages
@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("DELETE FROM entry WHERE id = 'post-posted'", "entry 12: is missing"),
        ("DELETE FROM tree_node WHERE level = 0", "a node of the tree is missing"),
        (
            "UPDATE entry SET data = (SELECT data FROM entry WHERE id = 'release-posted') WHERE id = 'post-posted'",
            "entry 12: its bytes, or the nodes of the tree above it, were changed",
        ),
    ],
)
def test_an_entry_that_was_changed_stops_the_writer(world: StoredWorld, script: str, told: str) -> None:
    """What became of a charge is not known any more: it is not posted again, whatever else there is."""
    if world.url.startswith("postgresql"):
        return
    run(world, "posted", PARTITION)
    with closing(sqlite3.connect(world.path)) as connection, connection:
        triggers: Any = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
        connection.executescript("".join(f"DROP TRIGGER {name};" for (name,) in triggers) + script)
    again = world.command(BANK_A, "post", {"charge": "posted", "steps": 1}, "again", CleanRoom("posted").signer)
    with pytest.raises(BookStopped, match=told):
        world.submit(again)
