"""A book published as files: whole, grown, interrupted, and never another history than before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ledger.book.book import Book
from ledger.cli import tile_publishing
from ledger.cli.main import app
from ledger.log.checkpoint import sign
from ledger.log.tiles import Tile, tiles_of
from ledger.store.engine import engine_of
from ledger.store.merkle_tables import Tree
from ledger.store.projection_table import append_rows
from ledger.store.tables import CHECKPOINT, ENTRY
from ledger.verifier import Checkpoint, LogKey, verify_tiles
from ledger.wire.malformed import Malformed
from tests.factories.people import LOG, LOG_KEY, ORIGIN, private_key
from tests.factories.stored import ENGINES, StoredWorld, no_step, open_world
from tests.factories.third_party import run


@pytest.fixture(params=ENGINES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StoredWorld]:
    """A small book, open, in SQLite and in PostgreSQL."""
    with open_world(tmp_path, request.param) as found:
        yield found


def publish(book: Book, folder: Path, key: LogKey = LOG) -> tile_publishing.Publication:
    """Publish what the book has now."""
    with book.read() as facts:
        return tile_publishing.publish(facts, folder, key, no_step)


def whole(folder: Path) -> Checkpoint:
    """What an auditor finds in the folder."""
    return verify_tiles(lambda path, _: _bytes(folder / path), LOG)


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def files(folder: Path) -> set[str]:
    """Every path in a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_log_is_published_and_grows(world: StoredWorld, tmp_path: Path) -> None:
    """Each time whole, for our verifier and for theirs; what an older checkpoint needs stays."""
    folder = tmp_path / "public"
    assert publish(world.book, folder).entries == world.size
    before = whole(folder)
    assert before.size == world.size
    world.submit(world.merger())
    publish(world.book, folder)
    assert whole(folder).size == world.size == before.size + 1
    assert verify_tiles(lambda path, _: _bytes(folder / path), LOG, before).size == world.size
    assert {tile.path for size in (before.size, world.size) for tile in tiles_of(size)} | {"checkpoint"} == files(
        folder
    )
    found = run("aics_tlog", "verify-inclusion", "--log-key", LOG.vkey, "--tiles", folder, "--index", str(before.size))
    assert (found.returncode, json.loads(found.stdout)["ok"]) == (0, True)
    assert publish(world.book, folder).entries == world.size


def test_an_interrupted_publication_is_taken_up(world: StoredWorld, tmp_path: Path) -> None:
    """Stopped before any file: the checkpoint still names what is whole; then all is written again."""
    folder = tmp_path / "public"
    publish(world.book, folder)
    before = world.size
    world.submit(world.merger())
    due = len([*tiles_of(world.size)])
    for stop in range(1, due + 1):

        def stopped(done: int, total: int, stop: int = stop) -> None:
            assert total == due
            if done == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), world.book.read() as facts:
            tile_publishing.publish(facts, folder, LOG, stopped)
        assert whole(folder).size == before
    publish(world.book, folder)
    assert whole(folder).size == world.size


def test_one_publication_at_a_time(tmp_path: Path) -> None:
    """In the midst of one, another is refused; when it has ended, however it ended, the next one is not."""
    folder = tmp_path / "public"
    with open_world(tmp_path) as world:

        def meanwhile(_: int, __: int) -> None:
            with pytest.raises(Malformed, match="being written by another"):
                publish(world.book, folder)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt), world.book.read() as facts:
            tile_publishing.publish(facts, folder, LOG, meanwhile)
        publish(world.book, folder)
        assert whole(folder).size == world.size


@pytest.mark.parametrize("broken", ["checkpoint", "tile/entries/000.p/10"])
def test_what_was_left_half_written_is_written_again(tmp_path: Path, broken: str) -> None:
    """A file cut short by a crash, and the leavings beside it."""
    folder = tmp_path / "public"
    with open_world(tmp_path) as world:
        publish(world.book, folder)
        data = (folder / broken).read_bytes()
        (folder / broken).write_bytes(data[:-1])
        (folder / broken).with_name(f".{Path(broken).name}.0123.part").write_bytes(data[:7])
        if broken == "checkpoint":
            with pytest.raises(Malformed, match="checkpoint"):
                publish(world.book, folder)
            (folder / broken).unlink()
        publish(world.book, folder)
        assert whole(folder).size == world.size


def test_another_history_is_not_published_over_one(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A fork, an older copy and another log are refused, and the folder stays as it was."""
    folder = tmp_path / "public"
    with open_world(tmp_path) as world, open_world(tmp_path_factory.mktemp("fork"), founded=False) as fork:
        world.submit(world.merger())
        publish(world.book, folder)
        before = (folder / "checkpoint").read_bytes()
        fork.clock.now += 1
        fork.submit(*fork.founding())
        with pytest.raises(Malformed, match=f"publishes {world.size} entries and the book has {fork.size}"):
            publish(fork.book, folder)
        fork.submit(fork.merger())
        with pytest.raises(Malformed, match="publishes another history"):
            publish(fork.book, folder)
        stranger = LogKey(ORIGIN, private_key("another log").public_key().public_bytes_raw())
        with pytest.raises(Malformed, match="not signed by the log's key"):
            publish(world.book, folder, stranger)
        assert (folder / "checkpoint").read_bytes() == before
        assert whole(folder).size == world.size


def test_full_tiles_are_kept_and_partial_ones_superseded(tmp_path: Path) -> None:
    """Past 256 entries a bundle is full: its partial ones go, and it is not written twice."""
    folder = tmp_path / "public"
    with open_world(tmp_path, founded=False) as world:
        lengthen(world, 10)
        publish(world.book, folder)
        assert {"tile/entries/000.p/10", "tile/0/000.p/10"} <= files(folder)
        lengthen(world, 600)
        assert publish(world.book, folder) == tile_publishing.Publication(600, 7)
        assert files(folder) == {tile.path for tile in tiles_of(600)} | {"checkpoint"}
        full = {tile: (folder / tile.path).stat().st_mtime_ns for tile in tiles_of(512) if tile.width == 256}
        assert len(full) == 4
        lengthen(world, 1)
        assert publish(world.book, folder).files == 3
        assert {tile: (folder / tile.path).stat().st_mtime_ns for tile in full} == full
        (folder / Tile(0, 0).path).unlink()
        assert publish(world.book, folder).files == 4
        assert whole(folder).size == 601


def lengthen(world: StoredWorld, count: int) -> None:
    """More entries in the log, up to a round number or by one: bytes that nobody decided, but hashed and signed."""
    engine = engine_of(world.url, writes=True)
    with engine.begin() as connection:
        tree = Tree(connection)
        added: list[dict[str, object]] = []
        while tree.size < count or not added:
            data = b"entry %d" % tree.size
            added.append({"position": tree.size, "id": data.decode(), "kind": "void", "time": 1, "data": data})
            tree.append(data)
        append_rows(connection, ENTRY, added)
        tree.flush()
        note = sign(Checkpoint(ORIGIN, tree.size, tree.root()), LOG_KEY)
        append_rows(connection, CHECKPOINT, [{"tree_size": tree.size, "note": note}])
    engine.dispose()


def test_the_command(world: StoredWorld, tmp_path: Path) -> None:
    """In words and as JSON; a key that is missing is named."""
    folder, key = tmp_path / "public", tmp_path / "kept.vkey"
    key.write_text(f"{LOG.vkey}\n")
    words = CliRunner().invoke(app, ["publish", world.url, str(folder), "--log", str(key)])
    assert (words.exit_code, words.stdout) == (0, f"{folder} now holds {world.size} entries; 2 files were written\n")
    known = CliRunner().invoke(app, ["publish", world.url, str(folder), "--log", str(key), "--json"])
    assert json.loads(known.stdout) == {"entries": world.size, "files": 2, "folder": str(folder)}
    missing = CliRunner().invoke(app, ["publish", world.url, str(folder)])
    assert (missing.exit_code, "log: there is no log.vkey beside the book" in missing.output) == (2, True)
    nowhere = CliRunner().invoke(app, ["publish", str(tmp_path / "none"), str(folder)])
    assert (nowhere.exit_code, nowhere.output) == (
        4,
        f"there is no book at {tmp_path / 'none'}: name its SQLite file, or a database's URL\n",
    )
