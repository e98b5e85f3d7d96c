"""For each kind of command a body about the caller's own, which the book permits: as a dry run it changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from client.http.endpoints import DOCUMENTS, SIGNATURE_HEADER
from client.keys.signer import Signer
from client.service.key_bodies import recovery, rotation
from ledger.wire import canonical_json as c
from policy.checks.field_readers import format_time
from tests.api.two_of_each import TwoOfEach
from tests.factories.documents import dataset, stream
from tests.factories.people import BANK_A, BANK_B, BOTH, HOSPITAL, HOUR_MS, CleanRoom
from tests.factories.service import NOW, OPENED, PLAN, contract_document

if TYPE_CHECKING:
    from collections.abc import Callable

NEW: Final = "did:web:new.example"
STANDING: Final = {
    ("", "submit_organisation"): 401,
    ("CCR", "submit_audit_report"): 409,
    ("CCR", "submit_key_release"): 409,
    ("CCR", "submit_model_release"): 409,
    ("CCR", "submit_release_notice"): 409,
    ("CCR", "submit_run_generation"): 409,
    ("CCR", "submit_step_lease"): 409,
    ("CCR", "submit_void"): 409,
    ("SRO", "submit_clock_correction"): 409,
    ("AUDITOR", "submit_key_recovery"): 403,
    ("TDC", "read_account_proof"): 403,
    ("TDC", "submit_key_recovery"): 403,
    ("TDP", "submit_key_recovery"): 403,
    ("TSO", "submit_key_recovery"): 403,
    ("TDC", "submit_model_opening"): 404,
    ("TDC", "submit_void"): 409,
}
"""What does not stand to be done there, by role: its book has organisations already, the charge's key is
released, its run leases no steps and is not posted, no evidence is stored, its clock is right, and nobody has named a
quorum."""


def own(pairs: TwoOfEach, kind: str, role: str) -> tuple[c.Object, str | None]:
    """The body, and the tag of what it replaces."""
    if kind in _DOCUMENTS:
        return _entered(pairs, *_DOCUMENTS[kind](pairs))
    things, room = pairs.own, CleanRoom()
    sealed: c.Object = {"clean_room": room.to_json(), "evidence": "0" * 64, "model": "a" * 64, "nonce": "A" * 43}
    giver: c.Object = {"giver": BANK_A} if role == "SRO" else {}
    agreement = pairs.world.agreement(things.run, BANK_A, BANK_B, 9, pairs.other_bank)
    bodies: dict[str, c.Object] = {
        "acquisition": {"acquired": [BANK_B], "organisation": BANK_A},
        "audit_report": {"charge": things.charge, "correct": 1, "epsilon_claimed": "1", "plan": PLAN},
        "charge": pairs.charge(things, room),
        "clock_correction": {"ahead": 2, "reason": "none", "signatures": ["a..b"], "time": 1},
        "coalition": {"epsilon": "8", "members": [BANK_A, BANK_B]},
        "collusion": {"effective": NOW, "organisations": [BANK_A, BANK_B]},
        "decree": {"holder": "global", "partition": things.partition, "reason": "an order"},
        "key_recovery": recovery(BANK_A, room.signer, "a loss", "key_recovery-own"),
        "key_revocation": {"keys": [_key_of(pairs, role).key_id], "reason": "a theft"},
        "key_rotation": rotation(pairs.people[role].did, pairs.people[role].signer.key_id, room.signer, NOW + HOUR_MS),
        "key_suspension": {"keys": [_key_of(pairs, role).key_id], "reason": "a doubt", "suspended": True},
        "key_release": {"charge": things.charge, "evidence": "0" * 64, "nonce": "A" * 43},
        "merger": {"organisation": BOTH, "parents": [BANK_A, BANK_B]},
        "model_opening": {**sealed, "charge": things.run},
        "model_release": {"charge": things.charge, "model": "a" * 64},
        "organisation": _claim(room.signer),
        "partition": {**OPENED, "data_key": "another", "partition": "2027-q1"},
        "post": {"charge": things.charge, "steps": 1},
        "publication": {"charge": things.run, **giver},
        "recovery_quorum": {"members": [BOTH], "threshold": 1},
        "release_notice": {"charge": things.charge, "model": "a" * 64},
        "run_generation": {"charge": things.charge, "evidence": "0" * 64, "nonce": "A" * 43},
        "step_lease": {"charge": things.charge, "first": 1, "generation": 1, "last": 1, "state": "a" * 64},
        "retirement": {"partition": things.partition},
        "revocation": {"contract": things.contract},
        "split": {"child": BOTH, "organisation": BANK_A},
        "transfer": {"agreement": agreement, "charge": things.run, "recipient": BANK_B, **giver},
        "void": {"charge": things.charge},
    }
    return bodies[kind], None


def _key_of(pairs: TwoOfEach, role: str) -> Signer:
    """Its own key; an SRO names the bank's, as nobody would govern without its own."""
    return pairs.people["TDC" if role == "SRO" else role].signer


def _claim(signer: Signer) -> c.Object:
    claim: c.Object = {"key": signer.jwk, "name": "new", "organisation": NEW, "roles": ["TDC"]}
    return {**claim, "possession": signer.sign(c.dump(claim))}


def _entered(pairs: TwoOfEach, document: c.Object, *signers: Signer) -> tuple[c.Object, str | None]:
    """A document stored beside the log with its signatures, as a command enters it."""
    data, world = c.dump(document), pairs.world
    path = f"{DOCUMENTS}/{c.digest(data)}"
    stored = []
    for signer in signers:
        headers = {SIGNATURE_HEADER: world.sign(signer, path, data, c.digest(data), "PUT")}
        stored.append(world.http.put(path, content=data, headers=headers).json())
    return {"document": c.digest(data), "signatures": [one["signature"] for one in stored]}, stored[0]["replaces"]


def _policy(pairs: TwoOfEach) -> tuple[c.Object, Signer]:
    first = pairs.world.policy()
    return {**first, "effective": format_time(pairs.world.begun + 1_000), "version": 2}, pairs.world.sro


def _dataset(pairs: TwoOfEach) -> tuple[c.Object, Signer]:
    return {**dataset(), "id": "letters", "provider": HOSPITAL}, pairs.world.hospital


def _contract(pairs: TwoOfEach) -> tuple[c.Object, Signer, Signer]:
    return {**contract_document(), "version": 2}, pairs.world.bank, pairs.world.hospital


def _recommendation(pairs: TwoOfEach) -> tuple[c.Object, Signer]:
    return pairs.advice(HOSPITAL, 2), pairs.tso


def _stream(pairs: TwoOfEach) -> tuple[c.Object, Signer]:
    return stream(HOSPITAL), pairs.world.hospital


_DOCUMENTS: Final[dict[str, Callable[[TwoOfEach], tuple[c.Object, *tuple[Signer, ...]]]]] = {
    "contract": _contract,
    "dataset": _dataset,
    "policy": _policy,
    "recommendation": _recommendation,
    "stream": _stream,
}
