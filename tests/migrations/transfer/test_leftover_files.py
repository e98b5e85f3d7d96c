"""Files that another database left beside a name: SQLite would read them into a new book of that name."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.audit.replay import VerificationFailed
from migrations.connect.book_location import Place
from migrations.connect.errors import NotDone
from migrations.connect.exclusive_access import Limits, connected
from migrations.transfer.book_transfer import check_head, move, restore
from migrations.transfer.log_check import head_of
from tests.factories.people import LOG
from tests.factories.stored import no_step, open_world
from tests.migrations.places import Kept, Spot, db

ENDS = ("-wal", "-shm", "-journal")


@pytest.fixture
def engine() -> str:
    """Only SQLite keeps a database in several files."""
    return "sqlite"


@pytest.fixture(scope="session")
def stale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A write-ahead log with a whole book of fewer entries, as a killed process leaves it."""
    folder = tmp_path_factory.mktemp("stale")
    with open_world(folder, founded=False) as world:
        world.found()
        return Path(shutil.copyfile(f"{world.path}-wal", folder / "stale-wal"))


def _refused(told: str, file: Path) -> bool:
    return told.startswith(f"{file} is left from another database") and "delete it if there is none" in told


@pytest.mark.parametrize("how", ["restore", "move", "rescue", "upgrade"])
def test_no_book_is_made_beside_what_another_left(book: Spot, twin: Spot, grown: Kept, stale: Path, how: str) -> None:
    """Exit code 5, nothing at the name, the source as it was; without the file the same command goes through."""
    kept = (*twin.log, "--kept", grown.checkpoint)
    words = {
        "restore": (grown.backup, twin.book, *kept),
        "move": (book.book, twin.book, *twin.log),
        "rescue": (book.book, twin.book, *kept),
        "upgrade": (twin.book,),
    }
    for end in ENDS:
        left = Path(shutil.copyfile(stale, f"{twin.book}{end}"))
        done = db(how, *words[how])
        assert (done.code, _refused(done.out, left)) == (5, True), done.out
        assert (twin.path.exists(), left.read_bytes()) == (False, stale.read_bytes())
        assert book.rows() == grown.rows
        left.unlink()
    assert db(how, *words[how]).code == 0
    if how != "upgrade":
        assert twin.rows() == grown.rows


def _leaves(stale: Path, name: Path, at: int) -> Callable[[int, int], None]:
    """A step of an operation at which another program leaves its file beside a name."""

    def step(done: int, total: int) -> None:
        no_step(done, total)
        if done == at:
            shutil.copyfile(stale, f"{name}-wal")

    return step


@pytest.mark.parametrize("at", ["first", "last"])
def test_a_file_left_meanwhile_is_found_before_the_source_is_sealed(
    book: Spot, twin: Spot, grown: Kept, stale: Path, at: str
) -> None:
    """Once the entries are copied, or the last one is replayed: the book goes on where it is."""
    step = _leaves(stale, twin.path, grown.size if at == "first" else 2 * grown.size)
    with pytest.raises(NotDone, match="is left from another database of this name"):
        move(Place.parse(book.book), Place.parse(twin.book), LOG, Limits(), step)
    assert (twin.path.exists(), book.rows()) == (False, grown.rows)


def test_a_file_left_meanwhile_ends_a_restore(twin: Spot, grown: Kept, stale: Path) -> None:
    """It is looked for once more just before the book gets its name."""
    step = _leaves(stale, twin.path, 2 * grown.size)
    with pytest.raises(NotDone, match="is left from another database of this name"):
        restore(grown.backup, Place.parse(twin.book), LOG, None, Limits(), step=step)
    assert not twin.path.exists()
    assert [*twin.folder.glob(".*.part*")] == []


def test_a_book_is_compared_where_it_is_opened(book: Spot, grown: Kept, stale: Path) -> None:
    """With what was written: a log beside the name makes an older book of it."""
    place = Place.parse(book.book)
    with connected(place, writes=False) as connection:
        head = head_of(connection)
    check_head(place, head, Limits())
    shutil.copyfile(stale, f"{book.book}-wal")
    with pytest.raises(VerificationFailed, match=rf"holds \d+ entries where it is opened, and {grown.size}"):
        check_head(place, head, Limits())


def test_a_dangling_link_is_followed_to_the_files_beside_its_end(tmp_path: Path, stale: Path) -> None:
    """SQLite names its files after the end of a symbolic link."""
    (tmp_path / "disk").mkdir()
    left = Path(shutil.copyfile(stale, tmp_path / "disk" / "book.sqlite-wal"))
    (tmp_path / "book.sqlite").symlink_to(tmp_path / "disk" / "book.sqlite")
    done = db("upgrade", tmp_path / "book.sqlite")
    assert (done.code, _refused(done.out, left)) == (5, True), done.out
    assert not (tmp_path / "disk" / "book.sqlite").exists()
