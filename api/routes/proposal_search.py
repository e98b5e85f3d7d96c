"""A search among stored signatures for proposals of contracts, which costs a reader little whatever others stored.

Whoever stores a document beside the log may store the signature of a proposal with it, which the service never took. So
a document is read only once the signature over it verifies, in the quota of pricing of who signed it, and once for its
digest; of each organisation the newest few. A search takes a bounded time of the reader who is there, and goes on with
the next one's: those documents first whose signers took the least time so far.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

from ledger.crypto import detached_jws
from ledger.crypto.organisation_keys import SignerKey
from ledger.store.snapshot import Snapshot
from ledger.wire.malformed import Malformed
from policy.documents import ContractDocument

OPEN_MAX: Final = 20
"""Contracts that one organisation may have proposed at a time."""
READ_S: Final = 0.1
"""Of a processor, after which a reader verifies no more signatures and reads no more documents that others stored."""
VERIFIED_MAX: Final = 65_536
"""Signatures of which it is known whether they verify; beyond, the one that was verified first is forgotten."""


class Terms(NamedTuple):
    """What a list of proposals shows of a contract; ``signers`` are all that must sign it."""

    consumer: str
    ends: int
    id: str
    providers: tuple[str, ...]
    signers: tuple[str, ...]
    starts: int
    version: int

    @classmethod
    def of(cls, contract: ContractDocument) -> Self:
        """Those of a contract that was read."""
        return cls(
            consumer=contract.tdc,
            ends=contract.ends,
            id=contract.id,
            providers=contract.tdps,
            signers=contract.signers,
            starts=contract.starts,
            version=contract.version,
        )


@dataclass(frozen=True, slots=True)
class Proposed:
    """One party's verified signature over a contract: digests of both, its time (ms), and the contract's terms."""

    document: str
    organisation: str
    signature: str
    time: int
    terms: Terms


class Claim(NamedTuple):
    """A stored signature by which a document would be proposed: whether it verifies is not known."""

    document: str
    organisation: str
    signature: str
    time: int
    text: str
    key: SignerKey


class Reading:
    """Verifies signatures and reads documents, each once for its digest, failures too; for one thread at a time."""

    def __init__(self, pay: Callable[[str, float], None] | None) -> None:
        """Nothing is known yet."""
        self._pay = pay
        self._verified: dict[str, bool] = {}
        self._terms: dict[str, Terms | None] = {}
        self.spent_s = defaultdict[str, float](float)

    def keep(self, known: Iterable[Proposed]) -> None:
        """Take the terms of contracts that were read when they were proposed."""
        self._terms.update({one.document: one.terms for one in known})

    def forget_others(self, documents: Iterable[str]) -> None:
        """Keep what is known of these documents alone, so that it is bounded."""
        self._terms = {name: self._terms[name] for name in documents if name in self._terms}

    def verifies(self, facts: Snapshot, claim: Claim) -> bool:
        """Whether its signature is over the document, which is there."""
        if (known := self._verified.get(claim.signature)) is not None:
            return known
        try:
            if (data := facts.documents.get(claim.document)) is None:
                return False
            detached_jws.verify(claim.text, data, claim.key)
        except Malformed:
            found = False
        else:
            found = True
        if len(self._verified) >= VERIFIED_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[claim.signature] = found
        return found

    def has_read(self, document: str) -> bool:
        """Whether it is known what a document is."""
        return document in self._terms

    def terms(self, document: str) -> Terms | None:
        """Those of a document that was read; None if it is no contract."""
        return self._terms[document]

    def read(self, facts: Snapshot, claim: Claim) -> None:
        """Read a document in the time of who signed it: it is as slow to read as that one made it."""
        begun, found = time.thread_time(), None
        try:
            # The snapshot of one reader may be older than that of the reader who verified it.
            if (data := facts.documents.get(claim.document)) is None:
                return
            found = Terms.of(ContractDocument.parse(data))
        except Malformed:
            pass
        seconds = time.thread_time() - begun
        self._terms[claim.document] = found
        self.spent_s[claim.organisation] += seconds
        if self._pay is not None:
            self._pay(claim.organisation, seconds)


class Found(NamedTuple):
    """The proposals that a search has found so far, and whether it is at its end."""

    proposed: list[Proposed]
    complete: bool


class Search:
    """One search of all claims, by one reader after another."""

    def __init__(self, claims: Iterable[Claim], reading: Reading) -> None:
        """Begin with the newest."""
        self._left = deque(sorted(claims, key=_by_time))
        self._reading = reading
        self._picks, self._verified = _Picks(), list[Claim]()

    def go_on(self, facts: Snapshot) -> Found:
        """Search on for a bounded time: at least one signature is verified, and one document read, if any is left."""
        begun, reading = time.thread_time(), self._reading

        def is_over() -> bool:
            return time.thread_time() - begun >= READ_S

        while self._left:
            claim = self._left[0]
            if self._picks.would_take(claim) and reading.verifies(facts, claim):
                self._picks.take(claim)
                self._verified.append(claim)
            # Not before: a database that does not answer loses no claim.
            self._left.popleft()
            if is_over():
                break
        unread = {one.document: one for one in reversed(self._verified) if not reading.has_read(one.document)}
        while unread:
            claim = min(unread.values(), key=lambda one: (reading.spent_s[one.organisation], *_by_time(one)))
            reading.read(facts, claim)
            del unread[claim.document]
            if is_over():
                break
        if complete := not self._left and not unread:
            reading.forget_others(one.document for one in self._verified)
        return Found([*self._proposed()], complete)

    def _proposed(self) -> Iterator[Proposed]:
        """What those signatures propose whose documents were read."""
        for one in self._verified:
            terms = self._reading.terms(one.document) if self._reading.has_read(one.document) else None
            if terms is not None and one.organisation in terms.signers:
                yield Proposed(one.document, one.organisation, one.signature, one.time, terms)


class _Picks:
    """The newest signature of each organisation on each contract, and of each organisation so many contracts."""

    def __init__(self) -> None:
        """None yet; they are offered from the newest on."""
        self._counted, self._seen = Counter[str](), set[tuple[str, str]]()

    def would_take(self, one: Proposed | Claim) -> bool:
        """Whether it is one of them."""
        return (one.document, one.organisation) not in self._seen and self._counted[one.organisation] < OPEN_MAX

    def take(self, one: Proposed | Claim) -> None:
        """Count it."""
        self._seen.add((one.document, one.organisation))
        self._counted[one.organisation] += 1


def _by_time(one: Proposed | Claim) -> tuple[int, str]:
    """The newest first."""
    return -one.time, one.signature


def newest(found: Iterable[Proposed]) -> Iterator[Proposed]:
    """The newest signature of each organisation on each contract, and of each organisation the newest alone."""
    picks = _Picks()
    for one in sorted(found, key=_by_time):
        if picks.would_take(one):
            picks.take(one)
            yield one
