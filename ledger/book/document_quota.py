"""Documents that were stored and that no entry has referred to yet: how much of the disk anyone may take.

A document is stored before the command that refers to it, by whoever reaches the port. So what was stored within the
last hour and is still referred to by nothing may not grow beyond a bound; what an entry refers to is no longer counted.
The count is this process's own and begins at zero.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from ledger.book.submission import BookBusy
from ledger.wire.canonical_json import Json

BYTES_MAX: Final = 64 << 20
DOCUMENTS_MAX: Final = 4_096
KEEP_MS: Final = 3_600_000


class Shelf:
    """What waits to be referred to."""

    def __init__(self) -> None:
        """Empty."""
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._bytes = 0

    def take(self, digest: str, size: int, now: int) -> None:
        """Count a document of ``size`` bytes, stored at ``now`` (ms). Raises: BookBusy, if there are too many."""
        with self._lock:
            while self._waiting and next(iter(self._waiting.values()))[0] <= now - KEEP_MS:
                self._drop(next(iter(self._waiting)))
            if len(self._waiting) >= DOCUMENTS_MAX or self._bytes + size > BYTES_MAX:
                raise BookBusy("too many documents were stored lately that no entry refers to; refer to them, or wait")
            self._waiting[digest] = now, size
            self._bytes += size

    def used(self, request: Json) -> None:
        """An entry holds this request, so that whatever it names is referred to."""
        if not self._waiting:
            return
        if isinstance(request, str):
            with self._lock:
                self._drop(request)
        elif isinstance(request, dict):
            for value in request.values():
                self.used(value)
        elif isinstance(request, list):
            for value in request:
                self.used(value)

    def _drop(self, digest: str) -> None:
        _, size = self._waiting.pop(digest, (0, 0))
        self._bytes -= size
