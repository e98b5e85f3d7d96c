"""A quota on documents that no entry refers to yet: a bound on the disk space that clients can fill.

A client stores a document before it submits the command that refers to it. So the documents of the last hour that no
entry refers to are limited in number and in bytes. A document leaves the quota when an entry refers to it, or after an
hour. Each process counts its own documents, from zero.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from ledger.book.submitted_command import BookBusy
from ledger.wire.canonical_json import Json

BYTES_MAX: Final = 64 << 20
DOCUMENTS_MAX: Final = 4_096
KEEP_MS: Final = 3_600_000


class DocumentQuota:
    """The documents that no entry refers to yet."""

    def __init__(self) -> None:
        """Begin with no document."""
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._bytes = 0

    def reserve(self, digest: str, size: int, now: int) -> None:
        """Count a document of ``size`` bytes, stored at ``now`` (ms). Raises: BookBusy, if there are too many."""
        with self._lock:
            while self._waiting and next(iter(self._waiting.values()))[0] <= now - KEEP_MS:
                self._drop(next(iter(self._waiting)))
            if len(self._waiting) >= DOCUMENTS_MAX or self._bytes + size > BYTES_MAX:
                raise BookBusy("too many documents were stored lately that no entry refers to; refer to them, or wait")
            self._waiting[digest] = now, size
            self._bytes += size

    def release(self, request: Json) -> None:
        """Stop counting every document that a recorded request refers to."""
        if not self._waiting:
            return
        if isinstance(request, str):
            with self._lock:
                self._drop(request)
        elif isinstance(request, dict):
            for value in request.values():
                self.release(value)
        elif isinstance(request, list):
            for value in request:
                self.release(value)

    def _drop(self, digest: str) -> None:
        _, size = self._waiting.pop(digest, (0, 0))
        self._bytes -= size
