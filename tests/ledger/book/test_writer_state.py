"""The writer decides on what the entries say: a row that somebody changed gives no budget, no key and no contract."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Final

import pytest

from client.keys.signer import Signer
from ledger.audit.replay import VerificationFailed, verify_book
from ledger.book.book import BookStopped, BookUnusable
from ledger.commands.entry import Entry
from ledger.crypto import detached_jws
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION, SMALL
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, LOG, private_key
from tests.factories.stored import StoredWorld, no_step
from tests.ledger.store.test_postgresql import execute

FIT: Final = 8
"""Runs of the default plan that the budget of one lineage holds."""
THIEF: Final = Signer(private_key("a thief"))


def change(world: StoredWorld, statement: str) -> None:
    """What an SQL injection, or a stolen password of the service, can do."""
    execute(world.url, statement)


def fill(world: StoredWorld) -> None:
    """Charge until the budget of the bank is exhausted."""
    words = [one.code.word for one in world.submit(*(world.charge(f"run-{n}") for n in range(FIT + 2)))]
    assert words == ["pending"] * FIT + ["budget_exhausted"] * 2


GIVEN_BACK: Final = (
    "UPDATE account SET posted = 0, pending = 0",
    "DELETE FROM account",
    "UPDATE charge SET state = 'posted', steps_posted = 0",
    "UPDATE partition SET epsilon = '600'",
    'INSERT INTO forgiven SELECT DISTINCT partition, holder, \'{"finite":[],"infinite":[]}\' FROM account',
)


@pytest.mark.damages
@pytest.mark.parametrize("statement", GIVEN_BACK)
def test_a_changed_row_gives_no_budget_back(world: StoredWorld, statement: str) -> None:
    """While the book is open it is without effect; a book that was closed meanwhile is not opened again."""
    fill(world)
    if statement.startswith("DELETE") and world.url.startswith("postgresql"):
        statement = "UPDATE account SET coordinate = coordinate + 1000"
    change(world, statement)
    assert world.submit(world.charge("after"))[0].code.word == "budget_exhausted"
    with pytest.raises(VerificationFailed, match=r"is not what the entries make it|cannot be read"):
        verify_book(world.url, LOG, no_step)
    world.book.close()
    with pytest.raises(BookUnusable, match="the book is not this log's, or was changed: "):
        world.open()


@pytest.mark.damages
def test_a_key_that_no_entry_registered_signs_nothing(world: StoredWorld) -> None:
    """A row in the table of keys is not a registration."""
    key = detached_jws.public_key(private_key("a thief"))
    change(
        world,
        "INSERT INTO signing_key (key_id, owner, x, charge, entered) "  # noqa: S608 - our own values
        f"VALUES ('{key.thumbprint}', '{BANK_A}', '{key.x}', NULL, 3)",
    )
    body: c.Object = {"charge": "none"}
    outcome = world.submit(world.command(BANK_A, "void", body, "void-by-thief", THIEF))[0]
    assert (outcome.code.word, outcome.field) == ("signature_invalid", "key_id")


@pytest.mark.damages
def test_a_retired_partition_stays_retired(world: StoredWorld) -> None:
    """And a contract that was never entered is none."""
    assert world.send(HOSPITAL, "retirement", {"partition": PARTITION}, "retire").code.word == "permitted"
    change(world, "UPDATE partition SET retired = 0")
    assert world.submit(world.charge("after", run=SMALL))[0].code.word == "policy_denied"


@pytest.mark.damages
def test_an_entry_under_no_signed_checkpoint_is_not_applied(world: StoredWorld) -> None:
    """Whoever may append rows has not the log's key: the writer stops, and the book is not opened again."""
    with world.book.read() as facts:
        place = facts.size
        copy = replace(Entry.parse(facts.entry(place - 1)), id="again").to_bytes()
    data = f"x'{copy.hex()}'" if world.url.startswith("sqlite") else f"'\\x{copy.hex()}'"
    change(world, f"INSERT INTO entry VALUES ({place}, 'again', 'contract', {world.clock.now}, {data})")  # noqa: S608
    with pytest.raises(BookStopped, match=r"checkpoint: is of 10 entries, the book has 11 others"):
        world.submit(world.charge("after", run=SMALL))
    world.book.close()
    with pytest.raises(BookUnusable, match="checkpoint: is of 10 entries, the book has 11 others"):
        world.open()


def test_a_repeated_command_gets_what_its_entry_says(world: StoredWorld) -> None:
    """Also after the book was opened anew: the entry is found by the log, and checked against its root."""
    sent = world.charge("run-1", BANK_B, SMALL)
    first = world.submit(sent)[0]
    world.submit(*(world.charge(f"more-{n}", run=SMALL) for n in range(5)))
    world.reopen()
    again = world.submit(sent)[0]
    assert again.repeated
    assert (again.code, again.index, again.body) == (first.code, first.index, first.body)


def test_changed_bytes_of_an_entry_are_not_repeated(world: StoredWorld) -> None:
    """A file changed under an open book, its triggers gone: the answer would be false, so the writer stops."""
    if world.url.startswith("postgresql"):
        return
    sent = world.charge("run-1", run=SMALL)
    world.submit(sent)
    with closing(sqlite3.connect(world.path)) as connection, connection:
        connection.execute("DROP TRIGGER entry_no_update")
        connection.execute(
            "UPDATE entry SET data = CAST(replace(CAST(data AS TEXT), '\"pending\"', '\"permitted\"') AS BLOB) "
            "WHERE id = 'run-1'"
        )
    with pytest.raises(BookStopped, match=r"entry 10: its bytes, or the nodes of the tree above it, were changed"):
        world.submit(sent)


def edit(world: StoredWorld, statement: str) -> None:
    """Change what triggers guard, as the owner of the file can."""
    with closing(sqlite3.connect(world.path)) as connection, connection:
        for trigger in ("entry_no_update", "entry_no_delete"):
            connection.execute(f"DROP TRIGGER {trigger}")
        connection.execute(statement)


@pytest.mark.damages
def test_an_id_whose_row_is_gone_is_not_used_twice(world: StoredWorld) -> None:
    """That it was used is known from memory: the entry is missing, so the writer stops and charges nothing again."""
    if world.url.startswith("postgresql"):
        return
    sent = world.charge("run-1", run=SMALL)
    world.submit(sent)
    edit(world, "DELETE FROM entry WHERE id = 'run-1'")
    with pytest.raises(BookStopped, match="entry 10: is missing"):
        world.submit(sent)


def test_a_row_under_another_id_is_still_found(world: StoredWorld) -> None:
    """The column of ids is for readers: the writer finds an entry by its place, and reads the id in its bytes."""
    if world.url.startswith("postgresql"):
        return
    sent = world.charge("run-1", run=SMALL)
    first = world.submit(sent)[0]
    edit(world, "UPDATE entry SET id = 'another' WHERE id = 'run-1'")
    again = world.submit(sent)[0]
    assert (again.repeated, again.index, again.body) == (True, first.index, first.body)


def test_an_id_with_the_digest_of_another_is_new(world: StoredWorld) -> None:
    """Two ids may have the same 8 bytes: the entry decides whose they are, and the new id is admitted."""
    before = world.size
    state = world.book._writer._state  # noqa: SLF001 - a digest of 64 bits that is already there
    state.records.ids.add("run-1", 3)
    sent = world.charge("run-1", run=SMALL)
    assert world.submit(sent)[0].index == before
    assert world.submit(sent)[0].repeated
