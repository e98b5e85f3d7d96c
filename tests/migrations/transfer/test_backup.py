"""Backup and restore: all of a book at one moment, made again by replay, and never older than what was kept."""

from __future__ import annotations

import json
import random
import threading
import tracemalloc
import zipfile
from collections.abc import Generator
from pathlib import Path
from typing import get_args

import pytest
from sqlalchemy import func, select

from ledger.audit.replay import VerificationFailed
from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from ledger.log.checkpoint import sign
from ledger.log.merkle import CompactRange
from ledger.store.tables import DOCUMENT
from ledger.verifier import Checkpoint, leaf_hash
from ledger.wire.malformed import Malformed
from migrations.connect.book_location import Place
from migrations.connect.exclusive_access import Limits
from migrations.transfer.archive import Archive, Manifest, write_archive
from migrations.transfer.book_contents import AT_ONCE_BYTES_MAX, Kind, fill
from migrations.transfer.book_transfer import new_book
from tests.factories.documents import SMALL
from tests.factories.people import LOG, LOG_KEY, ORIGIN
from tests.factories.stored import no_step, open_world
from tests.migrations.places import Kept, Spot, db, spot


def test_a_restored_book_is_the_book(place: Spot, grown: Kept) -> None:
    """Every row of every table, on either engine; receipts issued before still prove their entries."""
    args = (grown.backup, place.book, "--kept", grown.checkpoint, *place.log)
    told = db("restore", *args, "--json").json
    assert (told["entries"], told["kept"]) == (grown.size, grown.size)
    assert place.rows() == grown.rows
    grown.check_receipts()
    assert db("check", place.book, *place.log, "--kept", grown.checkpoint).code == 0


def test_a_restored_book_goes_on(book: Spot, grown: Kept) -> None:
    """A service opens it, and the next entry follows the last."""
    opened = book.open()
    try:
        with opened.read() as facts:
            assert (facts.size, facts.checkpoint) == (grown.size, grown.checkpoint.read_text())
    finally:
        opened.close()


class _Unpacked:
    """What a small backup may unpack to: no entry, and many documents as large as any may be."""

    tree_size = 0

    def items(self, kind: Kind) -> Generator[bytes]:
        """Made one after another."""
        for number in range(24 if kind == "documents" else 0):
            yield number.to_bytes(4, "big") + bytes(POLICY_DOCUMENT_BYTES_MAX - 4)


def test_no_more_of_a_backup_is_in_memory_than_its_bound(place: Spot) -> None:
    """A thousand documents of the greatest size would be gigabytes, of a file of one megabyte."""
    with new_book(Place.of(place.url), Limits()) as connection:
        tracemalloc.start()
        try:
            fill(connection, _Unpacked(), LOG, no_step)
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert connection.execute(select(func.count()).select_from(DOCUMENT)).scalar_one() == 24
    # The chunk before is let go once the next is there.
    assert most < 2.5 * AT_ONCE_BYTES_MAX < 24 * POLICY_DOCUMENT_BYTES_MAX


def test_the_same_book_backs_up_to_the_same_bytes(book: Spot, grown: Kept, tmp_path: Path) -> None:
    """Whichever engine it lies in, and whenever."""
    again = tmp_path / "again.zip"
    assert db("backup", book.book, again, *book.log).code == 0
    assert again.read_bytes() == grown.backup.read_bytes()


def test_a_restore_says_what_it_cannot_know(place: Spot, grown: Kept) -> None:
    """The operator names the newest kept checkpoint, or says that there is none; never both, never neither."""
    for more in ((), ("--kept", grown.checkpoint, "--without-kept")):
        done = db("restore", grown.backup, place.book, *place.log, *more)
        assert (done.code, "without one it is unknown whether the restore gives back" in done.out) == (2, True)
    done = db("restore", grown.early, place.book, *place.log, "--without-kept")
    assert (done.code, "send again whatever was acknowledged since" in done.out) == (0, True)


def test_an_older_backup_is_refused(place: Spot, grown: Kept) -> None:
    """Restoring it would give budgets back."""
    done = db("restore", grown.early, place.book, *place.log, "--kept", grown.checkpoint)
    assert (done.code, "it would give back budgets spent since" in done.out) == (7, True)
    assert db("status", place.book).code == 4


def test_a_backup_may_be_newer_than_what_was_kept(place: Spot, grown: Kept) -> None:
    """The kept checkpoint is then held against the tree."""
    assert db("restore", grown.backup, place.book, *place.log, "--kept", grown.first).code == 0


def test_a_forks_backup_is_refused(place: Spot, grown: Kept, tmp_path: Path) -> None:
    """Another history under the same key is no newer backup."""
    (tmp_path / "fork").mkdir()
    with open_world(tmp_path / "fork") as world:
        world.submit(*(world.charge(f"other-{number}", run=SMALL) for number in range(grown.size)))
        assert db("backup", world.path, tmp_path / "fork.zip").code == 0
    done = db("restore", tmp_path / "fork.zip", place.book, *place.log, "--kept", grown.checkpoint)
    assert (done.code, "is a fork" in done.out) == (7, True), done.out
    assert db("status", place.book).code == 4


def test_another_logs_backup_is_refused(place: Spot, grown: Kept, tmp_path: Path) -> None:
    """The key that someone kept decides whose log it is."""
    key = tmp_path / "other.vkey"
    key.write_text("epsilon.example/other+f12a2b31+AdYMTdj0Hn0Q0F3p3xgpmn3Y0Y4yWdVQ8e0xjE2nVQ8e\n")
    assert db("restore", grown.backup, place.book, "--without-kept", "--log", key).code == 2
    assert db("status", place.book).code == 4


def test_nothing_is_written_over(book: Spot, grown: Kept, tmp_path: Path) -> None:
    """Neither a book nor a backup."""
    done = db("restore", grown.backup, book.book, *book.log, "--kept", grown.checkpoint)
    assert (done.code, "nothing is written over" in done.out) == (5, True)
    file = tmp_path / "letter"
    file.write_text("Dear Sir or Madam")
    assert db("backup", book.book, file).code == 5
    assert (book.rows(), file.read_text()) == (grown.rows, "Dear Sir or Madam")
    assert db("backup", book.book, tmp_path / "none" / "b.zip").code == 4


def test_a_book_is_backed_up_while_it_is_written(tmp_path: Path, place: Spot) -> None:
    """The backup is the book at one moment: a prefix of the log, its checkpoint and every account of then."""
    (tmp_path / "live").mkdir()
    with open_world(tmp_path / "live") as world:
        world.submit(world.charge("first", run=SMALL))
        charges = iter([world.charge(f"run-{number}", run=SMALL) for number in range(60)])
        writer = threading.Thread(target=lambda: [world.submit(one) for one in charges])
        writer.start()
        files = [tmp_path / f"{number}.zip" for number in range(3)]
        sizes = [db("backup", world.path, file, "--json").json["entries"] for file in files]
        writer.join()
        with world.book.read() as facts:
            entries = [facts.entry(index) for index in range(facts.size)]
    for size, file in zip(sizes, files, strict=True):
        with Archive.open(file) as archive:
            assert list(archive.items("entries")) == entries[:size]
    assert db("restore", files[0], place.book, "--without-kept", *place.log).code == 0


def test_a_book_without_an_entry_is_backed_up(place: Spot, other: Spot, tmp_path: Path) -> None:
    """And restored, with nothing to prove."""
    assert db("upgrade", place.book).code == 0
    assert db("backup", place.book, tmp_path / "empty.zip").code == 0
    assert db("restore", tmp_path / "empty.zip", other.book, "--without-kept", *other.log).code == 0
    assert db("status", other.book, "--json").json["entries"] == 0


def test_a_broken_book_is_not_backed_up(book: Spot, tmp_path: Path) -> None:
    """A backup that restores nothing would be found out too late."""
    book.tamper("entry", "UPDATE entry SET data = {changed} WHERE position = 7")
    done = db("backup", book.book, tmp_path / "b.zip")
    assert (done.code, "newest checkpoint is not that of these" in done.out) == (7, True)
    assert not list(tmp_path.glob("b.zip*"))


def test_a_witness_is_believed_by_its_signature(book: Spot, twin: Spot, tmp_path: Path) -> None:
    """A cosignature that does not verify is not carried on."""
    assert len(book.rows()["cosignature"]) == 1
    book.tamper("cosignature", "UPDATE cosignature SET line = replace(line, 'A', 'B')")
    assert db("backup", book.book, tmp_path / "b.zip").code == 0
    done = db("restore", tmp_path / "b.zip", twin.book, "--without-kept", *twin.log)
    assert (done.code, done.out.startswith("a cosignature does not hold: ")) == (7, True), done.out
    assert db("status", twin.book).code == 4


def _read(path: Path) -> tuple[Manifest, list[list[bytes]]]:
    with Archive.open(path) as archive:
        return archive.manifest, [list(archive.items(kind)) for kind in get_args(Kind)]


@pytest.mark.parametrize("seed", range(3))
def test_a_changed_byte_is_found(grown: Kept, tmp_path: Path, seed: int) -> None:
    """A hundred places a seed: the file is refused, or (a date, say) tells of the same book."""
    dice, whole = random.Random(seed), _read(grown.backup)  # noqa: S311 - which bytes are changed
    data, path = grown.backup.read_bytes(), tmp_path / "b.zip"
    refused = 0
    for _ in range(100):
        place = dice.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :])
        try:
            assert _read(path) == whole, place
        except (Malformed, VerificationFailed):
            refused += 1
    assert refused > 80


@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
def test_a_file_cut_short_is_refused(place: Spot, grown: Kept, tmp_path: Path, part: float) -> None:
    """Exit code 2 and one sentence, and nothing at the target."""
    data = grown.backup.read_bytes()
    (tmp_path / "b.zip").write_bytes(data[: int(len(data) * part)])
    done = db("restore", tmp_path / "b.zip", place.book, "--without-kept", *place.log)
    assert (done.code, "\n" in done.out) == (2, False), done.out
    assert db("status", place.book).code == 4


def _rewritten(grown: Kept, path: Path, members: dict[str, bytes | None]) -> Path:
    """The backup with some members changed, or left out."""
    with zipfile.ZipFile(grown.backup) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in [*old.namelist(), *(one for one in members if one not in old.namelist())]:
            data = members[name] if name in members else old.read(name)
            if data is not None:
                new.writestr(name, data)
    return path


@pytest.mark.parametrize(
    ("members", "code", "told"),
    [
        ({"entries": None}, 2, "its members are not those of one"),
        ({"more": b""}, 2, "its members are not those of one"),
        ({"manifest.json": b"{}"}, 2, "kind: is missing"),
        ({"manifest.json": b"[" * 20_000}, 2, "more than the 16384 allowed"),
        ({"documents": b""}, 7, "the backup's documents are not those of its manifest"),
        ({"entries": b"\xff\xff\xff\xff"}, 7, "longer than any can be"),
        ({"entries": b"\x00\x00"}, 7, "are cut off"),
        ({"entries": b"\x00\x00\x00\x02{}"}, 7, "the backup's entries are not those of its manifest"),
    ],
)
def test_what_is_no_backup_is_refused(
    grown: Kept, tmp_path: Path, members: dict[str, bytes | None], code: int, told: str
) -> None:
    """By its shape before anything is made, and by its contents before anything is kept."""
    path = _rewritten(grown, tmp_path / "b.zip", members)
    with spot("sqlite", tmp_path) as place:
        done = db("restore", path, place.book, "--without-kept", *place.log)
        assert (done.code, told in done.out) == (code, True), done.out
        assert not list(tmp_path.glob(".book.sqlite*.part*"))
        assert not place.path.exists()


def test_a_lying_operators_backup_is_refused(tmp_path: Path) -> None:
    """Signed with the log's own key and whole in itself, it still has to be what entries can be."""

    class Forged:
        tree_size = 1

        def items(self, kind: Kind) -> Generator[bytes]:
            items = {"entries": b'{"v":1}', "documents": b"a document", "checkpoints": note.encode()}
            yield from (data for name, data in items.items() if name == kind)

    note = sign(Checkpoint(ORIGIN, 1, leaf_hash(b'{"v":1}')), LOG_KEY)
    write_archive(tmp_path / "b.zip", Forged(), note, LOG, no_step)
    with spot("sqlite", tmp_path) as place:
        done = db("restore", tmp_path / "b.zip", place.book, "--without-kept", *place.log)
    assert (done.code, done.out) == (7, "entry 0: actor: is missing")


def test_a_backup_with_a_run_that_is_settled_twice_is_refused(grown: Kept, tmp_path: Path) -> None:
    """Each entry is one by itself; that the second cannot be applied is said as any other fault."""
    kinds: tuple[Kind, ...] = ("documents", "entries", "checkpoints", "cosignatures")
    with Archive.open(grown.backup) as backup:
        held = {kind: [*backup.items(kind)] for kind in kinds}
    place, post = next((at, data) for at, data in enumerate(held["entries"]) if b'"kind":"post"' in data)
    name = json.loads(post)["id"].encode()
    held["entries"].insert(place + 1, post.replace(b'"id":"' + name + b'"', b'"id":"again-' + name + b'"'))
    tree = CompactRange()
    for data in held["entries"]:
        tree.append(data)
    note = sign(Checkpoint(ORIGIN, tree.size, tree.root()), LOG_KEY)
    held["checkpoints"][-1:] = [note.encode()]

    class Forged:
        tree_size = tree.size

        def items(self, kind: Kind) -> Generator[bytes]:
            yield from held[kind]

    write_archive(tmp_path / "b.zip", Forged(), note, LOG, no_step)
    with spot("sqlite", tmp_path) as target:
        done = db("restore", tmp_path / "b.zip", target.book, "--without-kept", *target.log)
        assert (done.code, f"entry {place + 1}" in done.out, "\n" in done.out) == (7, True, False), done.out
        assert not target.path.exists()


@pytest.mark.parametrize(("added", "rule"), [(b"\xff", "must be UTF-8"), (b"\0", "must hold no NUL")])
def test_a_backup_with_a_note_that_is_no_text_is_refused(
    grown: Kept, place: Spot, tmp_path: Path, added: bytes, rule: str
) -> None:
    """Each member is as its manifest says; the member and the rule are named, on either engine."""
    kinds: tuple[Kind, ...] = ("documents", "entries", "checkpoints", "cosignatures")
    with Archive.open(grown.backup) as backup:
        held = {kind: [*backup.items(kind)] for kind in kinds}
        size = backup.tree_size
    newest = held["checkpoints"][-1].decode()
    held["checkpoints"][0] += added

    class Forged:
        tree_size = size

        def items(self, kind: Kind) -> Generator[bytes]:
            yield from held[kind]

    write_archive(tmp_path / "b.zip", Forged(), newest, LOG, no_step)
    done = db("restore", tmp_path / "b.zip", place.book, "--without-kept", *place.log)
    told = (done.code, done.out.startswith("checkpoints: the note over "), rule in done.out, "\n" in done.out)
    assert told == (7, True, True, False), done.out
    assert db("status", place.book).code == 4
