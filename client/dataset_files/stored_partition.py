"""A partition's file at rest: sealed records, or an archive that was sealed in one piece."""

from __future__ import annotations

import os
import weakref
from pathlib import Path
from typing import Final, TypeAlias

from client.dataset_files.sealed_records import MAGIC, SealedRecords
from client.keys.data_encryption import decrypt

PartitionData: TypeAlias = bytes | SealedRecords
"""What a data key opens: an archive's bytes, or records that are decrypted frame by frame."""


class StoredPartition:
    """The file, opened before its key is there; closed when nothing refers to it any more."""

    def __init__(self, path: Path) -> None:
        """Open the file. Raises: OSError."""
        self._file: Final = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        self.size: Final = os.fstat(self._file).st_size

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
