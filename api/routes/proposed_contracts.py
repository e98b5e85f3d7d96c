"""Signatures by which parties propose a contract: documents beside the log, found among the others and verified.

A proposal is a contract's bytes and a party's signature over them, made for this service's path of proposals:

    {"alg":"Ed25519",...,"htm":"PUT","htu":"https://ledger.example/v1/contract-proposals/<sha256>","iat":1795233600,...}

Both are documents, so they are durable, and every process of the book finds them. A signature that was made to store a
document, or for a dry run, proposes nothing.

No index finds these documents, so all are searched when a process starts. From then on a third document tells it of a
new one: with each signature the next of a series of notices is stored, whose bytes are known beforehand, so that one
look-up by digest says whether there is news. Two processes that store the same notice at once could hide one signature
from a third: all documents are searched again every hour. One reader searches, for a bounded time; others wait for no
search.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final

from api.routes.proposal_search import Claim, Proposed, Reading, Search, newest
from client.http.endpoints import PROPOSALS
from ledger.crypto import detached_jws
from ledger.domain.key_terms import key_refusal
from ledger.store.documents import detached_signatures
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.checks.field_readers import DAY_MS

OPEN_MS: Final = 30 * DAY_MS
"""How long a signature is listed."""
REFRESH_MS: Final = 30_000
"""After this time the next notice is looked up, for what another process stored."""
SEARCH_MS: Final = 3_600_000
"""After this time all documents are searched again."""
SKEW_MS: Final = 300_000
"""How far a signature's time may lie ahead."""


def notice(number: int) -> bytes:
    """The document that says that so many signatures were stored before this one."""
    return f"epsilon-ledger contract proposal {number}\n".encode()


def next_notice(facts: Snapshot) -> int:
    """The first number of the series that is not stored, in a few look-ups by digest."""

    def stored(number: int) -> bool:
        return c.digest(notice(number)) in facts.documents

    beyond = 1
    while stored(beyond - 1):
        beyond *= 2
    return bisect_left(range(beyond), 1, key=lambda number: int(not stored(number)))


class Proposals:
    """The signatures of proposals among a book's documents; what was found is cached for some seconds."""

    def __init__(self, url: str, clock: Callable[[], int], pay: Callable[[str, float], None] | None = None) -> None:
        """Those made for the service at ``url``.

        Args:
            clock: Unix milliseconds.
            pay: takes an organisation and the seconds that a document took to read which it signed.
        """
        self._url, self._clock = url, clock
        self._lock = threading.Lock()
        self._read_at: int | None = None
        self._looked_at = 0
        self._notices = 0
        self._found: tuple[Proposed, ...] = ()
        self._added: tuple[Proposed, ...] = ()
        # Of the one reader that searches, and no lock is held meanwhile.
        self._searches = False
        self._search: Search | None = None
        self._reading = Reading(pay)

    def add(self, one: Proposed) -> None:
        """List a signature that was verified and stored just now, before the documents are read again."""
        with self._lock:
            # A reader whose snapshot is older may read the documents after this.
            self._added = (*self._added, one)
            self._found = tuple(newest((one, *self._found)))

    def all(self, facts: Snapshot) -> tuple[Proposed, ...]:
        """The newest signatures of every organisation, the newest first; while a search goes on, those it has found."""
        now = self._clock()
        with self._lock:
            turn = not self._searches and (self._search is not None or self._is_due(facts, now))
            self._searches |= turn
        if turn:
            try:
                self._go_on(facts, now)
            finally:
                with self._lock:
                    self._searches = False
        with self._lock:
            return tuple(one for one in self._found if now - one.time < OPEN_MS)

    def _is_due(self, facts: Snapshot, now: int) -> bool:
        """Whether there may be a signature that was not read: another process stored a notice, or much time went by."""
        if self._read_at is None or abs(now - self._read_at) >= SEARCH_MS:
            return True
        if abs(now - self._looked_at) < REFRESH_MS:
            return False
        self._looked_at = now
        return c.digest(notice(self._notices)) in facts.documents

    def _go_on(self, facts: Snapshot, now: int) -> None:
        """Search on for a bounded time, or begin to."""
        if self._search is None:
            with self._lock:
                self._reading.keep((*self._added, *self._found))
                self._added = tuple(one for one in self._added if abs(now - one.time) < SKEW_MS + REFRESH_MS)
            notices, search = next_notice(facts), Search(self._claims(facts, now), self._reading)
            self._notices, self._search = notices, search
            self._read_at = self._looked_at = now
        found = self._search.go_on(facts)
        with self._lock:
            # What was found before counts until all is read.
            before = () if found.complete else self._found
            self._found = tuple(newest((*self._added, *found.proposed, *before)))
        if found.complete:
            self._search = None

    def _claims(self, facts: Snapshot, now: int) -> Iterator[Claim]:
        # A signature is stored by any party that holds it, so each is verified here, too.
        for digest, data in [*detached_signatures(facts.connection, detached_jws.SIGNATURE_BYTES_MAX)]:
            try:
                claim = self._claim(facts, digest, data.decode("ascii"), now)
            except (Malformed, UnicodeDecodeError):
                continue
            if claim is not None:
                yield claim

    def _claim(self, facts: Snapshot, digest: str, signature: str, now: int) -> Claim | None:
        """What a signature says it proposes; None where that is nothing, or not open. Raises: Malformed."""
        call = detached_jws.call_of(signature)
        if call is None or call.method != "PUT" or call.url != f"{self._url}{PROPOSALS}/{call.id}":
            return None
        signed, key = call.time_s * 1000, facts.keys.get(detached_jws.key_id_of(signature))
        if not now - OPEN_MS < signed <= now + SKEW_MS or key is None or call.id in facts.contracts:
            return None
        if key.charge is not None or key_refusal(facts, key.key_id, now):
            return None
        return Claim(call.id, key.owner, digest, signed, signature, key.public)
