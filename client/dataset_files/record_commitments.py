r"""Commitments to records, as a policy may require them of a partition: made here, read by the writer that decides.

    b"epsilon-commitments/1\n" + 32 bytes that name the key + one 32-byte commitment a record, in rising order

A commitment is the HMAC-SHA-256, under a key of the provider's own, of what a record is committed by:

- ``identity``, a line feed, and the RFC 8785 JSON of the list of its identity columns as text in Unicode's form NFC; of
  an archive's arrays the bytes of the record in each;
- where no identity is named, ``record``, a line feed, and the record's bytes as they are sealed.

The key's name is the SHA-256 of its HMAC of nothing. Records of one identity have one commitment. The key stays with
the provider and serves all its partitions: under another key, old records are not noticed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

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


class RecordCommitments:
    """The commitments to some records, each once; or to persons.

    A record whose identity is spelled in another Unicode form than NFC is committed to by that spelling too, for the
    commitments of before are of it.
    """

    def __init__(self, key: bytes, magic: bytes = MAGIC) -> None:
        """None yet; ``magic`` says of what."""
        self._key, self._magic = key, magic
        self._made: set[bytes] = set()
        self._spelled: set[bytes] = set()

    def add(self, identities: Iterable[bytes], spelled: Iterable[bytes] = ()) -> None:
        """Commit to more records, and to how some are spelled. Raises: Malformed, for more than a partition names."""
        self._made.update(commitment(self._key, identity) for identity in identities)
        self._spelled.update(commitment(self._key, identity) for identity in spelled)
        if len(self._made | self._spelled if self._spelled else self._made) > COMMITTED_MAX:
            rule = f"are more than {COMMITTED_MAX}, which one partition can name: split it, or make none"
            raise Malformed("commitments", rule)

    def __len__(self) -> int:
        """How many different records they are of."""
        return len(self._made)

    def values(self) -> frozenset[bytes]:
        """Each of them."""
        return frozenset(self._made)

    def documents(self, only: frozenset[bytes] | None = None) -> Iterator[bytes]:
        """The documents that hold them, or ``only`` these of them."""
        head = self._magic + hashlib.sha256(hmac.digest(self._key, b"", "sha256")).digest()
        ordered = sorted(self._made | self._spelled if only is None else self._made & only)
        for start in range(0, len(ordered), PER_DOCUMENT):
            yield head + b"".join(ordered[start : start + PER_DOCUMENT])


def commitment(key: bytes, identity: bytes) -> bytes:
    """The commitment to one record, by what it is committed by."""
    return hmac.digest(key, identity, "sha256")


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
