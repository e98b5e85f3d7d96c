r"""Commitments to records, as a policy may require them of a partition: made here, read by the writer that decides.

    b"epsilon-commitments/1\n" + 32 bytes that name the key + one 32-byte commitment a record, in rising order

A commitment is the HMAC-SHA-256, under a key of the provider's own, of what a record is committed by:

- ``identity``, a line feed, and the RFC 8785 JSON of the list of its identity columns as text; of an archive's arrays
  the bytes of the record in each;
- where no identity is named, ``record``, a line feed, and the record's bytes as they are sealed.

The key's name is the SHA-256 of its HMAC of nothing. Records of one identity have one commitment. The key stays with
the provider and serves all its partitions: under another key, old records are not noticed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final

from client.keys.private_file import read_private
from ledger.domain.gate import DOCUMENT_BYTES_MAX
from ledger.files.atomic_file import create_file
from ledger.wire.malformed import Malformed

MAGIC: Final = b"epsilon-commitments/1\n"
PERSONS_MAGIC: Final = b"epsilon-persons/1\n"
"""Of commitments to the persons of a stream's slice: by ``person``, a line feed, and the same of its own columns."""
SIZE: Final = 32
KEY_BYTES: Final = 32
DOCUMENTS_MAX: Final = 32
PER_DOCUMENT: Final = (DOCUMENT_BYTES_MAX - len(MAGIC) - SIZE) // SIZE
COMMITTED_MAX: Final = DOCUMENTS_MAX * PER_DOCUMENT
"""Different records that one partition can commit to."""
RUN_RECORDS: Final = 1 << 17
"""So many are held in memory: with what Python adds, 16 MB."""
_READ_RECORDS: Final = 1 << 10


class RecordCommitments:
    """The commitments to some records, each once; or to persons.

    More than memory should hold are written as sorted runs into unnamed files, and merged at the end.
    """

    def __init__(self, key: bytes, magic: bytes = MAGIC, folder: Path | None = None) -> None:
        """None yet; ``magic`` says of what, and ``folder`` where runs are written; None: the system's own."""
        self._key, self._magic, self._folder = key, magic, folder
        self._recent: set[bytes] = set()
        self._runs: list[IO[bytes]] = []
        self._in_runs = 0
        self.count = 0
        """How many different ones the documents that were made hold."""

    def add(self, identities: Iterable[bytes]) -> None:
        """Commit to more records. Raises: Malformed, for more than a partition can name; OSError."""
        self._recent.update(hmac.digest(self._key, one, "sha256") for one in identities)
        if len(self._recent) >= RUN_RECORDS:
            self._write_run(sorted(self._recent))
            self._recent.clear()
            # What several runs hold counts in each, so they are merged before it is said that they are too many.
            if self._in_runs > 2 * COMMITTED_MAX:
                self._merge_runs()

    def documents(self) -> Iterator[bytes]:
        """The documents that hold them, one after the other. Raises: as :meth:`add`."""
        self.count = 0
        head = len(self._magic) + SIZE
        for document in documents_of(_merged(self._runs, self._recent), self._key, self._magic):
            self.count += (len(document) - head) // SIZE
            _check_count(self.count)
            yield document

    def close(self) -> None:
        """Let go of the files."""
        for run in self._runs:
            run.close()
        self._runs.clear()

    def _write_run(self, ordered: Iterable[bytes]) -> None:
        run = TemporaryFile(dir=self._folder)  # noqa: SIM115 - closed with the others
        self._runs.append(run)
        for part in _batched(ordered, _READ_RECORDS):
            run.write(b"".join(part))
            self._in_runs += len(part)
        run.flush()

    def _merge_runs(self) -> None:
        before, self._runs, self._in_runs = self._runs, [], 0
        try:
            self._write_run(_merged(before, ()))
        finally:
            for run in before:
                run.close()
        _check_count(self._in_runs)


def commitments_to(identities: Iterable[bytes], key: bytes) -> frozenset[bytes]:
    """The commitments to records that memory holds. Raises: Malformed, for more than a partition can name."""
    found = frozenset(hmac.digest(key, one, "sha256") for one in identities)
    _check_count(len(found))
    return found


def documents_of(ordered: Iterable[bytes], key: bytes, magic: bytes = MAGIC) -> Iterator[bytes]:
    """The documents that hold these commitments under a key, each once and in rising order."""
    head = magic + hashlib.sha256(hmac.digest(key, b"", "sha256")).digest()
    for part in _batched(ordered, PER_DOCUMENT):
        yield head + b"".join(part)


def _merged(runs: Sequence[IO[bytes]], recent: Iterable[bytes]) -> Iterator[bytes]:
    """Each of them once, in rising order."""
    before = b""
    for one in merge(*map(_read_run, runs), sorted(recent)):
        if one != before:
            yield one
        before = one


def _batched(items: Iterable[bytes], count: int) -> Iterator[list[bytes]]:
    rest = iter(items)
    while part := [*islice(rest, count)]:
        yield part


def _check_count(count: int) -> None:
    if count > COMMITTED_MAX:
        rule = f"are more than {COMMITTED_MAX}, which one partition can name: split it, or make none"
        raise Malformed("commitments", rule)


def _read_run(run: IO[bytes]) -> Iterator[bytes]:
    run.seek(0)
    while part := run.read(SIZE * _READ_RECORDS):
        yield from (part[at : at + SIZE] for at in range(0, len(part), SIZE))


def read_values(document: bytes) -> list[bytes]:
    """The commitments in a document, in order. Raises: Malformed, for what is no such document."""
    head = len(PERSONS_MAGIC if document.startswith(PERSONS_MAGIC) else MAGIC)
    if not document.startswith((MAGIC, PERSONS_MAGIC)) or len(document) <= head + SIZE or (len(document) - head) % SIZE:
        raise Malformed("commitments", "are none as `epsilon dataset seal` and `commit` write them")
    return [document[at : at + SIZE] for at in range(head + SIZE, len(document), SIZE)]


def read_or_make_key(path: Path, field: str) -> tuple[bytes, bool]:
    """A key of 32 bytes from its file, which its owner alone may read, or a fresh one; whether it was made now.

    Raises:
        Malformed: naming ``field``, for a file that is no such key. OSError.
    """
    if path.is_dir():
        raise Malformed(field, f"{path} is a folder: name a file for the key")
    try:
        key, made = os.urandom(KEY_BYTES), True
        create_file(path, key)
    except FileExistsError:
        key, made = read_private(path, KEY_BYTES + 1, field), False
    if len(key) != KEY_BYTES:
        raise Malformed(field, f"the file {path} does not hold {KEY_BYTES} bytes")
    return key, made
