"""Documents are stored beside the log before a command refers to them, under a quota: a bound on the disk they fill.

The documents of the last hour that no entry refers to are limited in number and in bytes. A document leaves the quota
when an entry refers to it, or after an hour. Each process counts its own documents, from zero.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from sqlalchemy import Connection, Engine

from ledger.book.lost_database import busy_where_lost
from ledger.book.submitted_command import BookBusy
from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from ledger.store.projection_table import append_once
from ledger.store.snapshot import Snapshot
from ledger.store.tables import DOCUMENT
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

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

    def release(self, request: c.Json) -> None:
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


class DocumentStore:
    """Stores the documents of one process, one after another."""

    def __init__(
        self,
        writes: Engine,
        check: Callable[[Connection], None],
        read: Callable[[], AbstractContextManager[Snapshot]],
        now: Callable[[], int],
    ) -> None:
        """Where they are stored.

        Args:
            writes: of the database.
            check: raises BookStopped, if nothing may be written.
            read: a snapshot, in which a document may be there already.
            now: the time (ms).
        """
        self._writes, self._check, self._read, self._now = writes, check, read, now
        self._storing, self._quota = threading.Lock(), DocumentQuota()

    def put(self, data: bytes) -> str:
        """See :meth:`ledger.book.book.Book.put_document`. Raises: BookBusy, BookStopped, Malformed."""
        if len(data) > POLICY_DOCUMENT_BYTES_MAX:
            raise Malformed("document", f"has more than the {POLICY_DOCUMENT_BYTES_MAX} bytes allowed")
        name = c.digest(data)
        with self._storing:
            with self._read() as facts:
                if name in facts.documents:
                    return name
            self._quota.reserve(name, len(data), self._now())
            with busy_where_lost(), self._writes.begin() as connection:
                self._check(connection)
                append_once(connection, DOCUMENT, {"digest": name, "data": data})
        return name

    def release(self, request: c.Json) -> None:
        """Stop counting every document that a recorded request refers to."""
        self._quota.release(request)
