"""A partition's file at rest: sealed records, or an archive that was sealed in one piece."""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeAlias

from client.dataset_files.record_commitments import MAGIC as COMMITMENTS_MAGIC
from client.dataset_files.sealed_records import MAGIC, SealedRecords
from client.keys.data_encryption import decrypt
from ledger.wire.malformed import Malformed

_OPEN_FORMATS: Final = (b"PK\x03\x04", b"PAR1", b"\x93NUMPY", COMMITMENTS_MAGIC)
"""How an archive, a Parquet file, an array and a file of commitments begin, which lies beside what is sealed.

What was sealed in one piece begins with random bytes.
"""
_HEAD_BYTES: Final = 512
"""So many random bytes are no UTF-8."""
PartitionData: TypeAlias = bytes | SealedRecords
"""What a data key opens: an archive's bytes, or records that are decrypted frame by frame."""


class NotOpened(Malformed):
    """A partition's file does not open with its data key: nothing of it was read.

    Attributes:
        posted: whether the charge was posted for no steps, so that the run is over for good.
    """

    posted = False


class StoredPartition:
    """The file, opened before its key is there; closed when nothing refers to it any more."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises: OSError; for a folder too, by its name."""
        self._file: Final = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        found = os.fstat(self._file)
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        self.size: Final = found.st_size

    def read(self, at: int, count: int) -> bytes:
        """At most so many bytes from there. Raises: OSError."""
        # Not a memory map: a file that is cut while it is mapped would end the process by a signal.
        parts, left = [], count
        while left > 0 and (part := os.pread(self._file, left, at + count - left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)

    def open(self, data_key: bytes, ref: str) -> PartitionData:
        """What the key opens. Raises: Malformed, if the key, the partition or a byte is another; OSError."""
        if self.read(0, len(MAGIC)) == MAGIC:
            return SealedRecords(self, data_key, ref)
        return decrypt(data_key, ref, self.read(0, self.size))

    def is_in_the_clear(self) -> bool:
        """Whether this is something that was never sealed, as a table of text or an archive. Raises: OSError."""
        head = self.read(0, _HEAD_BYTES)
        if head.startswith(MAGIC):
            return False
        if head.startswith(_OPEN_FORMATS):
            return True
        try:
            head.decode("utf-8")
        except UnicodeDecodeError as error:
            # A character may be cut where the head ends.
            return error.reason == "unexpected end of data" and len(head) == _HEAD_BYTES
        return True


def stored_partitions(files: Mapping[str, Path]) -> list[tuple[str, StoredPartition]]:
    """The files of a job's partitions, by reference, open and looked at before a data key is there.

    Raises:
        Malformed: for a file that is not sealed. OSError.
    """
    found = [(ref, StoredPartition(path)) for ref, path in files.items()]
    for ref, stored in found:
        if stored.is_in_the_clear():
            rule = f"{files[ref]} is not sealed: name the records.sealed that `epsilon dataset seal` made"
            raise Malformed(f"train.data.{ref}", rule)
    return found
