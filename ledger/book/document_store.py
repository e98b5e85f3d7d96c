"""Documents are stored beside the log before a command refers to them, under quotas: a bound on the disk they fill.

The documents of the last hour that no entry refers to are limited in number and in bytes: those of each caller, those
of all clean rooms of one organisation, and all together. A document leaves these quotas when a command that was not
refused refers to it, or after an hour. What a caller may store in a day is limited in bytes, and nothing gives that
back. Each process counts its own documents, from zero.

No caller alone takes the share of another, but all shares together are more than the whole. So the whole has three
pools, one around the other: consumers' own documents and those of clean rooms whose run is over have half; these and
those of clean rooms whose run is pending have three quarters; all have the whole. Consumers' own documents leave a
quarter to pending runs, and both leave a quarter to those who provide and govern.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple

from sqlalchemy import Connection, Engine

from ledger.book.lost_database import busy_where_lost
from ledger.book.submitted_command import BookBusy
from ledger.commands.named_documents import named_documents
from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from ledger.store.projection_table import append_once
from ledger.store.snapshot import Snapshot
from ledger.store.tables import DOCUMENT
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

BYTES_MAX: Final = 64 << 20
"""Of all documents that no entry refers to, in an hour."""
DOCUMENTS_MAX: Final = 4_096
"""As many documents."""
KEEP_MS: Final = 3_600_000
"""How long a document counts that no entry refers to."""
DAY_MS: Final = 86_400_000
"""In which a day's bytes are there again."""
PROVIDER_BYTES_MAX: Final = 24 << 20
"""Of one organisation that governs or provides, in an hour: the commitments of a partition have up to 16 MiB."""
PROVIDER_DOCUMENTS_MAX: Final = 1_024
"""As many documents."""
PROVIDER_DAY_BYTES_MAX: Final = 1 << 30
"""Of one organisation that governs or provides, in a day, whatever refers to them."""
CONSUMER_BYTES_MAX: Final = 8 << 20
"""Of one other organisation in an hour, and of all its clean rooms together."""
CONSUMER_DOCUMENTS_MAX: Final = 512
"""As many documents."""
CONSUMER_DAY_BYTES_MAX: Final = 64 << 20
"""Of one other organisation in a day, and of all its clean rooms together, whatever refers to them."""
ROOM_BYTES_MAX: Final = 2 << 20
"""Of one clean room in an hour."""
ROOM_DOCUMENTS_MAX: Final = 64
"""As many documents."""
_DEBTS_MAX: Final = 4_096
"""Callers whose days are held; beyond, those that owe nothing are forgotten."""
_ROOMS: Final = "*"
"""All clean rooms of an organisation; no charge has this name."""
_CONSUMERS, _PENDING, _ALL = 2, 3, 4
"""The pools, by the quarters of the whole that they have; a document in one is in the wider ones, too."""


@dataclass(frozen=True, slots=True)
class Storer:
    """Who stores a document.

    Attributes:
        organisation: that it acts for; for a clean room, the organisation that made its charge.
        charge: of a clean room, the one charge it is for; else empty.
        provides: an organisation that governs or provides data, and no clean room.
        pending: a clean room whose charge is pending.
    """

    organisation: str
    charge: str = ""
    provides: bool = False
    pending: bool = False

    @property
    def quarters(self) -> int:
        """How many quarters of the whole the narrowest pool has that its documents are in."""
        if self.provides:
            return _ALL
        return _PENDING if self.pending else _CONSUMERS


class DocumentQuotaUsed(BookBusy):
    """A quota of documents is used up.

    Attributes:
        own: whether it is the caller's own share; else all callers together have used theirs.
        wait_ms: after which there is room for this document.
    """

    def __init__(self, detail: str, wait_ms: int, *, own: bool) -> None:
        """Used up for so long."""
        super().__init__(detail)
        self.wait_ms, self.own = wait_ms, own


class _Share(NamedTuple):
    """How much one key may have that no entry refers to; in words, whose that is."""

    key: tuple[str, str]
    documents: int
    size: int
    whose: str


class _Waiting(NamedTuple):
    """A document that no entry refers to: when it was stored, its bytes, its pool, and whose shares it is in."""

    time: int
    size: int
    quarters: int
    keys: tuple[tuple[str, str], ...]


class _Day:
    """The bytes that one key has stored lately: a bucket that drains evenly in a day. Integers, in bytes times ms."""

    def __init__(self, most: int) -> None:
        """Empty; it holds ``most`` bytes."""
        self._most, self._owed, self._at = most, 0, 0

    def owed(self, now: int) -> int:
        """What is in it."""
        return max(0, self._owed - self._most * max(0, now - self._at))

    def wait_ms(self, size: int, now: int) -> int:
        """After how long so many bytes have room, 0 for now."""
        beyond = self.owed(now) + (size - self._most) * DAY_MS
        return max(0, -(-beyond // self._most))

    def add(self, size: int, now: int) -> None:
        """Put so many bytes in."""
        self._owed, self._at = self.owed(now) + size * DAY_MS, now


class DocumentQuota:
    """The documents that no entry refers to yet, and what was stored in a day."""

    def __init__(self) -> None:
        """Begin with no document."""
        self._lock = threading.Lock()
        self._waiting: OrderedDict[str, _Waiting] = OrderedDict()
        self._days: dict[tuple[str, str], _Day] = {}

    def reserve(self, digest: str, size: int, now: int, storer: Storer | None = None) -> None:
        """Count a document of ``size`` bytes, stored at ``now`` (ms).

        Args:
            storer: whose share it is in; without, it counts among all alone.

        Raises:
            DocumentQuotaUsed: a BookBusy, if there are too many; then it does not count.
        """
        with self._lock:
            while self._waiting and next(iter(self._waiting.values())).time <= now - KEEP_MS:
                self._waiting.popitem(last=False)
            self._waiting.pop(digest, None)
            shares = () if storer is None else tuple(_shares(storer))
            for share in shares:
                self._check_share(share, size, now)
            day = None if storer is None else self._day(storer, now)
            if day is not None and (wait_ms := day.wait_ms(size, now)):
                detail = "the quota of bytes of documents a day is used up, whether entries refer to them or not"
                raise DocumentQuotaUsed(detail, wait_ms, own=True)
            quarters = _ALL if storer is None else storer.quarters
            self._check_pools(size, now, quarters)
            self._waiting[digest] = _Waiting(now, size, quarters, tuple(share.key for share in shares))
            if day is not None:
                day.add(size, now)

    def release(self, request: c.Json) -> None:
        """Stop counting every document that a recorded request, which is no refusal, refers to."""
        if not self._waiting:
            return
        with self._lock:
            for digest in named_documents(request):
                self._waiting.pop(digest, None)

    def _check_share(self, share: _Share, size: int, now: int) -> None:
        held = [one for one in self._waiting.values() if share.key in one.keys]
        wait_ms = _wait_ms(held, share.documents, share.size - size, now)
        if wait_ms:
            bound = f"{share.documents} documents or {share.size >> 20} MiB an hour that no entry refers to"
            raise DocumentQuotaUsed(f"the quota {share.whose} of {bound} is used up", wait_ms, own=True)

    def _check_pools(self, size: int, now: int, quarters: int) -> None:
        wait_ms = 0
        for pool in range(quarters, _ALL + 1):
            held = [one for one in self._waiting.values() if one.quarters <= pool]
            documents, most = DOCUMENTS_MAX * pool // _ALL, BYTES_MAX * pool // _ALL
            wait_ms = max(wait_ms, _wait_ms(held, documents, most - size, now))
        if wait_ms:
            detail = "too many documents were stored lately that no entry refers to; refer to them, or wait"
            raise DocumentQuotaUsed(detail, wait_ms, own=False)

    def _day(self, storer: Storer, now: int) -> _Day:
        key = storer.organisation, _ROOMS if storer.charge else ""
        if key not in self._days:
            if len(self._days) >= _DEBTS_MAX:
                self._days = {known: day for known, day in self._days.items() if day.owed(now)}
            self._days[key] = _Day(PROVIDER_DAY_BYTES_MAX if storer.provides else CONSUMER_DAY_BYTES_MAX)
        return self._days[key]


def _shares(storer: Storer) -> Iterator[_Share]:
    """Those that a document of a caller is in. A clean room costs a charge alone, so all of one consumer share one."""
    name = storer.organisation
    if storer.charge:
        yield _Share((name, storer.charge), ROOM_DOCUMENTS_MAX, ROOM_BYTES_MAX, "of this clean room")
        rooms = f"of all clean rooms of {name}"
        yield _Share((name, _ROOMS), CONSUMER_DOCUMENTS_MAX, CONSUMER_BYTES_MAX, rooms)
    elif storer.provides:
        yield _Share((name, ""), PROVIDER_DOCUMENTS_MAX, PROVIDER_BYTES_MAX, f"of {name}")
    else:
        yield _Share((name, ""), CONSUMER_DOCUMENTS_MAX, CONSUMER_BYTES_MAX, f"of {name}")


def _wait_ms(held: list[_Waiting], documents: int, room: int, now: int) -> int:
    """After how long one more document fits beside those that are held, oldest first; 0 for now."""
    count, size, wait_ms = len(held), sum(one.size for one in held), 0
    for one in held:
        if count < documents and size <= room:
            break
        count, size, wait_ms = count - 1, size - one.size, max(1, one.time + KEEP_MS - now)
    return wait_ms


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

    def put(self, data: bytes, storer: Storer | None = None) -> str:
        """See :meth:`ledger.book.book.Book.put_document`. Raises: BookBusy, BookStopped, Malformed."""
        if len(data) > POLICY_DOCUMENT_BYTES_MAX:
            raise Malformed("document", f"has more than the {POLICY_DOCUMENT_BYTES_MAX} bytes allowed")
        name = c.digest(data)
        with self._storing:
            with self._read() as facts:
                if name in facts.documents:
                    return name
            self._quota.reserve(name, len(data), self._now(), storer)
            with busy_where_lost(), self._writes.begin() as connection:
                self._check(connection)
                append_once(connection, DOCUMENT, {"digest": name, "data": data})
        return name

    def release(self, request: c.Json) -> None:
        """Stop counting every document that a recorded request, which is no refusal, refers to."""
        self._quota.release(request)
