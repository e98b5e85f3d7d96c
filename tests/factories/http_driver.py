"""Drives a service over HTTP: one more driver of the tables that every kind of book is held to."""

from __future__ import annotations

from typing import Any

import httpx

from client.http.problems import Refused
from client.keys.signer import Signer
from ledger.mechanisms.loss import Loss
from ledger.wire import canonical_json as c
from tests.factories.documents import NONCE
from tests.factories.driver import ChargeRead, Driver, Outcome, signer_of
from tests.factories.people import CleanRoom
from tests.factories.service import World


class HttpDriver(Driver):
    """Drives a service over HTTP: whoever signs shows its own token, and an auditor reads."""

    def __init__(self, world: World) -> None:
        """Begin with the empty book of this world's service."""
        super().__init__(world.clock)
        self._world = world

    def send(self, signer: Signer, actor: str, kind: str, body: c.Object, name: str) -> Outcome:
        """Sign a command and post it."""
        everybody = self._world.everybody
        if kind == "organisation":
            did = str(body["organisation"])
            everybody.organisations[signer_of(did).key_id] = did
        if kind == "charge":
            everybody.rooms.setdefault(CleanRoom(name).signer.key_id, CleanRoom(name).signer)
        try:
            return Outcome(self._world.service.submit(signer, actor, kind, body, name).outcome)
        except Refused as refused:
            return Outcome(refused.code, refused.field, refused.detail)

    def store(self, signer: Signer, data: bytes) -> tuple[str, str]:
        """Store both at once."""
        stored = self._world.service.put_document(signer, data)
        return stored.document, stored.signature

    def nonce(self, charge: str) -> str:
        """The service's own, where it gives one."""
        try:
            return self._world.service.challenge(charge)
        except Refused:
            return NONCE

    def recorded(self, name: str) -> bool:
        """Whether a command of this id is an entry."""
        return self._world.http.get(f"/v1/decisions/{name}").status_code == httpx.codes.OK

    def charge(self, name: str) -> ChargeRead | None:
        """One charge."""
        answer = self._world.http.get(f"/v1/charges/{name}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        found = answer.raise_for_status().json()
        return ChargeRead(found["state"], found["steps_posted"])

    def accounts(self, ref: str) -> dict[str, tuple[Loss, Loss]]:
        """By holder, what is posted and what is pending on each account of a partition."""
        known: Any = self._world.service.accounts(ref)["accounts"]
        return {one["holder"]: (_loss(one["posted"]), _loss(one["pending"])) for one in known}

    def terms(self, ref: str) -> str:
        """The terms of a partition's rule, as JSON."""
        return c.dump(self._world.service.partition(ref)["terms"]).decode()

    def runs(self, contract: str) -> int:
        """The runs that count against a contract."""
        return int(str(self._world.service.contract(contract)["runs"]))


def _loss(told: dict[str, Any]) -> Loss:
    return Loss(tuple(int(one) for one in told["finite"]), tuple(told["infinite"]))
