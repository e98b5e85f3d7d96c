"""A world that signs by the keys that an ask names: commands on keys, documents of their authors, corrected clocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from client.keys.signer import Signer
from client.service.key_bodies import recovery, rotation
from ledger.book.book import Submission
from ledger.commands.governance.clock_correction import CorrectClock
from ledger.commands.signing_keys.recovery import NameQuorum, RecoveryClaim
from ledger.wire import canonical_json as c
from ledger.wire.records import write
from tests.factories.documents import dataset, recommendation, stream
from tests.factories.people import STRANGER
from tests.factories.stored import StoredWorld
from tests.faults.standing import Ask

REASON = "tried"


class SignedKeys(StoredWorld):
    """A world in which organisations have keys beside those that bear their names.

    Attributes:
        keys: by organisation, the name of the key by which it signs now, where it is another one.
    """

    keys: Mapping[str, str] = {}

    def signer(self, did: str) -> Signer:
        """By what an organisation signs."""
        return self.signers[self.keys.get(did, did)]

    def command(self, actor: str, kind: str, body: c.Object, name: str, signer: Signer | None = None) -> Submission:
        """A signed command."""
        return super().command(actor, kind, body, name, signer or self.signer(actor))

    def document(self, kind: str, content: dict[str, Any], name: str, actor: str, *signed_by: str) -> Submission:
        """A document, stored with these signatures, to be entered."""
        data = c.dump(content)
        stored = [self.store(self.signer(did), data) for did in signed_by]
        body: c.Object = {"document": stored[0][0], "signatures": [signature for _, signature in stored]}
        return self.command(actor, kind, body, name)

    def _dataset(self, ask: Ask, now: int) -> Submission:
        del now
        content = dataset(ask.told["provider"], ask.told["name"])
        return self.document("dataset", content, ask.id, ask.actor, ask.told["provider"])

    def _stream(self, ask: Ask, now: int) -> Submission:
        del now
        content = stream(ask.told["provider"], dataset=ask.told["name"], version=ask.told["version"])
        return self.document("stream", content, ask.id, ask.actor, ask.told["provider"])

    def _recommendation(self, ask: Ask, now: int) -> Submission:
        del now
        told = ask.told
        budget = {"delta_max": "0.00001", "epsilon_max": told["epsilon"]}
        content = recommendation(told["name"], dataset=told["name"], version=told["version"], budget=budget)
        return self.document("recommendation", content, ask.id, ask.actor, told["issuer"])

    def _clock_correction(self, ask: Ask, now: int) -> Submission:
        del now
        told = ask.told
        claim = CorrectClock(told["ahead"], told["time"], REASON, ("a..b",)).claim(ask.id)
        signatures: list[c.Json] = [self.signer(did).sign(claim) for did in told["signed"]]
        body: c.Object = {"ahead": told["ahead"], "reason": REASON, "signatures": signatures, "time": told["time"]}
        return self.command(ask.actor, ask.kind, body, ask.id)

    def _key_rotation(self, ask: Ask, now: int) -> Submission:
        del now
        told = ask.told
        new, retires = self.signers[told["new"]], self.signers[told["retires"]].key_id
        body = rotation(ask.actor, retires, new, told["until"], told["starts"])
        if not told["held"]:
            body["possession"] = rotation(ask.actor, retires, self.signers[STRANGER], 0)["possession"]
        return self.command(ask.actor, ask.kind, body, ask.id)

    def _key_revocation(self, ask: Ask, now: int) -> Submission:
        del now
        body: c.Object = {"keys": [self.signers[name].key_id for name in ask.told["names"]], "reason": REASON}
        if "suspended" in ask.told:
            body["suspended"] = ask.told["suspended"]
        return self.command(ask.actor, ask.kind, body, ask.id)

    _key_suspension = _key_revocation

    def _recovery_quorum(self, ask: Ask, now: int) -> Submission:
        del now
        told = ask.told
        claim = NameQuorum(told["members"], told["threshold"]).claim(ask.actor, ask.id)
        body: c.Object = {"members": [*told["members"]], "threshold": told["threshold"]}
        return self.command(ask.actor, ask.kind, {**body, **self._by_members(told["signed"], claim)}, ask.id)

    def _by_members(self, dids: tuple[str, ...], claim: bytes) -> c.Object:
        signatures: list[c.Json] = [self.signer(did).sign(claim) for did in dids]
        return {"signatures": signatures} if signatures else {}

    def _key_recovery(self, ask: Ask, now: int) -> Submission:
        del now
        told, new = ask.told, self.signers[ask.told["new"]]
        body = recovery(told["did"], new, REASON, ask.id, told["since"])
        if not told["held"]:
            body["possession"] = recovery(told["did"], self.signers[STRANGER], REASON, ask.id, None)["possession"]
        claim = write(RecoveryClaim(ask.id, told["did"], new.public, REASON, told["since"]))
        return self.command(ask.actor, ask.kind, {**body, **self._by_members(told["signed"], claim)}, ask.id)
