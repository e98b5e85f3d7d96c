"""The world of a book: its people, its time and the commands they sign, whatever the book lies in.

One vocabulary for every test. What the book lies in is the subclass: memory (:mod:`tests.factories.memory`), SQLite or
PostgreSQL (:mod:`tests.factories.stored`), or a service over HTTP (:mod:`tests.factories.service`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

from client.keys.signer import Signer
from ledger.book.batch import LAPSE_ID
from ledger.book.submitted_command import Outcome, Submission
from ledger.commands.organisation_lineage.model_transfer import TransferClaim
from ledger.domain.command import Command
from ledger.domain.facts import GLOBAL, Facts, holder_of
from ledger.mechanisms.loss import Loss
from ledger.wire import canonical_json as c
from ledger.wire.records import write
from tests.factories.documents import NONCE, NOW, PARTITION, attestation, contract, dataset, partition, plan, policy
from tests.factories.people import (
    BANK_A,
    BANK_B,
    HOSPITAL,
    HOUR_MS,
    MERGED,
    ROLES,
    SRO,
    CleanRoom,
    Clock,
    private_key,
    registration,
    short_name,
)

HOLDER: Final = holder_of([*ROLES].index(BANK_A))
"""The account of bank A's lineage in a founded book: its node is named by the entry that registered it."""


@dataclass(frozen=True, slots=True)
class ChargeRead:
    """A charge as a book shows it."""

    state: str
    steps_posted: int | None


class Signers(dict[str, Signer]):
    """The signer of each name, made when it is first needed."""

    def __missing__(self, name: str) -> Signer:
        """The signer of a name that was not needed before."""
        return self.setdefault(name, Signer(private_key(name)))


class World(ABC):
    """A book and those who use it.

    Attributes:
        clock: the book's, which a test moves.
        begun: when the book began: its policy and its contracts are effective from then on.
        contracts: the digest of each bank's contract, as :meth:`founding` enters it.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        """A world of people; the subclass brings the book."""
        self.clock = clock or Clock(NOW)
        self.begun = self.clock.now // 1000 * 1000
        self.signers = Signers()
        self.contracts = {bank: c.digest(c.dump(contract(bank, starts=self.begun))) for bank in (BANK_A, BANK_B)}
        self._lapsed: set[str] = set()

    @abstractmethod
    def submit(self, *submissions: Submission) -> list[Outcome]:
        """Send several commands at once."""

    @abstractmethod
    def put(self, data: bytes, signer: Signer) -> str:
        """Store bytes beside the log; their digest."""

    @abstractmethod
    def read(self) -> AbstractContextManager[Facts]:
        """The current facts."""

    @abstractmethod
    def recorded(self, name: str) -> bool:
        """Whether a command of this id is an entry."""

    def store(self, signer: Signer, data: bytes) -> tuple[str, str]:
        """Store a document and the signature over it; the digests of both."""
        return self.put(data, signer), self.put(signer.sign(data).encode(), signer)

    def nonce(self, charge: str) -> str:
        """What an attestation for a key release must repeat."""
        del charge
        return NONCE

    def signed(self, signer: Signer, kind: str, name: str, raw: bytes) -> str:
        """The signature over a command's bytes."""
        del kind, name
        return signer.sign(raw)

    def command(self, actor: str, kind: str, body: c.Object, name: str, signer: Signer | None = None) -> Submission:
        """A signed command."""
        by = signer or self.signers[actor]
        raw = Command(kind, name, actor, by.key_id, body).to_bytes()
        return Submission(raw, self.signed(by, kind, name, raw))

    def send(self, actor: str, kind: str, body: c.Object, name: str, signer: Signer | None = None) -> Outcome:
        """Send one command."""
        (outcome,) = self.submit(self.command(actor, kind, body, name, signer))
        return outcome

    def registration(self, did: str, *roles: str, name: str = "", actor: str = SRO) -> Submission:
        """The SRO's word for an organisation."""
        body = registration(did, self.signers[did], *roles)
        return self.command(actor, "organisation", body, name or f"organisation-{short_name(did)}")

    def document(self, kind: str, content: dict[str, Any], name: str, actor: str, *signed_by: str) -> Submission:
        """A document, stored with these signatures, to be entered."""
        data = c.dump(content)
        stored = [self.store(self.signers[did], data) for did in signed_by]
        body: c.Object = {"document": stored[0][0], "signatures": [signature for _, signature in stored]}
        return self.command(actor, kind, body, name)

    def partition(self, name: str = "2026-q4", **changes: c.Json) -> Submission:
        """A partition of the hospital's to be opened."""
        return self.command(HOSPITAL, "partition", partition(name, **changes), f"partition-{name}")

    def charge(
        self,
        name: str,
        bank: str = BANK_A,
        run: c.Object | None = None,
        *,
        deadline: int | None = None,
        partitions: tuple[str, ...] = (PARTITION,),
        **changes: c.Json,
    ) -> Submission:
        """A run to be charged under the bank's contract, or under another one by ``contract``."""
        body: c.Object = {
            "clean_room": CleanRoom(name).to_json(),
            "contract": self.contracts.get(bank, ""),
            "deadline": deadline or self.clock.now + HOUR_MS,
            "partitions": [*partitions],
            "plan": run or plan(),
            **changes,
        }
        return self.command(bank, "charge", body, name)

    def settle(self, charge: str, steps: int, bank: str = BANK_A) -> Submission:
        """The clean room's word on the steps that ran."""
        body: c.Object = {"charge": charge, "steps": steps}
        return self.command(bank, "post", body, f"post-{charge}", CleanRoom(charge).signer)

    def void(self, charge: str, bank: str = BANK_A) -> Submission:
        """The bank gives a run up."""
        return self.command(bank, "void", {"charge": charge}, f"void-{charge}")

    def release(self, charge: str, run: c.Object | None = None, bank: str = BANK_A) -> Submission:
        """The clean room asks for the data keys, with its attester's token stored as evidence."""
        room, nonce = CleanRoom(charge), self.nonce(charge)
        body: c.Object = {"charge": charge, "evidence": self.evidence(charge, room, run, nonce), "nonce": nonce}
        return self.command(bank, "key_release", body, f"release-{charge}", room.signer)

    def evidence(self, charge: str, room: CleanRoom, run: c.Object | None = None, nonce: str = NONCE) -> str:
        """An attester's token for a clean room and a charge's plan, stored."""
        digest = c.digest(c.dump(run or plan()))
        return self.put(attestation(room, charge, digest, self.clock.now, nonce=nonce), room.signer)

    def agreement(self, charge: str, giver: str, recipient: str, runs: int, signer: Signer | None = None) -> c.Object:
        """What the recipient of a model signs, that brings at most so many runs."""
        claim = write(TransferClaim(charge, giver, recipient, runs))
        return {"runs": runs, "signature": (signer or self.signers[recipient]).sign(claim)}

    def merger(self) -> Submission:
        """The two banks become a third body, registered before."""
        body: c.Object = {"organisation": MERGED, "parents": [BANK_A, BANK_B]}
        return self.command(SRO, "merger", body, "merger")

    def founding(self) -> list[Submission]:
        """Everything that a charge needs, to be sent at once."""
        return [*self.founding_with()]

    def founding_with(
        self,
        *,
        roles: Mapping[str, str] = ROLES,
        governing: dict[str, Any] | None = None,
        partitions: Mapping[str, c.Object] | None = None,
        contracts: Sequence[dict[str, Any]] = (),
    ) -> Iterator[Submission]:
        """The commands that enter these, each made when it is its turn: a service takes documents of members alone.

        Args:
            roles: the organisations to register.
            governing: the SRO's policy, if not :func:`~tests.factories.documents.policy`.
            partitions: to open, with what differs from :func:`~tests.factories.documents.partition`.
            contracts: with the hospital, if not one of each of the first two banks.
        """
        agreed = contracts or [contract(bank, starts=self.begun) for bank in self.contracts]
        opened = {"2026-q4": {}} if partitions is None else partitions
        yield from (self.registration(did, role) for did, role in roles.items())
        yield self.document("policy", governing or policy(self.begun), "policy", SRO, SRO)
        yield self.document("dataset", dataset(), "dataset", HOSPITAL, HOSPITAL)
        yield from (self.partition(name, **changes) for name, changes in opened.items())
        for one in agreed:
            bank = one["tdc"]
            yield self.document("contract", one, f"contract-{short_name(bank)}", bank, bank, HOSPITAL)

    def found(self, *submissions: Submission) -> None:
        """Send what must be permitted: what :meth:`founding` says, unless it is given others."""
        outcomes = self.submit(*(submissions or self.founding()))
        assert {one.code.word for one in outcomes} == {"permitted"}, outcomes

    def lapse(self, charge: str) -> str:
        """Let the book settle what is past its deadline; the charge's state then, a conflict if it was not due.

        A book does so before any command; the one that is sent here comes to nothing.
        """
        name = f"{LAPSE_ID}{c.digest(charge.encode())[:32]}"
        assert self.send(BANK_A, "void", {"charge": "none"}, "void-none").code.word == "not_found"
        if name in self._lapsed or not self.recorded(name):
            return "conflict"
        self._lapsed.add(name)
        found = self.charge_read(charge)
        assert found is not None
        return found.state

    def charge_read(self, name: str) -> ChargeRead | None:
        """One charge."""
        with self.read() as facts:
            found = facts.charges.get(name)
        return ChargeRead(found.state.value, found.steps_posted) if found else None

    def accounts(self, ref: str) -> dict[str, tuple[Loss, Loss]]:
        """By holder, what is posted and what is pending on each account of a partition."""
        with self.read() as facts:
            known = [facts.accounts.get((ref, holder)) for holder in (GLOBAL, HOLDER)]
        return {one.holder: (one.posted, one.pending) for one in known if one}

    def terms(self, ref: str) -> str:
        """The terms of a partition's rule, as JSON."""
        with self.read() as facts:
            return facts.partitions[ref].terms

    def runs(self, contract: str) -> int:
        """The runs that count against a contract."""
        with self.read() as facts:
            return facts.contracts[contract].runs
