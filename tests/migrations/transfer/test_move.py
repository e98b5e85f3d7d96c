"""A book goes from one database to another, with all its proofs, and goes on in one place alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from ledger.book.book import BookUnusable
from ledger.store.engine import engine_of
from ledger.store.tables import ENTRY, SEAL
from migrations.connect.book_location import Place
from tests.migrations.places import Kept, Spot, db


def _moved(book: Spot, to: Spot) -> None:
    done = db("move", book.book, to.book, *book.log)
    assert done.code == 0, done.out


def test_a_moved_book_is_the_same_book(book: Spot, other: Spot, twin: Spot, grown: Kept) -> None:
    """Every row on the other engine and back again; receipts still prove, and a kept checkpoint is extended."""
    _moved(book, other)
    assert other.rows() == grown.rows
    assert db("check", other.book, *other.log, "--kept", grown.checkpoint).code == 0
    grown.check_receipts()
    _moved(other, twin)
    assert twin.rows() == grown.rows
    opened = twin.open()
    opened.close()


def test_the_old_book_takes_no_more_entries(book: Spot, other: Spot, grown: Kept) -> None:
    """A service is told where the book goes on; the database itself refuses whoever does not ask."""
    _moved(book, other)
    with pytest.raises(BookUnusable, match=r"moved to .*, and goes on there\. .* again .* The seal .* --ignore-seal"):
        book.open()
    engine = engine_of(book.url, writes=True)
    row = {"position": grown.size, "id": "new", "kind": "post", "time": 1, "data": b"{}"}
    with pytest.raises(IntegrityError, match="was moved, and takes no more"), engine.begin() as connection:
        connection.execute(insert(ENTRY), [row])
    engine.dispose()
    status = db("status", book.book, "--json").json
    assert (status["entries"], other.book.split("?")[0] in status["moved_to"]) == (grown.size, True)
    assert "it takes no more entries" in db("status", book.book).out


@pytest.mark.parametrize("verb", ["UPDATE seal SET tree_size = 1", "DELETE FROM seal", "DROP TRIGGER entry_not_sealed"])
def test_a_seal_is_for_ever(book: Spot, other: Spot, verb: str, engine: str) -> None:
    """It cannot be taken off, nor be made to say something else; and a lost trigger is told."""
    _moved(book, other)
    sealed = book.rows()["seal"]
    if verb.startswith("DROP"):
        book.run(verb + (" ON entry" if engine == "postgresql" else ""))
        with pytest.raises(BookUnusable, match="lacks its trigger entry_not_sealed"):
            book.open()
    else:
        with pytest.raises(Exception, match="seal is append-only"):
            book.run(verb)
    assert book.rows()["seal"] == sealed != []


def test_a_second_seal_is_refused(book: Spot, other: Spot) -> None:
    """By the key, and by the constraint on it."""
    _moved(book, other)
    engine = engine_of(book.url, writes=True)
    for position in (0, 1):
        row = {"position": position, "successor": "elsewhere", "tree_size": 1}
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(insert(SEAL), [row])
    engine.dispose()


def test_a_move_done_before_is_reported(book: Spot, other: Spot, tmp_path: Path) -> None:
    """The same move again changes nothing; another one is refused, whatever is there."""
    _moved(book, other)
    before = other.rows()
    again = db("move", book.book, other.book, *book.log, "--json").json
    assert again["repeated"] is True
    done = db("move", book.book, tmp_path / "elsewhere.sqlite", *book.log)
    assert (done.code, "was moved to" in done.out) == (5, True)
    assert not (tmp_path / "elsewhere.sqlite").exists()
    assert other.rows() == before


def test_what_to_do_with_a_move_that_was_cut_is_told(book: Spot, other: Spot, twin: Spot, grown: Kept) -> None:
    """Sealed, and no book was made yet: whoever would go elsewhere is told both ways on, and each of them leads there.

    The same move finishes it. Where that place is gone, a rescue makes the book at another one.
    """
    named = Place.parse(other.book).absolute
    book.run(f"INSERT INTO seal VALUES (0, '{named}', {grown.size})")  # noqa: S608 - ours
    for verb, more in (("move", ()), ("rescue", ("--kept", grown.checkpoint))):
        done = db(verb, book.book, twin.book, *book.log, *more)
        told = ("the same move again finishes it" in done.out, "'epsilon db rescue' with --ignore-seal" in done.out)
        assert (done.code, told, named in done.out) == (5, (True, True), True), done.out
        assert db("status", twin.book).code == 4
    done = db("rescue", book.book, twin.book, *book.log, "--kept", grown.checkpoint, "--ignore-seal")
    assert (done.code, twin.rows()) == (0, grown.rows), done.out
    assert db("move", book.book, other.book, *book.log, "--json").json["repeated"] is False
    assert other.rows() == grown.rows


def test_a_sealed_book_can_be_backed_up_and_restored(
    book: Spot, other: Spot, twin: Spot, grown: Kept, tmp_path: Path
) -> None:
    """Which is the way on when the place it went to is lost; the copy is not sealed, and knows what was kept."""
    _moved(book, other)
    assert db("backup", book.book, tmp_path / "b.zip").code == 0
    assert db("restore", tmp_path / "b.zip", twin.book, *twin.log, "--kept", grown.checkpoint).code == 0
    assert twin.rows() == grown.rows


def test_a_sealed_book_stays_at_its_schema(book: Spot, other: Spot) -> None:
    """Below it the seal would be gone."""
    _moved(book, other)
    done = db("downgrade", book.book, "0001")
    assert (done.code, done.out) == (
        5,
        "the downgrade would delete the rows of seal, and nothing is deleted from a log",
    )
    assert book.rows()["seal"] != []


def test_no_book_is_moved_while_a_service_has_it_open(book: Spot, other: Spot, grown: Kept) -> None:
    """The service would go on in the old one."""
    opened = book.open()
    try:
        done = db("move", book.book, other.book, *book.log, "--lock-timeout", "0")
    finally:
        opened.close()
    assert (done.code, "open" in done.out, "stop it first" in done.out) == (5, True, True), done.out
    assert (book.rows()["seal"], book.rows()["entry"]) == ([], grown.rows["entry"])
    assert db("status", other.book).code == 4


def test_a_target_must_be_empty(book: Spot, other: Spot, grown: Kept) -> None:
    """Another book or other tables there: refused, and the source goes on."""
    other.run("CREATE TABLE sale (id int)")
    done = db("move", book.book, other.book, *book.log)
    assert (done.code, "nothing is written over" in done.out) == (5, True)
    done = db("move", book.book, book.book, *book.log)
    assert (done.code, "is where the book is already" in done.out) == (5, True)
    assert book.rows() == grown.rows


def test_a_broken_book_is_not_moved(book: Spot, other: Spot) -> None:
    """The fault is named, the source is not sealed, and there is nothing at the target."""
    book.tamper("charge", "UPDATE charge SET steps_posted = 0 WHERE id = 'run-0'")
    book.tamper("entry", "UPDATE entry SET data = {changed} WHERE position = 7")
    done = db("move", book.book, other.book, *book.log)
    assert (done.code, done.out.startswith("entry 7: ")) == (7, True), done.out
    assert book.rows()["seal"] == []
    assert db("status", other.book).code == 4


def test_an_older_schema_is_not_moved(book: Spot, other: Spot) -> None:
    """It is upgraded first: there is nowhere to put the seal."""
    assert db("downgrade", book.book, "0001").code == 0
    done = db("move", book.book, other.book, *book.log)
    assert (done.code, "run 'epsilon db upgrade' first" in done.out) == (5, True), done.out
    assert db("status", other.book).code == 4
