"""Two of everything: a second hospital, a second bank and its run, beside those of the world; and who else may call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from client.keys.signer import Signer
from ledger.wire import canonical_json as c
from tests.factories.documents import PARTITION, contract, dataset, recommendation, stream
from tests.factories.people import (
    AUDITOR,
    BANK_A,
    BANK_B,
    BOTH,
    CLINIC,
    HOSPITAL,
    OPERATOR,
    SRO,
    STRANGER,
    TSO,
    CleanRoom,
)
from tests.factories.service import NOW, OPENED, PLAN, ServedWorld


@dataclass(frozen=True, slots=True)
class Things:
    """What one bank and one hospital have between them, by name."""

    contract: str
    charge: str
    partition: str
    run: str
    """Another charge, whose key was released, which was posted, and whose model was released."""
    coalition: str = "9999"
    """The index of a declared coalition of the two."""


MISSING: Final = Things("0" * 64, "run-9", f"{HOSPITAL}/digits/2099-q1", "run-8")


@dataclass(frozen=True, slots=True)
class Person:
    """Who calls: with which token, and signing with which key."""

    did: str
    shown: dict[str, str]
    signer: Signer


class TwoOfEach:
    """A world with two of everything, and a caller for each role."""

    def __init__(self, world: ServedWorld) -> None:
        """Furnish ``world``, which has its own charge ``run-1`` of ``room`` pending."""
        self.world = world
        self.room, self.other_room = CleanRoom(), CleanRoom()
        self.clinic, self.other_bank, self.tso, self.auditor = (Signer.generate() for _ in range(4))
        for did, role, signer in (
            (CLINIC, "TDP", self.clinic),
            (BANK_B, "TDC", self.other_bank),
            (TSO, "TSO", self.tso),
            (AUDITOR, "AUDITOR", self.auditor),
        ):
            world.register(did, role, signer)
        self.both = Signer.generate()
        world.register(BOTH, "TDP", self.both, "TDC")
        world.enter("dataset", dataset(CLINIC), CLINIC, self.clinic)
        opened: c.Object = {**OPENED, "data_key": "clinic-key", "provider": CLINIC}
        world.service.submit(self.clinic, CLINIC, "partition", opened, "partition-clinic")
        agreed = contract(BANK_B, CLINIC, NOW, run={"epsilon_max": "1"}, runs_max=10)
        digest = world.enter("contract", agreed, BANK_B, self.other_bank, self.clinic)[0]
        self.own = Things(world.contract, "run-1", PARTITION, "run-3", self._declare(BANK_A, HOSPITAL))
        other = self._declare(BANK_B, CLINIC)
        self.foreign = Things(digest, "run-2", f"{CLINIC}/digits/2026-q4", "run-4", other)
        world.service.submit(world.bank, BANK_A, "charge", self.charge(self.own, self.room), "run-1")
        world.service.submit(self.other_bank, BANK_B, "charge", self.charge(self.foreign, self.other_room), "run-2")
        world.keys.create(CLINIC, "clinic-key")
        self._release(self.own.charge, BANK_A, self.room)
        self._release(self.foreign.charge, BANK_B, self.other_room)
        self._run(self.own, BANK_A, world.bank)
        self._run(self.foreign, BANK_B, self.other_bank)
        for provider in (HOSPITAL, CLINIC):
            self._recommend(provider)
        for provider, signer in ((HOSPITAL, world.hospital), (CLINIC, self.clinic)):
            world.enter("dataset", dataset(provider, "claims"), provider, signer)
            world.enter("stream", stream(provider, dataset="claims"), provider, signer)
        self.people = self._people()

    def _declare(self, *members: str) -> str:
        body: c.Object = {"epsilon": "8", "members": [*sorted(members)]}
        return str(self.world.service.submit(self.world.sro, SRO, "coalition", body).index)

    def _release(self, charge: str, did: str, room: CleanRoom) -> None:
        nonce = self.world.service.challenge(charge)
        requested: c.Object = {"charge": charge, "evidence": self.world.attest(room, charge, nonce), "nonce": nonce}
        self.world.service.submit(room.signer, did, "key_release", requested, f"key-of-{charge}")

    def _run(self, things: Things, did: str, signer: Signer) -> None:
        """From charge to the model's release."""
        service, room = self.world.service, CleanRoom()
        service.submit(signer, did, "charge", self.charge(things, room), things.run)
        self._release(things.run, did, room)
        service.submit(room.signer, did, "post", {"charge": things.run, "steps": 100})
        model: c.Object = {"charge": things.run, "model": "a" * 64}
        service.submit(room.signer, did, "release_notice", model)
        service.submit(room.signer, did, "model_release", model, f"model-of-{things.run}")

    def _recommend(self, provider: str) -> None:
        self.world.enter("recommendation", self.advice(provider, 1), TSO, self.tso)

    def advice(self, provider: str, version: int) -> c.Object:
        """What the TSO recommends for a provider's dataset."""
        return recommendation(f"digits-of-{provider.rpartition(':')[2]}", provider, version=version)

    def charge(self, things: Things, room: CleanRoom) -> c.Object:
        """A run on these."""
        self.world.everybody.rooms[room.signer.key_id] = room.signer
        return {
            "clean_room": room.to_json(),
            "contract": things.contract,
            "deadline": NOW + 3_600_000,
            "partitions": [things.partition],
            "plan": PLAN,
        }

    def _people(self) -> dict[str, Person]:
        """One caller for each role, one who is not on record (an empty role), and one without a token."""
        world, shown = self.world, self.world.everybody.shown
        stranger = Signer.generate()

        def person(did: str, role: str) -> Person:
            token = world.everybody.token("browser", organisation=did, roles=[role])
            return Person(did, {"authorization": f"Bearer {token}"}, stranger)

        return {
            "SRO": Person(SRO, shown(SRO), world.sro),
            "TSO": Person(TSO, shown(TSO), self.tso),
            "TDP": Person(HOSPITAL, shown(HOSPITAL), world.hospital),
            "TDC": Person(BANK_A, shown(BANK_A), world.bank),
            "CCR": Person(BANK_A, world.everybody.shown_by(self.room.signer), self.room.signer),
            "AUDITOR": Person(AUDITOR, shown(AUDITOR), self.auditor),
            "OPERATOR": person(OPERATOR, "OPERATOR"),
            "": Person(STRANGER, shown(STRANGER), stranger),
            "TDP and TDC": Person(BOTH, shown(BOTH), self.both),
            "no token": Person(BANK_A, {"authorization": ""}, world.bank),
        }
