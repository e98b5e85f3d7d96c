"""What a witness may answer, and what is made of it: nothing but its own good signature is kept."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import pytest
from sqlalchemy import delete, insert, update

from ledger.cli.witness_client import ATTEMPTS, Witness, WitnessRefused, witness_newest
from ledger.log.verification_findings import VerificationFailed
from ledger.log.witness_protocol import SIZE_TYPE, add_checkpoint, read_cosignature, read_size
from ledger.store.append_only_triggers import sqlite_triggers
from ledger.store.cosignatures import check_cosignatures, cosigned_receipt, newest_size, store_cosignature
from ledger.store.engine import engine_of
from ledger.store.snapshot import Log, Snapshot
from ledger.store.tables import COSIGNATURE
from ledger.verifier import Checkpoint, Note, WitnessKey, check_extends, read_proof, verify_receipt
from ledger.wire.malformed import Malformed
from tests.factories.people import LOG
from tests.factories.stored import open_world
from tests.ledger.log.memory_log import Cosigner, log_of

COSIGNER = Cosigner("witness.example/w1", 7)
STRANGER = Cosigner("witness.example/w2", 8)
NAMESAKE = Cosigner("witness.example/w1", 9)
PLAIN: Final = "text/plain"
NOTE = log_of(11).note(11)
Answer = tuple[int, str, bytes]


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed book of ten entries."""
    with open_world(tmp_path_factory.mktemp("book")) as world:
        assert world.size == 10
        return world.path


@contextmanager
def answering(answer: Callable[[bytes], Answer]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers every request so, and what it was asked."""
    requested: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/prefix/add-checkpoint"
            requested.append(self.rfile.read(int(self.headers["content-length"])))
            status, kind, body = answer(requested[-1])
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/prefix/", requested
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def note_of(requested: bytes) -> str:
    """The checkpoint in a request."""
    return requested.decode().partition("\n\n")[2]


def line(cosigner: Cosigner, note: str) -> bytes:
    """What a witness answers."""
    return cosigner.line(note).encode()


GOOD: Final[dict[str, Callable[[bytes], Answer]]] = {
    "its line": lambda requested: (200, PLAIN, line(COSIGNER, note_of(requested))),
    "its line after a stranger's": lambda requested: (
        200,
        PLAIN,
        line(STRANGER, note_of(requested)) + line(NAMESAKE, note_of(requested)) + line(COSIGNER, note_of(requested)),
    ),
}
BAD: Final[dict[str, tuple[Callable[[bytes], Answer], type[Exception], str]]] = {
    "a stranger's line": (lambda requested: (200, PLAIN, line(STRANGER, note_of(requested))), Malformed, "is not of"),
    "another key of its name": (
        lambda requested: (200, PLAIN, line(NAMESAKE, note_of(requested))),
        Malformed,
        "is not of",
    ),
    "its line over another note": (lambda _: (200, PLAIN, line(COSIGNER, NOTE)), Malformed, "does not verify"),
    "a good line and a bad one": (
        lambda requested: (200, PLAIN, line(COSIGNER, note_of(requested)) + line(COSIGNER, NOTE)),
        Malformed,
        "does not verify",
    ),
    "a line cut short": (lambda requested: (200, PLAIN, line(COSIGNER, note_of(requested))[:-1]), Malformed, "newline"),
    "nothing": (lambda _: (200, PLAIN, b""), Malformed, "signature lines"),
    "bytes": (lambda _: (200, PLAIN, b"\xff\xfe\n"), Malformed, "UTF-8"),
    "a page": (lambda _: (200, "text/html", b"<html>\n"), Malformed, "does not start with a dash"),
    "too much": (lambda _: (200, PLAIN, b"\xe2\x80\x94 w AAAAAAA=\n" * 40_000), Malformed, "took more than"),
    "too many lines": (lambda requested: (200, PLAIN, line(COSIGNER, note_of(requested)) * 40), Malformed, "too many"),
    "a time in nanoseconds": (
        lambda requested: (200, PLAIN, COSIGNER.line(note_of(requested), 1_679_315_147_000_000_000).encode()),
        Malformed,
        "before the year 10000, in Unix seconds",
    ),
    "a greater size": (
        lambda _: (409, SIZE_TYPE, b"11\n"),
        WitnessRefused,
        "has cosigned 11 entries of this log, and the book",
    ),
    "sizes without end": (lambda _: (409, SIZE_TYPE, b"3\n"), WitnessRefused, f"another size {ATTEMPTS} times"),
    "a size that is none": (lambda _: (409, SIZE_TYPE, b"03\n"), Malformed, "one line with an integer"),
    "a size of another type": (lambda _: (409, PLAIN, b"3\n"), WitnessRefused, "HTTP 409"),
    "a refused proof": (lambda _: (422, PLAIN, b""), WitnessRefused, "not this book's first"),
    "a redirect": (lambda _: (307, PLAIN, b""), WitnessRefused, "HTTP 307"),
    "a fault of its own": (lambda _: (500, PLAIN, b""), WitnessRefused, "does not cosign"),
    "a status of its own": (lambda _: (299, PLAIN, b""), WitnessRefused, "HTTP 299"),
}


@pytest.mark.parametrize("case", GOOD)
def test_its_line_is_kept(book: Path, case: str) -> None:
    """Once, as it was signed; asked again, the book has it already and nobody is asked."""
    engine = engine_of(str(book), writes=True)
    with answering(GOOD[case]) as (url, requested), _undone(book):
        witness = Witness.parse(f"{COSIGNER.key.vkey}={url}")
        done = witness_newest(engine, witness)
        assert (done.size, done.repeated, done.line) == (10, False, COSIGNER.line(note_of(requested[0])))
        assert requested[0].startswith(b"old 0\n\n")
        again = witness_newest(engine, witness)
        assert (again.line, again.repeated, len(requested)) == (done.line, True, 1)
        with engine.begin() as connection:
            assert newest_size(connection, COSIGNER.key) == 10
            assert newest_size(connection, STRANGER.key) == 0
            assert check_cosignatures(Snapshot(connection)) == 1
    engine.dispose()


@pytest.mark.parametrize("case", BAD)
def test_anything_else_is_not_kept(book: Path, case: str) -> None:
    """A sentence that says what it was; the book is as before."""
    answer, kind, said = BAD[case]
    engine = engine_of(str(book), writes=True)
    with answering(answer) as (url, requested):
        with pytest.raises(kind, match=said):
            witness_newest(engine, Witness.parse(f"{COSIGNER.key.vkey}={url}"))
        assert 1 <= len(requested) <= ATTEMPTS
    with engine.begin() as connection:
        assert check_cosignatures(Snapshot(connection)) == 0
    engine.dispose()


def test_an_answer_that_never_ends_is_not_waited_for(book: Path) -> None:
    """Not by the client's own timeout, which begins again with each piece: a header in time keeps it for ever."""
    engine = engine_of(str(book), writes=True)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        witness = Witness.parse(f"{COSIGNER.key.vkey}=http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(Malformed, match=r"^cosignature: took more than .* or 0\.2 seconds"):
            witness_newest(engine, witness, answer_s=0.2)
    engine.dispose()


def test_a_size_that_it_knows_is_proven_from(book: Path) -> None:
    """The second request holds the consistency proof from there, as the request's own bytes say."""
    engine = engine_of(str(book), writes=True)

    def answer(requested: bytes) -> Answer:
        known = requested.startswith(b"old 7\n")
        return (200, PLAIN, line(COSIGNER, note_of(requested))) if known else (409, f"{SIZE_TYPE}; a=b", b"7\n")

    with answering(answer) as (url, requested), _undone(book):
        assert witness_newest(engine, Witness.parse(f"{COSIGNER.key.vkey}={url}")).size == 10
        head, _, note = requested[1].decode().partition("\n\n")
        assert head.split("\n")[0] == "old 7"
        now = Checkpoint.open(note, LOG)
        with engine.begin() as connection:
            before = Checkpoint(now.origin, 7, Snapshot(connection).root_at(7))
        check_extends(before, now, read_proof(head.split("\n")[1:], "proof"))
    engine.dispose()


@contextmanager
def _undone(book: Path) -> Iterator[None]:
    """What the block keeps is taken out again, with the triggers away."""
    try:
        yield
    finally:
        _tampered(book, delete(COSIGNATURE))


def _tampered(book: Path, statement: object) -> None:
    engine = engine_of(str(book), writes=True)
    with engine.begin() as connection:
        for name in sqlite_triggers():
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        connection.execute(statement)  # type: ignore[call-overload]  # any statement
        for made in sqlite_triggers().values():
            connection.exec_driver_sql(made)
    engine.dispose()


def test_what_is_kept_is_checked(book: Path) -> None:
    """A line changed, moved to another size, under another key, or over no checkpoint: found."""
    table = COSIGNATURE
    engine = engine_of(str(book), writes=True)
    with engine.begin() as connection:
        note = Snapshot(connection).checkpoint
    good = COSIGNER.line(note)
    rows = {
        "does not verify": {"tree_size": 10, "vkey": COSIGNER.key.vkey, "line": COSIGNER.line(NOTE)},
        "is not of": {"tree_size": 10, "vkey": STRANGER.key.vkey, "line": good},
        "is over no checkpoint": {"tree_size": 9, "vkey": COSIGNER.key.vkey, "line": good},
        "under its own id": {"tree_size": 10, "vkey": LOG.vkey, "line": good},
        "not one line": {"tree_size": 10, "vkey": COSIGNER.key.vkey, "line": good + STRANGER.line(note)},
    }
    for said, row in rows.items():
        with _undone(book):
            _tampered(book, insert(table).values(row))
            with engine.begin() as connection, pytest.raises(VerificationFailed, match=f"^cosignature at .*{said}"):
                check_cosignatures(Snapshot(connection))
    with engine.begin() as connection, pytest.raises(Malformed, match="does not verify"):
        store_cosignature(connection, 10, COSIGNER.key, COSIGNER.line(NOTE))
    with _undone(book):
        with engine.begin() as connection:
            store_cosignature(connection, 10, COSIGNER.key, good)
            store_cosignature(connection, 10, COSIGNER.key, COSIGNER.line(note, 5))
            assert check_cosignatures(Snapshot(connection)) == 1
        # In the midst of the signature: its last character holds bits that have one spelling only.
        other = good[:-20] + ("B" if good[-20] == "A" else "A") + good[-19:]
        _tampered(book, update(table).values(line=other))
        with engine.begin() as connection, pytest.raises(VerificationFailed, match="does not verify"):
            check_cosignatures(Snapshot(connection))
    engine.dispose()


def test_a_receipt_is_under_what_most_witnesses_signed(tmp_path: Path) -> None:
    """The newest of those that take the entry in; the newest checkpoint of all where no witness has seen the entry."""
    with open_world(tmp_path) as world:
        engine = engine_of(world.url, writes=True)
        seen = ((10, (COSIGNER, STRANGER)), (11, (COSIGNER,)), (12, ()))
        for size, cosigners in seen:
            while world.size < size:
                (done,) = world.submit(world.merger() if size == 11 else world.charge("run-1"))
                assert done.code.recorded
            with engine.begin() as connection:
                for one in cosigners:
                    store_cosignature(connection, size, one.key, one.line(Log(connection).checkpoint))
        with engine.begin() as connection:
            log = Log(connection)
            for index, size, count in ((0, 10, 2), (9, 10, 2), (10, 11, 1), (11, 12, 0)):
                text = cosigned_receipt(log, index)
                assert verify_receipt(text, log.entry(index), LOG)[1].size == size
                assert len(Note.parse(text.partition("\n\n")[2]).lines) == 1 + count
            for index in (-1, 12):
                with pytest.raises(KeyError):
                    cosigned_receipt(log, index)
        engine.dispose()


def test_request_bytes() -> None:
    """``old``, the hashes, a blank line, the checkpoint: as tlog-witness spells them."""
    log = log_of(11)
    head, _, note = add_checkpoint(7, log.consistency(7, 11), NOTE).decode().partition("\n\n")
    assert head.split("\n")[0] == "old 7"
    assert len(head.split("\n")) == 1 + len(log.consistency(7, 11))
    assert note == NOTE
    assert add_checkpoint(0, [], NOTE) == b"old 0\n\n" + NOTE.encode()


@pytest.mark.parametrize(
    "body", [b"", b"7", b"7\n\n", b" 7\n", b"07\n", b"-7\n", b"7\r\n", b"1" * 17 + b"\n", b"\xd9\xa7\n"]
)
def test_a_size_is_one_line(body: bytes) -> None:
    """Anything else is refused by name."""
    assert read_size(b"7\n") == 7
    with pytest.raises(Malformed, match=r"^size: "):
        read_size(body)


def test_cosignatures_stand_under_the_log_s_own() -> None:
    """The checkpoint with them is one note, and reads as before."""
    note = NOTE + COSIGNER.line(NOTE) + STRANGER.line(NOTE)
    assert [name for name, _ in Note.parse(note).lines][1:] == [COSIGNER.key.name, STRANGER.key.name]
    assert read_cosignature(COSIGNER.line(NOTE).encode(), note, COSIGNER.key) == COSIGNER.line(NOTE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        COSIGNER.key.vkey,
        f"{COSIGNER.key.vkey}=",
        f"{COSIGNER.key.vkey}=ftp://witness.example",
        f"{COSIGNER.key.vkey}=http://",
        f"{COSIGNER.key.vkey}=https://witness.example/?a=b",
        f"{LOG.vkey}=https://witness.example",
        f"{COSIGNER.key.vkey[:-1]}=https://witness.example",
        "https://witness.example",
    ],
)
def test_what_names_no_witness(text: str) -> None:
    """Key and URL, both as they must be."""
    with pytest.raises(Malformed, match=r"^(witness|vkey): "):
        Witness.parse(text)


def test_a_witness_by_name() -> None:
    """The slash at the URL's end changes nothing."""
    for end in ("", "/"):
        found = Witness.parse(f"{COSIGNER.key.vkey}=https://witness.example/w1{end}")
        assert (found.key, str(found.url)) == (WitnessKey.parse(COSIGNER.key.vkey), "https://witness.example/w1")
