"""A row that somebody changes is named while the book is open, and nobody is told what it says."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event

from ledger.book.book import BookBusy, BookStopped, BookUnusable, RowsDiffer
from ledger.book.state import row_comparison, settled_comparison
from ledger.book.state.row_comparison import OPEN_S, SHARE, WITHIN_S, Pace, RowComparison
from ledger.book.state.settled_comparison import Compared
from ledger.book.submitted_command import PricesChange
from ledger.store.database_state import PROJECTIONS
from tests.factories.documents import PARTITION, SMALL
from tests.factories.people import BANK_A, BANK_B
from tests.factories.stored import StoredWorld, open_world
from tests.ledger.book.governed import announce, opening, run
from tests.ledger.book.state.test_open_state import writer
from tests.ledger.store.test_postgresql import execute

LIMIT_S: Final = 60
CHANGES: Final = (
    ("UPDATE account SET posted = posted + 1", "accounts: "),
    ("UPDATE account SET coordinate = coordinate + 1000", "accounts: "),
    ("UPDATE charge SET sealing = 'thief' WHERE state = 'pending'", "charges: the row of open "),
    ("UPDATE charge SET state = 'voided', steps_posted = NULL WHERE id = 'open'", "charges: the row of open is not"),
    ("UPDATE charge SET steps_posted = 0 WHERE state = 'posted'", "charges: the row of posted "),
    ("UPDATE charge SET notices = '[]'", "charges: the row of posted "),
    ("UPDATE charge SET id = 'nobody' WHERE id = 'posted'", "charges: the row of posted is missing"),
    ("UPDATE signing_key SET owner = 'did:web:thief.example' WHERE charge IS NULL", "keys: "),
    ("UPDATE signing_key SET owner = 'did:web:thief.example' WHERE charge = 'posted'", "keys: "),
    ("INSERT INTO signing_key SELECT 'thief', owner, x, charge, entered FROM signing_key LIMIT 1", "keys: "),
    (
        "INSERT INTO signing_key SELECT 'thief', owner, x, 'none', entered FROM signing_key LIMIT 1",
        "keys: there are 9 rows, and the entries make 8",
    ),
    ("UPDATE organisation SET name = 'thief'", "organisations: "),
    ("UPDATE partition SET epsilon = '600'", "partitions: "),
    ("UPDATE contract SET runs = runs + 1", "contracts: "),
    ("UPDATE node SET members = '[]'", "nodes: "),
)


def changeable(world: StoredWorld) -> None:
    """A run that is posted and announced, its model opened, and one that is open."""
    run(world, "posted", PARTITION)
    assert announce(world, "posted").code.word == "permitted"
    assert opening(world, "posted", "inside").code.word == "permitted"
    world.submit(world.charge("open", BANK_B, SMALL))


@pytest.mark.damages
@pytest.mark.parametrize(("statement", "told"), CHANGES)
def test_a_changed_row_is_named(
    world: StoredWorld, statement: str, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, in the service's log; readers get an error and no figure, and commands are decided as before."""
    changeable(world)
    assert world.book.compare_rows() is None
    execute(world.url, statement)
    with caplog.at_level(logging.ERROR, "ledger.book"):
        assert told in str(world.book.compare_rows())
        world.book.compare_rows()
    assert [told in one.getMessage() for one in caplog.records if one.name == "ledger.book"] == [True]
    with pytest.raises(RowsDiffer, match="a row was changed by another hand"), world.book.read():
        pass
    assert world.submit(world.settle("open", 1, BANK_B))[0].code.word == "posted"


PRICED: Final = (
    ("UPDATE partition SET epsilon = '600'", "partitions: the row of "),
    ("UPDATE partition SET epsilon = 'x'", "partitions: the row of "),
    ("UPDATE organisation SET roles = '[]'", "organisations: the row of "),
)


@pytest.mark.damages
@pytest.mark.parametrize(("statement", "told"), PRICED)
def test_a_command_whose_price_a_changed_row_spoils_is_refused_by_its_name(
    world: StoredWorld, statement: str, told: str
) -> None:
    """Prices are computed from rows; nothing is charged at another price than the entries make, and it says why."""
    execute(world.url, statement)
    size = writer(world).size
    asked = world.charge("a", run=SMALL)
    with pytest.raises(RowsDiffer, match=f"a row was changed by another hand: {told}"):
        world.submit(asked)
    with pytest.raises(RowsDiffer, match=told):
        asyncio.run(world.book.submit_async([asked]))
    with pytest.raises(RowsDiffer, match=told):
        world.book.quote(asked)
    assert world.book.difference is not None
    assert told in world.book.difference
    assert (writer(world).size, world.book.stopped) == (size, None)


def test_what_a_row_has_not_caused_is_told_as_it_is(world: StoredWorld) -> None:
    """An error with every row in place stays that error, and a busy book compares nothing."""
    for error in (ValueError("x"), PricesChange("x"), BookBusy("x"), BookStopped("x")):
        with pytest.raises(type(error), match="x"), world.book._rows.blamed():  # noqa: SLF001 - around any call
            raise error
    assert world.book.difference is None


@pytest.mark.damages
@pytest.mark.parametrize(("statement", "told"), [CHANGES[0], CHANGES[2], CHANGES[7], CHANGES[-1]])
def test_a_book_with_a_changed_row_is_not_opened_again(world: StoredWorld, statement: str, told: str) -> None:
    """What the comparison would name, opening names."""
    changeable(world)
    execute(world.url, statement)
    world.book.close()
    with pytest.raises(BookUnusable, match=told):
        world.open()


def test_a_changed_document_is_named(world: StoredWorld) -> None:
    """A policy's bytes: whoever may drop a trigger could show others."""
    if world.url.startswith("postgresql"):
        return
    for trigger in ("document_no_update", "document_no_delete"):
        execute(world.url, f"DROP TRIGGER {trigger}")
    execute(world.url, "UPDATE document SET data = x'00' WHERE digest IN (SELECT document FROM policy_version)")
    assert "is missing or was changed" in str(world.book.compare_rows())


UNPROVEN: Final = (
    ("tree_node", "UPDATE tree_node SET hash = zeroblob(32) WHERE level = 0 AND position = 10", "entry 11: its bytes"),
    ("tree_node", "DELETE FROM tree_node WHERE level = 0 AND position = 10", "a node of the tree is missing"),
    ("entry", "UPDATE entry SET data = CAST('{}' AS BLOB) WHERE position = 10", "entry 10: its bytes"),
    ("entry", "DELETE FROM entry WHERE position = 10", "entry 10: is missing"),
)


@pytest.mark.parametrize(("table", "statement", "told"), UNPROVEN)
def test_what_no_longer_proves_an_entry_is_named(tmp_path: Path, table: str, statement: str, told: str) -> None:
    """The thread goes on until it has said so, and no reader is shown a row that nothing is compared with any more."""
    with open_world(tmp_path) as world:
        world.is_checked = False
        world.submit(world.charge("a", run=SMALL), world.charge("b", run=SMALL))
        writer = world.book._writer  # noqa: SLF001 - the same writer, asked more often
        comparison = RowComparison(writer.pin, writer._state.records, 0.01)  # noqa: SLF001
        drops = [f"DROP TRIGGER {table}_no_{how}" for how in ("update", "delete")]
        execute(world.url, *drops, statement)
        until = time.monotonic() + LIMIT_S
        while comparison.difference is None and time.monotonic() < until:
            pass
        comparison.close()
        assert told in str(comparison.difference)
        assert told in str(world.book.compare_rows())
        with pytest.raises(RowsDiffer, match=told), world.book.read():
            pass


def test_a_book_that_is_written_differs_nowhere(world: StoredWorld) -> None:
    """Charges and settlements by threads, compared all the while; on PostgreSQL by a second process's book too."""
    books = [world.book] if world.url.startswith("sqlite") else [world.book, world.open()]
    ended = threading.Event()

    def spend(bank: str, book: int) -> None:
        for n in range(12):
            name = f"{bank[8:14]}-{book}-{n}"
            books[book].submit([world.charge(name, bank, SMALL)])
            books[book].submit([world.settle(name, 1, bank)])

    def compare(book: int) -> int:
        compared = 0
        while not ended.is_set() or not compared:
            assert books[book].compare_rows() is None
            compared += 1
        return compared

    with ThreadPoolExecutor() as pool:
        comparing = [pool.submit(compare, book) for book in range(len(books))]
        spending = [pool.submit(spend, bank, book) for bank in (BANK_A, BANK_B) for book in range(len(books))]
        try:
            for one in spending:
                one.result(LIMIT_S)
        finally:
            ended.set()
        assert all(one.result(LIMIT_S) > 0 for one in comparing)
    for book in books[1:]:
        book.close()


def _sent(world: StoredWorld, how_many: int) -> None:
    """Runs that are posted, whose models are announced."""
    names = [f"run-{place}" for place in range(how_many)]
    for sent in (
        [world.charge(name, run=SMALL) for name in names],
        [world.release(name, SMALL) for name in names],
        [world.settle(name, 1) for name in names],
    ):
        assert {one.code.word for one in world.submit(*sent)} <= {"pending", "permitted", "posted"}


@pytest.fixture
def sliced(world: StoredWorld, monkeypatch: pytest.MonkeyPatch) -> StoredWorld:
    """A log of some 20 slices of four entries."""
    monkeypatch.setattr(settled_comparison, "SLICE", 4)
    monkeypatch.setattr(settled_comparison, "LEAST", 3)
    _sent(world, 24)
    return world


def _compared(world: StoredWorld) -> Compared:
    assert world.book.compare_rows() is None
    return world.book._rows.compared  # noqa: SLF001 - what it did


def test_a_long_log_is_gone_through_in_three_comparisons(sliced: StoredWorld) -> None:
    """By count, on any machine: all of it in full at first, and then the rows alone; few are twice compared in full."""
    slices = -(-sliced.size // 4)
    first = [_compared(sliced) for _ in range(3)]
    assert {one.slices for one in first} == {-(-slices // 3)}
    assert all(one.full == one.slices for one in first)
    # What has no settled charge is compared in full each time, and so is the end of the log.
    later = [_compared(sliced) for _ in range(6)]
    assert sum(one.slices for one in later) >= 2 * slices
    assert sum(one.full for one in later) < slices


@pytest.mark.parametrize("size", [4, 32])
def test_a_slice_takes_as_many_statements_however_long_it_is(
    world: StoredWorld, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Its rows, its entries and those that changed its charges, and the path to the root of either: five."""
    monkeypatch.setattr(settled_comparison, "SLICE", size)
    monkeypatch.setattr(settled_comparison, "LEAST", 1_000)
    _sent(world, 24)
    sent: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if " FROM account" not in statement:
            sent.append(statement)

    engine = world.book._reads  # noqa: SLF001 - by which a snapshot is read
    event.listen(engine, "before_cursor_execute", note)
    _compared(world)
    first = len(sent)
    compared = _compared(world)
    again = len(sent) - first
    slices = -(-world.size // size)
    assert compared.slices == slices
    # Beside the slices: every table once, the documents, and how many rows there are.
    beside = len(PROJECTIONS) + 25
    assert first <= 5 * slices + beside
    assert again <= slices + 5 * compared.full + beside


class Machine:
    """A clock, and a processor that does nothing but what it is given; a share of it is another's."""

    def __init__(self, slowed: float) -> None:
        self.now, self.worked, self._slowed = 100.0, 0.0, slowed
        self.pace = Pace(self.rest, lambda: self.now, lambda: self.worked)

    def rest(self, seconds: float) -> None:
        """Let time go by."""
        assert seconds > 0
        self.now += seconds

    def work(self, seconds: float) -> None:
        """Work so long."""
        self.now, self.worked = self.now + seconds * self._slowed, self.worked + seconds


@given(
    work=st.floats(0.001, 12.0), pieces=st.integers(1, 2_000), open_rows=st.floats(0.0, 2.0), slowed=st.floats(1.0, 1.2)
)
def test_a_comparison_takes_a_tenth_of_a_processor_or_is_done_in_time(
    work: float, pieces: int, open_rows: float, slowed: float
) -> None:
    """Whatever there is to do; and where a tenth is enough, never more than that over a second."""
    machine = Machine(slowed)
    begun = machine.now
    for _ in range(20):
        machine.work(open_rows / 20)
        machine.pace.rest()
    for piece in range(1, pieces + 1):
        machine.work(work / pieces)
        machine.pace.rest_at(piece / pieces)
    took = machine.now - begun
    # A piece that is begun is done, the last of either part too.
    piece_s = (open_rows / 20 + work / pieces) * slowed
    assert took <= max(WITHIN_S, OPEN_S + (open_rows + work) * slowed) + 2 * piece_s + 0.001
    if (work + open_rows) * 10 * slowed < WITHIN_S and open_rows * 10 * slowed < OPEN_S:
        assert took >= (work + open_rows) * (1 / SHARE - 1) * 0.99


AFTERWARDS: Final = (
    ("UPDATE charge SET steps_posted = 0 WHERE id = 'run-1'", "charges: the row of run-1 "),
    ("UPDATE charge SET id = 'nobody' WHERE id = 'run-2'", "charges: the row of run-2 is missing"),
    ("UPDATE signing_key SET owner = 'did:web:thief.example' WHERE charge = 'run-3'", "keys: "),
    ("UPDATE charge SET notices = '[]' WHERE id = 'run-4'", "charges: the row of run-4 "),
)


@pytest.mark.damages
@pytest.mark.parametrize(("statement", "told"), AFTERWARDS)
def test_a_row_of_long_ago_is_named_within_three_comparisons(sliced: StoredWorld, statement: str, told: str) -> None:
    """Though its slice was compared in full before; also where it is put back to what it once was."""
    for _ in range(6):
        assert sliced.book.compare_rows() is None
    assert announce(sliced, "run-4").code.word == "permitted"
    execute(sliced.url, statement)
    found = [sliced.book.compare_rows() for _ in range(3)]
    assert told in str(found[-1])


@pytest.mark.damages
@pytest.mark.parametrize("every_s", [0.01, 3_600.0])
def test_it_is_done_without_being_asked(world: StoredWorld, every_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a thread of its own, which ends with the book; of a long book at once, however long it is between two."""
    if every_s > LIMIT_S:
        monkeypatch.setattr(row_comparison, "LONG", 4)
    writer = world.book._writer  # noqa: SLF001 - the same writer, asked more often
    changeable(world)
    execute(world.url, "UPDATE account SET posted = 0")
    comparison = RowComparison(writer.pin, writer._state.records, every_s)  # noqa: SLF001
    until = time.monotonic() + LIMIT_S
    while comparison.difference is None and time.monotonic() < until:
        pass
    assert "accounts: the row of " in str(comparison.difference)
    comparison.close()
