"""A scene as plain data, whose fields a case changes by path; as it is, the gate permits each kind of command in it."""

from __future__ import annotations

from typing import Any, Final

from ledger.crypto.detached_jws import public_key
from ledger.crypto.public_keys import PublicKey
from ledger.domain.command import LEDGER_ACTOR
from ledger.mechanisms.plan import Plan
from ledger.mechanisms.plan_reader import parse_plan
from ledger.wire import canonical_json as c
from policy.checks.field_readers import parse_time
from tests.factories.documents import MODEL, NONCE, contract, dataset, plan, policy, recommendation, stream
from tests.factories.people import (
    ATTESTER,
    BANK_A,
    BANK_B,
    CLINIC,
    HOSPITAL,
    MERGED,
    SRO,
    TSO,
    CleanRoom,
    private_key,
)

DECIDED_AT: Final = "2026-06-01T00:00:00Z"
DECIDED_AT_S: Final = parse_time(DECIDED_AT, "now") // 1000


def sealing(room: str) -> PublicKey:
    """The public sealing key of the clean room of this name."""
    return PublicKey("X25519", c.base64url(CleanRoom(room).sealing.public_key().public_bytes_raw()))


ATTESTER_KEY, ROOM_KEY, OTHER_KEY = (private_key(name) for name in ("attester", "room run-1", "other"))
ROOM, ROOM_SEALING = public_key(ROOM_KEY), sealing("run-1")
PLAN: Final[dict[str, Any]] = {**plan(120, "2.25", "16/175")}
POLICY: Final[dict[str, Any]] = policy(
    parse_time("2026-01-01T00:00:00Z", "effective"),
    ATTESTER_KEY,
    lineage={"epsilon_max": "6"},
    records_min=500,
    run={"epsilon_max": "2.5"},
)
DATASET: Final[dict[str, Any]] = dataset()
CONTRACT: Final[dict[str, Any]] = contract(
    BANK_A,
    starts=parse_time("2026-02-01T00:00:00Z", "starts"),
    ends="2026-12-01T00:00:00Z",
    run={"epsilon_max": "2.4"},
    runs_max=3,
)
RECOMMENDATION: Final[dict[str, Any]] = recommendation(
    "digits-2026", budget={"delta_max": "0.00001", "epsilon_max": "5"}
)
STREAM: Final[dict[str, Any]] = stream()
PARTITION: Final[dict[str, Any]] = {
    "name": "2026-q1",
    "provider": HOSPITAL,
    "dataset": "digits",
    "epsilon": "7",
    "opened": "2026-05-01T00:00:00Z",
    "retired": False,
    "index": 20,
    "run": "2",
}
SCENE: Final[dict[str, Any]] = {
    "now": DECIDED_AT,
    "organisations": {
        SRO: ["SRO"],
        HOSPITAL: ["TDP"],
        CLINIC: ["TDP"],
        BANK_A: ["TDC"],
        BANK_B: ["TDC"],
        MERGED: ["TDC"],
        TSO: ["TSO"],
    },
    "policies": [POLICY],
    "policy_indexes": [10, 30, 40, 50],
    "dataset": DATASET,
    "recommendation": None,
    "commitments": {},
    "persons": {},
    "streams": [],
    "stream_indexes": [15, 25, 35],
    "coalitions": [],
    "contracts": [CONTRACT],
    "runs": 2,
    "revoked": False,
    "partitions": [PARTITION],
    "audits": [],
    "charge": {"state": "pending", "deadline": "2026-06-01T01:00:00Z", "notices": {MODEL: "2026-05-31T00:00:00Z"}},
    "header": {"alg": "Ed25519", "typ": "eat+jwt"},
    "claims": {
        "iss": ATTESTER,
        "iat": DECIDED_AT_S,
        "exp": DECIDED_AT_S + 600,
        "eat_nonce": NONCE,
        "dbgstat": "disabled-since-boot",
        "swname": "trainer",
        "charge": "run-1",
        "plan": Plan.of(parse_plan(PLAN)).digest,
        "cnf": {"signing": ROOM.to_json(), "sealing": ROOM_SEALING.to_json()},
    },
}
REF = f"{HOSPITAL}/digits/2026-q1"
ORGANISATION_BODY: Final[dict[str, Any]] = {
    "organisation": "did:web:new.example",
    "name": "New",
    "roles": ["TDC"],
    "key": public_key(OTHER_KEY).to_json(),
    "possession": "signature",
}
OPENING: Final[dict[str, Any]] = {
    "provider": HOSPITAL,
    "dataset": "digits",
    "partition": "2026-q2",
    "epsilon": "7",
    "delta": "0.00001",
    "relation": "REPLACE_SPECIAL",
    "unit": "record",
    "records": 800,
    "rule": "renyi",
    "data_key": "k1",
}
ROOM_BODY: Final[dict[str, Any]] = {"signing": ROOM.to_json(), "sealing": ROOM_SEALING.to_json()}
ASKED: Final[dict[str, dict[str, Any]]] = {
    "organisation": {"actor": SRO, "body": ORGANISATION_BODY},
    "policy": {"actor": SRO, "signers": [SRO], "entered": {**POLICY, "version": 2, "effective": DECIDED_AT}},
    "dataset": {"actor": HOSPITAL, "signers": [HOSPITAL], "entered": {**DATASET, "id": "letters"}},
    "contract": {"actor": BANK_A, "signers": [HOSPITAL, BANK_A], "entered": {**CONTRACT, "id": "new"}},
    "partition": {"actor": HOSPITAL, "body": OPENING},
    "retirement": {"actor": HOSPITAL, "body": {"partition": REF}},
    "charge": {
        "actor": BANK_A,
        "body": {"partitions": [REF], "plan": PLAN, "clean_room": ROOM_BODY, "deadline": 1, "contract": ""},
    },
    "key_release": {"actor": BANK_A, "body": {"charge": "run-1", "evidence": "", "nonce": NONCE}},
    "run_generation": {"actor": BANK_A, "body": {"charge": "run-1", "evidence": "", "nonce": NONCE}},
    "step_lease": {
        "actor": BANK_A,
        "body": {"charge": "run-1", "first": 1, "generation": 1, "last": 10, "state": MODEL},
    },
    "post": {"actor": BANK_A, "body": {"charge": "run-1", "steps": 3}},
    "void": {"actor": BANK_A, "body": {"charge": "run-1"}},
    "lapse": {"actor": BANK_A, "body": {"charge": "run-1"}},
    "statement": {"actor": LEDGER_ACTOR, "body": {"root": "0" * 64, "size": 1}},
    "audit_report": {
        "actor": BANK_A,
        "body": {"charge": "run-1", "correct": 1, "epsilon_claimed": "1", "plan": PLAN},
    },
    "model_release": {"actor": BANK_A, "body": {"charge": "run-1", "model": MODEL}},
    "stream": {"actor": HOSPITAL, "signers": [HOSPITAL], "entered": STREAM},
    "recommendation": {"actor": TSO, "signers": [TSO], "entered": RECOMMENDATION},
    "revocation": {"actor": HOSPITAL, "body": {"contract": ""}},
    "decree": {"actor": SRO, "body": {"holder": "global", "partition": REF, "reason": "an error"}},
    "key_rotation": {
        "actor": BANK_A,
        "body": {"key": ORGANISATION_BODY["key"], "possession": "a..b", "retires": "A" * 43, "until": 1},
    },
    "key_revocation": {"actor": BANK_A, "body": {"keys": ["A" * 43], "reason": "a theft"}},
    "key_suspension": {"actor": BANK_A, "body": {"keys": ["A" * 43], "reason": "a doubt", "suspended": True}},
    "recovery_quorum": {"actor": SRO, "body": {"members": [HOSPITAL], "threshold": 1}},
    "key_recovery": {
        "actor": HOSPITAL,
        "body": {"key": ORGANISATION_BODY["key"], "organisation": SRO, "possession": "a..b", "reason": "a loss"},
    },
    "clock_correction": {
        "actor": SRO,
        "body": {"ahead": 2, "reason": "the clock was set to 2036", "signatures": ["a..b"], "time": 1},
    },
    "release_notice": {"actor": BANK_A, "body": {"charge": "run-1", "model": MODEL}},
    "model_opening": {
        "actor": BANK_A,
        "charge": {"state": "posted", "deadline": "2026-05-01T01:00:00Z", "notices": {}},
        "body": {"charge": "run-1", "clean_room": ROOM_BODY, "evidence": "", "model": MODEL, "nonce": NONCE},
    },
    "merger": {"actor": SRO, "body": {"organisation": MERGED, "parents": [BANK_A, BANK_B]}},
    "acquisition": {"actor": SRO, "body": {"organisation": BANK_A, "acquired": [BANK_B]}},
    "collusion": {"actor": SRO, "body": {"organisations": [BANK_A, BANK_B], "effective": 0}},
    "split": {"actor": SRO, "body": {"organisation": BANK_A, "child": BANK_B}},
    "transfer": {"actor": SRO, "body": {"charge": "run-1", "recipient": BANK_B}},
    "publication": {"actor": SRO, "body": {"charge": "run-1"}},
    "coalition": {"actor": SRO, "body": {"members": [BANK_A, BANK_B], "epsilon": "3"}},
}
