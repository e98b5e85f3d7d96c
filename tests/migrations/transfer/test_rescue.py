"""A book that was bricked or damaged is rescued: its longest sound prefix, never behind what someone has seen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from ledger.audit.replay import verify_book
from ledger.book.book import BookUnusable
from ledger.book.checkpoint_file import default_path
from tests.factories.documents import SMALL
from tests.factories.log_rotation import NEW, NEW_KEY, rotate
from tests.factories.people import LOG
from tests.factories.stored import no_step, open_world
from tests.migrations.places import Done, Kept, Spot, db

BRICKED: Final = {
    "a checkpoint far ahead": ("checkpoint", "INSERT INTO checkpoint VALUES (99999, 'x')"),
    "a checkpoint of no signature": ("checkpoint", "INSERT INTO checkpoint VALUES (2, 'x')"),
    "a node of no entry": ("tree_node", "INSERT INTO tree_node SELECT 0, {size}, hash FROM tree_node LIMIT 1"),
    "a raw entry": ("entry", "INSERT INTO entry SELECT {size}, 'raw', kind, time, data FROM entry WHERE position = 12"),
    "a raw entry of garbage": (
        "entry",
        "INSERT INTO entry SELECT {size}, 'raw', 'post', 1, hash FROM tree_node LIMIT 1",
    ),
    "an account that was reset": ("account", "UPDATE account SET posted = 0, pending = 0"),
    "a cosignature of nobody": ("cosignature", "INSERT INTO cosignature SELECT {size}, 'x', 'x'"),
}
"""What an appender may do or once could; the newest program refuses most of it, older schemas did not."""


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's state folder of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def files(book: Spot) -> Iterator[None]:
    """The files of an SQLite book are the same bytes after the test as before the rescue."""
    yield
    if book.engine == "sqlite":
        assert _files(book) == _BEFORE.pop()


_BEFORE: Final[list[dict[str, bytes]]] = []


def _files(book: Spot) -> dict[str, bytes]:
    found = {end: Path(f"{book.book}{end}") for end in ("", "-wal", "-shm", "-journal")}
    return {end: path.read_bytes() for end, path in found.items() if path.exists()}


def rescue(book: Spot, twin: Spot, *options: object) -> Done:
    """Rescue one book into the other place."""
    if book.engine == "sqlite":
        _BEFORE.append(_files(book))
    return db("rescue", book.book, twin.book, *book.log, *options)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("how", BRICKED)
def test_a_bricked_book_is_rescued_whole(book: Spot, twin: Spot, grown: Kept, how: str) -> None:
    """Every entry that was acknowledged is in the new book, which opens; what was inserted is left out and counted."""
    table, statement = BRICKED[how]
    book.tamper(table, statement.format(size=grown.size))
    done = rescue(book, twin, "--kept", grown.checkpoint, "--json")
    assert done.code == 0, done.out
    assert twin.rows() == grown.rows
    left_out = done.json["left_out"]
    counted = {name: count for name, count in left_out.items() if count}
    named = {"checkpoint": "checkpoints", "entry": "entries", "cosignature": "cosignatures"}
    assert counted == ({named[table]: 1} if table in named else {})
    twin.open().close()
    assert verify_book(twin.url, LOG, no_step).entries == grown.size
    grown.check_receipts()


@pytest.mark.usefixtures("files")
def test_a_book_bricked_under_an_older_schema_is_rescued(book: Spot, twin: Spot, grown: Kept) -> None:
    """It cannot be upgraded, since its log does not verify; the new book has the newest schema."""
    assert db("downgrade", book.book, "0002").code == 0
    book.run("INSERT INTO checkpoint VALUES (99999, 'x')")
    assert db("upgrade", book.book).code == 7
    assert rescue(book, twin, "--kept", grown.checkpoint).code == 0
    assert twin.rows() == grown.rows


@pytest.mark.usefixtures("files")
def test_a_forged_seal_is_ignored_when_the_operator_says_so(book: Spot, twin: Spot, grown: Kept) -> None:
    """Without the word the book is taken to go on where the seal says."""
    book.run(f"INSERT INTO seal VALUES (0, 'elsewhere', {grown.size})")  # noqa: S608 - a number of ours
    with pytest.raises(BookUnusable, match="was moved to elsewhere"):
        book.open()
    options = ("--kept", grown.checkpoint)
    done = rescue(book, twin, *options)
    assert (done.code, "moved to elsewhere" in done.out, "--ignore-seal" in done.out) == (5, True, True)
    done = db("rescue", book.book, twin.book, *book.log, *options, "--ignore-seal")
    assert (done.code, "Left out: the seal that names elsewhere." in done.out) == (0, True)
    assert twin.rows() == grown.rows


def _damage(book: Spot, position: int) -> None:
    """An entry in the middle has other bytes, and no witness has cosigned."""
    book.tamper("entry", f"UPDATE entry SET time = time, data = {{changed}} WHERE position = {position}")  # noqa: S608 - a number of ours
    book.tamper("cosignature", "DELETE FROM cosignature")


@pytest.mark.usefixtures("files")
def test_damage_in_the_middle_leaves_what_lies_before_it(book: Spot, twin: Spot, grown: Kept) -> None:
    """Up to the last checkpoint before it; how much is lost is said."""
    sizes = [int(str(row[0])) for row in grown.rows["checkpoint"]]
    _damage(book, sizes[-1] - 1)
    done = rescue(book, twin, "--without-kept")
    assert done.code == 0, done.out
    assert f"holds the first {sizes[-2]} entries of {book.book}, replayed and verified" in done.out
    assert f"The log's key has signed {grown.size} entries: what was acknowledged after entry" in done.out
    assert twin.rows()["entry"] == grown.rows["entry"][: sizes[-2]]
    assert verify_book(twin.url, LOG, no_step).entries == sizes[-2]


@pytest.mark.usefixtures("files")
def test_no_rescue_goes_behind_a_checkpoint_that_was_kept(book: Spot, twin: Spot, grown: Kept) -> None:
    """Named by the operator, or by the service in the user's state folder; an older one forbids nothing."""
    sizes = [int(str(row[0])) for row in grown.rows["checkpoint"]]
    _damage(book, sizes[-1] - 1)
    refused = f"the first {sizes[-2]} entries of {book.book} are sound"
    done = rescue(book, twin, "--kept", grown.first, "--kept", grown.checkpoint)
    assert (done.code, done.out.startswith(refused), "give back budgets" in done.out) == (7, True, True), done.out
    own = default_path(LOG)
    own.parent.mkdir(parents=True)
    own.write_text(grown.checkpoint.read_text())
    done = db("rescue", book.book, twin.book, *book.log, "--without-kept")
    assert (done.code, f"what the service kept at {own} is a checkpoint of {grown.size}" in done.out) == (7, True)
    own.unlink()
    assert db("rescue", book.book, twin.book, *book.log, "--kept", grown.first).code == 0


@pytest.mark.usefixtures("files")
def test_no_rescue_goes_behind_a_checkpoint_that_a_witness_signed(book: Spot, twin: Spot, grown: Kept) -> None:
    """The line in the book is enough."""
    newest = grown.size - 1
    book.tamper("entry", f"UPDATE entry SET time = time, data = {{changed}} WHERE position = {newest}")  # noqa: S608 - a number of ours
    done = rescue(book, twin, "--without-kept")
    assert (done.code, f"what a witness cosigned is a checkpoint of {grown.size}" in done.out) == (7, True), done.out
    assert db("status", twin.book).code == 4


@pytest.mark.usefixtures("files")
def test_another_history_is_not_rescued(book: Spot, twin: Spot, grown: Kept) -> None:
    """Entries changed below a checkpoint that was kept are named."""
    _damage(book, 3)
    done = rescue(book, twin, "--kept", grown.first)
    assert (done.code, "no entry of" in done.out, "entry 3" in done.out) == (7, True, True), done.out


@pytest.mark.usefixtures("files")
def test_no_book_is_rescued_while_a_service_has_it_open(book: Spot, twin: Spot, grown: Kept) -> None:
    """It would go on in the old one, and both would spend what is left."""
    opened = book.open()
    try:
        done = rescue(book, twin, "--kept", grown.checkpoint, "--lock-timeout", 0)
        assert (done.code, "another process has the" in done.out, "stop it first" in done.out) == (5, True, True)
        assert db("status", twin.book).code == 4
    finally:
        opened.close()
    if book.engine == "sqlite":
        # A service writes the file; from here on nothing does.
        _BEFORE.clear()
    assert rescue(book, twin, "--kept", grown.checkpoint).code == 0


def test_a_rescue_says_what_it_cannot_know(book: Spot, twin: Spot, grown: Kept) -> None:
    """Without any checkpoint it asks for the operator's word; nothing is written over, and no book is no book."""
    done = db("rescue", book.book, twin.book, *book.log)
    assert (done.code, "without one it is unknown whether the rescue gives back" in done.out) == (2, True)
    assert db("rescue", book.book, book.book, *book.log, "--kept", grown.checkpoint).code == 5
    absent = book.book + "-not-there"
    assert db("rescue", absent, twin.book, *book.log, "--kept", grown.checkpoint).code in {4, 5}


def test_a_file_with_a_page_of_garbage_is_read_around(book: Spot, twin: Spot, grown: Kept) -> None:
    """SQLite cannot read some rows: whatever it reads is taken, or the rescue says what keeps it from that."""
    if book.engine != "sqlite":
        book.tamper("tree_node", "DELETE FROM tree_node WHERE level = 0 AND position = 1")
        assert rescue(book, twin, "--kept", grown.checkpoint).code == 0
        return
    whole = book.path.read_bytes()
    codes = set()
    for page in range(1, len(whole) // 4096):
        book.path.write_bytes(whole[: page * 4096] + b"\xff" * 4096 + whole[(page + 1) * 4096 :])
        done = db("rescue", book.book, twin.book, *book.log, "--without-kept")
        codes.add(done.code)
        assert done.code in {0, 5, 7}, done.out
        if done.code == 0:
            assert twin.rows() == grown.rows
            twin.path.unlink()
    assert 0 in codes


def test_a_rescue_by_a_symbolic_link_takes_what_a_killed_service_left(tmp_path: Path) -> None:
    """Its newest entries are in the write-ahead log, which lies beside the file that the link leads to."""
    (tmp_path / "disk").mkdir()
    with open_world(tmp_path) as world:
        assert world.submit(world.charge("run-1", run=SMALL))[0].code.word == "pending"
        size = world.size
        for end in ("", "-wal"):
            shutil.copyfile(f"{world.path}{end}", tmp_path / "disk" / f"book.sqlite{end}")
    link, target = tmp_path / "link.sqlite", tmp_path / "rescued.sqlite"
    link.symlink_to(tmp_path / "disk" / "book.sqlite")
    (tmp_path / "log.vkey").write_text(LOG.vkey)
    done = db("rescue", link, target, "--log", tmp_path / "log.vkey", "--without-kept")
    assert (done.code, f"holds the first {size} entries of {link}, replayed" in done.out) == (0, True), done.out
    assert verify_book(f"sqlite:///{target}", LOG, no_step).entries == size


def test_no_rescue_goes_behind_what_was_kept_under_a_later_key(tmp_path: Path) -> None:
    """Named by the log's first key, which is trusted everywhere, it looks at what the service kept for each key."""
    old, new = default_path(LOG), default_path(NEW)
    with open_world(tmp_path) as world:
        world.is_checked = False
        world.book.close()
        world.book = world.open(kept=old, first_start=True)
        world.book.close()
        rotate(world, kept=(old, new))
        world.book = world.open(log_key=NEW_KEY, kept=new)
        world.submit(world.charge("run-1", run=SMALL))
        world.submit(world.charge("run-2", run=SMALL))
        size = world.size
        world.book.close()
        (tmp_path / "log.vkey").write_text(LOG.vkey)
        place, target = Spot(str(world.path), world.url, world.url, tmp_path), tmp_path / "rescued.sqlite"
        changed = f"UPDATE entry SET time = time, data = {{changed}} WHERE position = {size - 1}"  # noqa: S608 - a number of ours
        place.tamper("entry", changed)
        done = db("rescue", place.book, target, *place.log, "--without-kept")
        assert (done.code, f"what the service kept at {new} is a checkpoint of {size}" in done.out) == (7, True), (
            done.out
        )
        assert not target.exists()
        # What the new key signed is taken from the operator too.
        done = db("rescue", place.book, target, *place.log, "--kept", new)
        assert (done.code, f"{new} is a checkpoint of {size}" in done.out) == (7, True), done.out
        new.unlink()
        assert db("rescue", place.book, target, *place.log, "--without-kept").code == 0
