"""One way to drive a book, whatever it lies in: signed commands in, outcomes out, charges and accounts read.

A driver is in memory (:mod:`tests.factories.memory`), over a database (:mod:`tests.factories.stored`) or over HTTP
(:mod:`tests.factories.http_driver`). The people, the documents and the first entries are the same in all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

from client.keys.signer import Signer
from ledger.book.batch import LAPSE_ID
from ledger.domain.facts import GLOBAL, Facts, holder_of
from ledger.mechanisms.loss import Loss
from ledger.wire import canonical_json as c
from tests.factories.documents import NONCE, attestation, contract, dataset, partition, policy
from tests.factories.people import BANK_A, BANK_B, HOSPITAL, SRO, CleanRoom, Clock, private_key, registration

ROLES: Final = {SRO: "SRO", HOSPITAL: "TDP", BANK_A: "TDC", BANK_B: "TDC"}
HOLDER: Final = holder_of([*ROLES].index(BANK_A))
"""The account of bank A's lineage: its node is named by the entry that registered it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one command ended: a code's word, and the field that it blames."""

    code: str
    field: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ChargeRead:
    """A charge as a book shows it."""

    state: str
    steps_posted: int | None


class Driver(ABC):
    """A book and everyone who uses it. ``clock`` is the book's, and a test moves it."""

    def __init__(self, clock: Clock) -> None:
        """Drive a book that has no entry yet."""
        self.clock = clock
        self.contract = ""
        self._lapsed: set[str] = set()

    @abstractmethod
    def send(self, signer: Signer, actor: str, kind: str, body: c.Object, name: str) -> Outcome:
        """Sign a command and send it."""

    @abstractmethod
    def store(self, signer: Signer, data: bytes) -> tuple[str, str]:
        """Store a document and the signature over it; the digests of both."""

    @abstractmethod
    def recorded(self, name: str) -> bool:
        """Whether a command of this id is an entry."""

    @abstractmethod
    def charge(self, name: str) -> ChargeRead | None:
        """One charge."""

    @abstractmethod
    def accounts(self, ref: str) -> dict[str, tuple[Loss, Loss]]:
        """By holder, what is posted and what is pending on each account of a partition."""

    @abstractmethod
    def terms(self, ref: str) -> str:
        """The terms of a partition's rule, as JSON."""

    @abstractmethod
    def runs(self, contract: str) -> int:
        """The runs that count against a contract."""

    def nonce(self, charge: str) -> str:
        """What an attestation for a key release must repeat."""
        del charge
        return NONCE

    def lapse(self, charge: str) -> Outcome:
        """Let the book settle what is past its deadline; the outcome for this charge, a conflict if it was not due.

        A book does so before any command; the one that is sent here comes to nothing.
        """
        name = f"{LAPSE_ID}{c.digest(charge.encode())[:32]}"
        assert self.send(signer_of(BANK_A), BANK_A, "void", {"charge": "none"}, "void-none").code == "not_found"
        if name in self._lapsed or not self.recorded(name):
            return Outcome("conflict")
        self._lapsed.add(name)
        found = self.charge(charge)
        assert found is not None
        return Outcome(found.state)

    def found(self) -> None:
        """Enter the organisations, the policy, the data set, and bank A's contract with the hospital."""
        now = self.clock()
        for did, role in ROLES.items():
            self._permitted(
                SRO, "organisation", registration(did, signer_of(did), role), f"organisation-{role}-{did[8:]}"
            )
        self._enter(SRO, "policy", policy(now, lineage={"epsilon_max": "8"}), SRO)
        self._enter(HOSPITAL, "dataset", dataset(), HOSPITAL)
        self.contract = self._enter(BANK_A, "contract", contract(BANK_A, starts=now), BANK_A, HOSPITAL)

    def open(self, name: str) -> None:
        """Open a partition of the hospital's digits."""
        self._permitted(HOSPITAL, "partition", partition(name, epsilon="8"), f"partition-{name}")

    def evidence(self, charge: str, plan_digest: str, nonce: str) -> str:
        """The attester's token for a charge's clean room, stored by that clean room."""
        room = CleanRoom(charge)
        return self.store(room.signer, attestation(room, charge, plan_digest, self.clock(), nonce=nonce))[0]

    def _enter(self, actor: str, kind: str, content: c.Object, *signed_by: str) -> str:
        stored = [self.store(signer_of(did), c.dump(content)) for did in signed_by]
        body: c.Object = {"document": stored[0][0], "signatures": [signature for _, signature in stored]}
        self._permitted(actor, kind, body, f"enter-{kind}")
        return stored[0][0]

    def _permitted(self, actor: str, kind: str, body: c.Object, name: str) -> None:
        outcome = self.send(signer_of(actor), actor, kind, body, name)
        assert outcome.code == "permitted", outcome


class FactsDriver(Driver):
    """A driver whose book can be read as facts in this process."""

    @abstractmethod
    def facts(self) -> AbstractContextManager[Facts]:
        """The current facts."""

    def charge(self, name: str) -> ChargeRead | None:
        """One charge."""
        with self.facts() as facts:
            found = facts.charges.get(name)
        return ChargeRead(found.state.value, found.steps_posted) if found else None

    def accounts(self, ref: str) -> dict[str, tuple[Loss, Loss]]:
        """By holder, what is posted and what is pending on each account of a partition."""
        with self.facts() as facts:
            known = [facts.accounts.get((ref, holder)) for holder in (GLOBAL, HOLDER)]
        return {one.holder: (one.posted, one.pending) for one in known if one}

    def terms(self, ref: str) -> str:
        """The terms of a partition's rule, as JSON."""
        with self.facts() as facts:
            return facts.partitions[ref].terms

    def runs(self, contract: str) -> int:
        """The runs that count against a contract."""
        with self.facts() as facts:
            return facts.contracts[contract].runs


def signer_of(name: str) -> Signer:
    """The signer that belongs to a name."""
    return Signer(private_key(name))
