"""A book that is opened by a snapshot is the book that its whole log makes, and a wrong snapshot is never believed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledger.book.book import BookUnusable
from ledger.book.state import snapshot_file
from ledger.book.state.snapshot_file import SnapshotFile
from ledger.book.writer_state import WriterState
from ledger.commands.entry_reader import read_entry
from ledger.crypto.public_keys import PublicKey
from ledger.domain.key_terms import KeyTerms
from ledger.log import merkle
from ledger.state_tree.journal import StateJournal
from ledger.state_tree.leaves import StatedRecord
from ledger.state_tree.snapshot_format import NAME_BYTES, StateSnapshot, read_snapshot, write_snapshot
from ledger.state_tree.sparse_tree import SparseTree
from ledger.store.engine import url_of
from ledger.verifier import leaf_hash
from ledger.wire import canonical_json as c
from tests.factories.people import BANK_B, LOG, ORIGIN
from tests.factories.stored import StoredWorld, copy, open_world
from tests.ledger.audit.forge import entries_of
from tests.ledger.book.state.test_open_state import RUNS, lifecycle
from tests.ledger.organisation_lineage.test_lineage_graph import Play, events

BELIEVED: Final = "opened by the snapshot"
REFUSED: Final = "is not believed, and the whole log is read"


@pytest.fixture(autouse=True)
def _short_books(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing writes a snapshot however few entries there are."""
    monkeypatch.setattr(snapshot_file, "EVERY_CLOSING", 1)


@pytest.fixture
def file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Path:
    """Where the snapshot lies; what is logged of it is heard."""
    caplog.set_level("INFO", "ledger.book")
    return tmp_path / "book.snapshot"


def stated(world: StoredWorld, file: Path, *, statements: bool = True) -> StoredWorld:
    """The same book, opened anew by its snapshot."""
    world.book.close()
    world.book = world.open(statements=statements, snapshot=file)
    return world


def heard(caplog: pytest.LogCaptureFixture) -> str:
    """What the last opening logged of the snapshot, in one line."""
    lines = [one.getMessage() for one in caplog.records if "snapshot" in one.getMessage()]
    caplog.clear()
    assert len(lines) == 1, lines
    return lines[0]


def contents(state: WriterState) -> dict[str, Any]:
    """Everything that a writer decides on, and finds in the log, in a form that can be compared."""
    parts, records, sums = state.facts.in_memory_parts(), state.records, state.facts.sums
    names = {name: sorted(getattr(records, name)) for name in ("ids", "changes", "keys")}
    deadlines = sorted((one.deadline, name) for name, one in parts["charges"].items())
    return {
        **{name: dict(part) for name, part in parts.items()},
        **names,
        "nodes in order": [*parts["nodes"]],
        "partitions in order": [*parts["partitions"]],
        "publication": state.facts.publication,
        "charges ever": records.charges,
        "cuts": sums._cuts.tolist(),  # noqa: SLF001 - what is held, here and below
        "sums": {at: (one.starts, one.counts, one.sums) for at, one in sums._authors.items()},  # noqa: SLF001
        "deadlines": [one for one in sorted(state._deadlines) if one in deadlines],  # noqa: SLF001
        "every deadline": deadlines,
        "time": state.time,
        "size": state.size,
        "root": state.root,
        "next deadline": state.next_deadline(),
    }


def folded(entries: list[bytes]) -> tuple[WriterState, StateJournal]:
    """A writer's state, as appending makes it."""
    state = WriterState(LOG, SnapshotFile(Path("not written"), LOG))
    append(state, entries)
    return state, state._journal  # noqa: SLF001 - what is stated of it


def append(state: WriterState, entries: list[bytes]) -> None:
    """Append entries, each of which has its rows."""
    for data in entries:
        # A lapse moves the world's clock on, and then back.
        state.time = 0
        state.append(read_entry(data), data)
        state.take_changes()


def node_reader(entries: list[bytes]) -> merkle.Read:
    """The nodes of the log's tree."""
    nodes: dict[tuple[int, int], bytes] = {}
    for place, data in enumerate(entries):
        for level, position, value in merkle.append(place, leaf_hash(data), lambda at, on: nodes[at, on]):
            nodes[level, position] = value
    return lambda level, position: nodes[level, position]


def taken(state: WriterState, journal: StateJournal) -> StateSnapshot:
    """Its snapshot, written and read."""
    changes = journal.advance(state.size)
    tree = changes.applied(SparseTree())
    return read_snapshot(b"".join(write_snapshot(LOG.vkey, state.size, tree, changes.names)), LOG.vkey)


@settings(deadline=None, max_examples=60)
@given(events(*RUNS), st.floats(0, 1))
@example([("charge", 0, 0, 1), ("charge", 0, 0, 0), ("post", 0, 0, 1), ("transfer", 0, 1, 0), ("merge", 0, 1, 2)], 0.5)
def test_a_snapshot_and_the_entries_since_make_the_same_state(
    sequence: list[tuple[str, int, int, int]], part: float
) -> None:
    """At every size of a lineage's log; what is stated of it afterwards is the same too."""
    play = Play()
    for kind, *numbers in sequence:
        play.event(kind, *numbers)
    entries = play.world.log
    at = max(1, round(part * len(entries)))
    first, journal = folded(entries[:at])
    begun = WriterState(LOG, SnapshotFile(Path("not written"), LOG))
    snapshot = taken(first, journal)
    begun.begin_at(snapshot, node_reader(entries[:at]))
    assert contents(begun) == contents(first)
    append(begun, entries[at:])
    whole, _ = folded(entries)
    assert contents(begun) == contents(whole)
    changes = begun._journal.advance(begun.size)  # noqa: SLF001
    other = whole._journal.advance(whole.size)  # noqa: SLF001
    assert changes.applied(snapshot.tree).root == other.applied(SparseTree()).root
    assert b"".join(changes.names) == b"".join(other.names)


def test_a_writer_has_no_part_that_is_not_made_of_a_snapshot() -> None:
    """What is added to the writer's state must have a leaf, be made of leaves, or begin empty with every opening."""
    made = {"records", "facts", "_journal", "statements", "time", "_tree", "_deadlines"}
    assert vars(WriterState(LOG)).keys() - made == {
        *("_documents", "_entries"),  # read again, each by its digest or under the root
        "nonces",  # empty with every opening: who sends a command has looked at all entries before
        *("durable", "note", "_key", "_key_id", "_snapshots"),  # what the entries since, caller and database say
    }


def test_a_book_goes_on_by_its_snapshot_as_by_its_log(tmp_path: Path, file: Path, caplog: Any) -> None:  # noqa: ANN401
    """The same entries, byte for byte, after everything that can happen to a run."""
    with open_world(tmp_path) as world:
        stated(world, file)
        lifecycle(world)
        world.submit(world.merger(), world.charge("late", BANK_B, recipients=[BANK_B]))
        world.book.close()
        other = copy(world.path, tmp_path / "other.sqlite")
        written = []
        for url, options in ((url_of(other), {}), (world.url, {"snapshot": file})):
            caplog.clear()
            world.url, now = url, world.clock.now
            world.book = world.open(**options)
            assert [BELIEVED in one for one in caplog.messages if "snapshot" in one] == [True] * len(options)
            world.submit(world.settle("late", 1), world.charge("next", BANK_B), world.charge("voided"))
            world.clock.now += 86_400_000
            world.submit(world.charge("after"))
            world.clock.now = now
            world.book.close()
            written.append(entries_of(other if not options else world.path))
        assert written[0] == written[1]
        world.book = world.open()


def test_a_snapshot_is_written_after_so_many_entries_and_at_closing(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the background, not before its statement is committed; a book with few new entries keeps the one it has."""
    monkeypatch.setattr(snapshot_file, "EVERY", 4)
    with open_world(tmp_path) as world:
        stated(world, file).submit(*(world.charge(f"run-{n}") for n in range(3)))
        assert not file.exists()
        world.clock.now += 60_000
        snapshots = world.book._writer._state._snapshots  # noqa: SLF001 - when it writes is seen nowhere else
        assert snapshots is not None
        while snapshots._writing is None:  # noqa: SLF001 - as above
            world.book._writer.send(()).result()  # noqa: SLF001 - it looks by itself, but by the real clock
        world.book.close()
        before = file.read_bytes()
        monkeypatch.setattr(snapshot_file, "EVERY_CLOSING", 100)
        world.book = world.open(statements=True, snapshot=file)
        world.submit(world.charge("one more"))
        world.book.close()
        assert file.read_bytes() == before
        assert file.stat().st_mode & 0o777 == 0o600
        world.book = world.open()


Harm = Callable[[Path, StoredWorld], None]


def _torn(file: Path, _world: StoredWorld) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def _empty(file: Path, _world: StoredWorld) -> None:
    file.write_bytes(b"")


def _older(file: Path, _world: StoredWorld) -> None:
    _rewritten(file, lambda data: data.replace(b'"v":1}\n', b'"v":0}\n', 1))


def _foreign(file: Path, _world: StoredWorld) -> None:
    _rewritten(file, lambda data: data.replace(ORIGIN.encode(), b"x" * len(ORIGIN), 1))


def _pipe(file: Path, _world: StoredWorld) -> None:
    file.unlink()
    os.mkfifo(file)


def _other_size(file: Path, _world: StoredWorld) -> None:
    """A size that some statement might be of."""
    snapshot = read_snapshot(file.read_bytes(), LOG.vkey)
    data = b"".join(write_snapshot(LOG.vkey, snapshot.size - 1, snapshot.tree, [snapshot.names]))
    file.write_bytes(data)


def _richer(file: Path, _world: StoredWorld) -> None:
    """Somebody's account without its losses: a state of its own, with a root that follows from its bytes."""
    snapshot = read_snapshot(file.read_bytes(), LOG.vkey)
    (leaf, *_) = (one for one in snapshot.tree if one.content.part == "accounts")
    zero = leaf.content.value.posted.zero(len(leaf.content.value.posted.finite))
    record = leaf.content._replace(value=leaf.content.value._replace(posted=zero, pending=zero))
    tree = snapshot.tree.updated([], [record.leaf])
    file.write_bytes(b"".join(write_snapshot(LOG.vkey, snapshot.size, tree, [snapshot.names])))


def _replaced(file: Path, _world: StoredWorld) -> None:
    """The log's key was replaced, which no entry says: the book would not open, and say to start with another key."""
    snapshot = read_snapshot(file.read_bytes(), LOG.vkey)
    key_id = PublicKey("Ed25519", c.base64url(LOG.public)).thumbprint
    terms = KeyTerms(key_id, "ledger", 0, None, None, 3, 3)
    tree = snapshot.tree.updated([], [StatedRecord("key_terms", key_id, terms, bytes(32)).leaf])
    file.write_bytes(b"".join(write_snapshot(LOG.vkey, snapshot.size, tree, [snapshot.names])))


def _forgetful(file: Path, _world: StoredWorld) -> None:
    """A name less is used, so that an id could be used again."""
    snapshot = read_snapshot(file.read_bytes(), LOG.vkey)
    data = b"".join(write_snapshot(LOG.vkey, snapshot.size, snapshot.tree, [snapshot.names[NAME_BYTES:]]))
    file.write_bytes(data)


def _other_root(file: Path, _world: StoredWorld) -> None:
    """Another root than that of its records, as the first line says it."""
    root = read_snapshot(file.read_bytes(), LOG.vkey).tree.root.hex().encode()
    _rewritten(file, lambda data: data.replace(root, sha256(root).hexdigest().encode(), 1))


def _of_another_book(file: Path, _world: StoredWorld) -> None:
    """Of the same log key, and of another history."""
    folder = file.parent / "another"
    folder.mkdir()
    with open_world(folder) as other:
        stated(other, file).submit(other.charge("elsewhere"), other.charge("there"))
        other.book.close()
        other.book = other.open()


def _rewritten(file: Path, change: Callable[[bytes], bytes]) -> None:
    """Change a snapshot, and the digest at its end with it."""
    body = file.read_bytes()[:-32]
    changed = change(body)
    assert changed != body
    file.write_bytes(changed + sha256(changed).digest())


@pytest.mark.parametrize(
    ("harm", "why"),
    [
        (_torn, "is torn or was changed"),
        (_empty, "is torn or was changed"),
        (_older, "the first line.v"),
        (_foreign, "log: is another log's"),
        (_pipe, "is no file of at most"),
        (_other_size, ""),
        (_richer, "no statement in the log says"),
        (_replaced, "has replaced the log's key"),
        (_other_root, "root: is not that of the records"),
        (_forgetful, "names: are not those"),
        (_of_another_book, ""),
    ],
)
def test_a_snapshot_in_doubt_is_not_believed(
    tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture, harm: Harm, why: str
) -> None:
    """One line says so, the whole log is read, and a new snapshot takes its place."""
    with open_world(tmp_path) as world:
        stated(world, file).submit(world.charge("run-1"), world.settle("run-1", 40))
        world.book.close()
        caplog.clear()
        harm(file, world)
        caplog.clear()
        world.book = world.open(statements=True, snapshot=file)
        line = heard(caplog)
        assert (REFUSED in line, why in line) == (True, True), line
        assert world.submit(world.charge("run-1"))[0].repeated
        stated(world, file)
        assert BELIEVED in heard(caplog)
        stated(world, file, statements=False)


def test_without_a_snapshot_the_whole_log_is_read(tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """And one is written at closing, though nothing was recorded."""
    with open_world(tmp_path) as world:
        stated(world, file).submit(world.charge("run-1"))
        world.book.close()
        file.unlink()
        caplog.clear()
        world.book = world.open(statements=True, snapshot=file)
        assert heard(caplog) == "there is no snapshot of the state: the whole log was read"
        stated(world, file)
        assert BELIEVED in heard(caplog)


def test_no_byte_of_a_snapshot_can_be_flipped(tmp_path: Path, file: Path) -> None:
    """Each single one is noticed, and so is one whose digest is made anew, unless it changes nothing that is said."""
    with open_world(tmp_path) as world:
        stated(world, file).submit(world.charge("run-1"), world.charge("run-2"), world.void("run-1"))
        world.book.close()
        world.book = world.open()
    data = file.read_bytes()
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        with pytest.raises(ValueError, match="torn"):
            read_snapshot(bytes(flipped), LOG.vkey)
    snapshot, others = read_snapshot(data, LOG.vkey), []
    for place in range(0, len(data) - 32, 37):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        with suppress(ValueError):
            found = read_snapshot(bytes(flipped[:-32]) + sha256(flipped[:-32]).digest(), LOG.vkey)
            others.append((found.size, found.tree.root))
    assert (snapshot.size, snapshot.tree.root) not in others


def test_entries_since_are_hashed(tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A changed one is found, and the whole log is no way around it; nor is a changed node below them."""
    with open_world(tmp_path) as world:
        stated(world, file).submit(world.charge("run-1"))
        world.book.close()
        for script, opens in (
            ("UPDATE tree_node SET hash = zeroblob(32)", True),
            ("UPDATE entry SET data = CAST(replace(CAST(data AS TEXT), 'statement-', 'statemens-') AS BLOB)", False),
        ):
            harmed = copy(world.path, tmp_path / f"{opens}.sqlite")
            _execute(harmed, script)
            caplog.clear()
            world.url = url_of(harmed)
            if opens:
                world.open(snapshot=file).close()
            else:
                with pytest.raises(BookUnusable, match="was changed"):
                    world.open(snapshot=file)
            assert REFUSED in heard(caplog)
        world.url = url_of(world.path)
        world.book = world.open()


def _execute(path: Path, script: str) -> None:
    """As the owner of the file, past its triggers, which are put back."""
    with closing(sqlite3.connect(path)) as connection, connection:
        triggers: Any = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        connection.executescript("".join(f"DROP TRIGGER {name};" for name, _ in triggers) + script)
        connection.executescript("".join(f"{sql};" for _, sql in triggers))


def test_a_newer_snapshot_is_no_way_around_the_kept_checkpoint(
    tmp_path: Path, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An older copy of a book does not become newer by a snapshot of what came after."""
    kept = tmp_path / "kept"
    with open_world(tmp_path) as world:
        world.book.close()
        world.open(statements=True, kept=kept, first_start=True).close()
        older = copy(world.path, tmp_path / "older.sqlite")
        world.book = world.open(statements=True, snapshot=file, kept=kept)
        world.submit(world.charge("run-1"))
        world.book.close()
        newest, world.url = world.url, url_of(older)
        caplog.clear()
        with pytest.raises(BookUnusable, match="it is an older copy"):
            world.open(snapshot=file, kept=kept)
        assert REFUSED in heard(caplog)
        world.url = newest
        world.book = world.open(kept=kept)


_WRITING: Final = """
import sys
from pathlib import Path
from ledger.book.state import snapshot_file
from ledger.book.state.snapshot_file import SnapshotFile
from ledger.book.state.state_statements import StatedTree
from ledger.state_tree.snapshot_format import read_snapshot
from tests.factories.people import LOG

path = Path(sys.argv[1])
found = read_snapshot(path.read_bytes(), LOG.vkey)
write = snapshot_file.write_snapshot
def halted(*args):
    for place, piece in enumerate(write(*args)):
        if place == 5:
            print("half", flush=True)
            sys.stdin.read()
        yield piece
snapshot_file.write_snapshot = halted
SnapshotFile(path, LOG)._write(StatedTree(found.size, found.size, found.tree, (found.names,)))
"""


def test_a_process_killed_while_it_writes_leaves_the_old_file(tmp_path: Path, file: Path) -> None:
    """Really killed, between two pieces; the next opening removes what it left, and what is being written stays."""
    with open_world(tmp_path) as world:
        stated(world, file).submit(world.charge("run-1"))
        world.book.close()
        world.book = world.open()
    before = file.read_bytes()
    command = [sys.executable, "-c", _WRITING, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "half\n"
        (written,) = file.parent.glob(f".{file.name}.*.part")
        SnapshotFile(file, LOG).read()
        assert written.exists()
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    assert file.read_bytes() == before
    assert [*file.parent.glob(f".{file.name}.*")] == [written]
    with open_world(tmp_path, founded=False) as world:
        stated(world, file)
        assert not written.exists()


def test_a_disk_that_takes_no_file_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One line says so, and the book closes; so it does where a state has too many bytes."""
    with open_world(tmp_path) as world:
        stated(world, tmp_path / "book.sqlite" / "below a file").submit(world.charge("run-1"))
        world.book.close()
        assert [one.levelname for one in caplog.records if "no snapshot" in one.getMessage()] == ["WARNING"]
        world.book = world.open()


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[StoredWorld]:
    """A world on PostgreSQL."""
    with open_world(tmp_path, "postgresql") as found:
        yield found


def test_a_postgresql_book_is_opened_by_a_snapshot(
    shared: StoredWorld, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by one that another process wrote, and with entries that a third one appended."""
    world = stated(shared, file)
    world.submit(world.charge("run-1"), world.charge("run-2"))
    stated(world, file)
    caplog.clear()
    with closing(world.open(statements=True, snapshot=file)) as other:
        assert BELIEVED in heard(caplog)
        world.submit(world.charge("run-3"))
        mine, world.book = world.book, other
        assert [one.code.word for one in world.submit(world.settle("run-3", 40), world.charge("run-3"))] == [
            "posted",
            "pending",
        ]
        world.book = mine
    stated(world, file, statements=False)
    assert BELIEVED in heard(caplog)
