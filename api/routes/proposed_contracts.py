"""Signatures by which parties propose a contract: documents beside the log, found among the others and verified.

A proposal is a contract's bytes and a party's signature over them, made for this service's path of proposals:

    {"alg":"Ed25519",...,"htm":"PUT","htu":"https://ledger.example/v1/contract-proposals/<sha256>","iat":1795233600,...}

Both are documents, so they are durable, and every process of the book finds them. A signature that was made to store a
document, or for a dry run, proposes nothing.

No index finds these documents, so all are searched when a process starts. From then on a third document tells it of a
new one: with each signature the next of a series of notices is stored, whose bytes are known beforehand, so that one
look-up by digest says whether there is news. Two processes that store the same notice at once could hide one signature
from a third: all documents are searched again every hour.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from client.http.endpoints import PROPOSALS
from ledger.crypto import detached_jws
from ledger.domain.key_terms import key_refusal
from ledger.store.documents import detached_signatures
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.checks.field_readers import DAY_MS
from policy.decisions.documents_in_force import read_contract

OPEN_MS: Final = 30 * DAY_MS
"""How long a signature is listed."""
OPEN_MAX: Final = 20
"""Contracts that one organisation may have proposed at a time."""
REFRESH_MS: Final = 30_000
"""After this time the next notice is looked up, for what another process stored."""
SEARCH_MS: Final = 3_600_000
"""After this time all documents are searched again."""
SKEW_MS: Final = 300_000
"""How far a signature's time may lie ahead."""


@dataclass(frozen=True, slots=True)
class Proposed:
    """One party's verified signature over a contract: digests of both, and when it was made (ms)."""

    document: str
    organisation: str
    signature: str
    time: int


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

    def __init__(self, url: str, clock: Callable[[], int]) -> None:
        """Those made for the service at ``url``; ``clock`` gives Unix milliseconds."""
        self._url, self._clock = url, clock
        self._lock = threading.Lock()
        self._read_at: int | None = None
        self._looked_at = 0
        self._notices = 0
        self._found: tuple[Proposed, ...] = ()
        self._added: tuple[Proposed, ...] = ()

    def add(self, one: Proposed) -> None:
        """List a signature that was verified and stored just now, before the documents are read again."""
        with self._lock:
            # A reader whose snapshot is older may read the documents after this.
            self._added = (*self._added, one)
            self._found = tuple(_newest((one, *self._found)))

    def all(self, facts: Snapshot) -> tuple[Proposed, ...]:
        """The newest signatures of every organisation, the newest first."""
        now = self._clock()
        with self._lock:
            if self._is_due(facts, now):
                self._notices = next_notice(facts)
                self._added = tuple(one for one in self._added if abs(now - one.time) < SKEW_MS + REFRESH_MS)
                self._found = tuple(_newest((*self._added, *self._signatures(facts, now))))
                self._read_at = self._looked_at = now
            return tuple(one for one in self._found if now - one.time < OPEN_MS)

    def _is_due(self, facts: Snapshot, now: int) -> bool:
        """Whether there may be a signature that was not read: another process stored a notice, or much time went by."""
        if self._read_at is None or abs(now - self._read_at) >= SEARCH_MS:
            return True
        if abs(now - self._looked_at) < REFRESH_MS:
            return False
        self._looked_at = now
        return c.digest(notice(self._notices)) in facts.documents

    def _signatures(self, facts: Snapshot, now: int) -> Iterator[Proposed]:
        # A signature is stored by any party that holds it, so each is verified here, too.
        for digest, data in [*detached_signatures(facts.connection, detached_jws.SIGNATURE_BYTES_MAX)]:
            try:
                found = self._proposed(facts, digest, data.decode("ascii"), now)
            except (Malformed, UnicodeDecodeError):
                continue
            if found is not None:
                yield found

    def _proposed(self, facts: Snapshot, digest: str, signature: str, now: int) -> Proposed | None:
        """The proposal that a signature makes; None where it makes none. Raises: Malformed."""
        call = detached_jws.call_of(signature)
        if call is None or call.method != "PUT" or call.url != f"{self._url}{PROPOSALS}/{call.id}":
            return None
        signed = call.time_s * 1000
        data, key = facts.documents.get(call.id), facts.keys.get(detached_jws.key_id_of(signature))
        if not now - OPEN_MS < signed <= now + SKEW_MS or data is None or key is None or call.id in facts.contracts:
            return None
        by_party = key.charge is None and key.owner in read_contract(data).signers
        if not by_party or key_refusal(facts, key.key_id, now):
            return None
        detached_jws.verify(signature, data, key.public)
        return Proposed(call.id, key.owner, digest, signed)


def _newest(found: Iterable[Proposed]) -> Iterator[Proposed]:
    """The newest signature of each organisation on each contract, and of each organisation the newest alone."""
    counted, seen = Counter[str](), set[tuple[str, str]]()
    for one in sorted(found, key=lambda one: (-one.time, one.signature)):
        if (one.document, one.organisation) not in seen and counted[one.organisation] < OPEN_MAX:
            seen.add((one.document, one.organisation))
            counted[one.organisation] += 1
            yield one
