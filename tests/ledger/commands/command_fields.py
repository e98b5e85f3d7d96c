"""The fields of every command and their rules, as plain data that the model beside it applies."""

from __future__ import annotations

from typing import Final

INTEGER_MAX: Final = 2**53 - 1
DOCUMENT: Final = {"document": "sha256", "signatures": "list 1 32 sha256"}
ROOM: Final = {"sealing": "key X25519", "signing": "key Ed25519"}
AGREEMENT: Final = {"runs": "integer 1 9007199254740991", "signature": "text 2000"}
REVOKED_LOG_KEY: Final = {"key": "bytes32", "size": "integer 0 9007199254740991"}
RELATION: Final = "word REPLACE_SPECIAL ADD_OR_REMOVE_ONE REPLACE_ONE"
NOISE: Final = "number 1/100 1000000"
EPSILON: Final = "number 1/1000000000 256"
PROBABILITY: Final = "number 1/1000000000 1"
BODIES: Final[dict[str, dict[str, str]]] = {
    "organisation": {
        "key": "signer",
        "name": "text 200",
        "organisation": "did",
        "possession": "text 1000",
        "roles": "list 1 5 word SRO TSO TDP TDC AUDITOR",
    },
    "policy": DOCUMENT,
    "dataset": DOCUMENT,
    "contract": DOCUMENT,
    "recommendation": DOCUMENT,
    "stream": DOCUMENT,
    "partition": {
        "commitments": "optional list 1 64 sha256",
        "data_key": "name",
        "dataset": "name",
        "delta": "number",
        "epsilon": "number",
        "load": "optional plan",
        "partition": "name",
        "provider": "did",
        "reason": "optional text 2000",
        "records": "integer 1 1000000000000",
        "relation": RELATION,
        "rule": "word renyi reference gaussian",
        "slack": "optional number",
        "unit": "word record user",
        "unit_records_max": "optional integer 1 64",
    },
    "retirement": {"partition": "ref"},
    "charge": {
        "base": "optional list 1 16 name",
        "clean_room": "room",
        "contract": "sha256",
        "deadline": "integer 0 253402300799999",
        "partitions": "list 1 16 ref",
        "pipeline": "optional sha256",
        "plan": "plan",
        "recipients": "optional everyone_or list 1 16 did",
        "step_leases": "optional boolean",
        "unit_records_max": "optional integer 1 64",
    },
    "key_release": {"charge": "name", "evidence": "sha256", "nonce": "bytes32"},
    "run_generation": {"charge": "name", "evidence": "sha256", "nonce": "bytes32"},
    "step_lease": {
        "charge": "name",
        "first": "integer 1 10000000",
        "generation": "integer 1 100",
        "last": "integer 1 10000000",
        "state": "sha256",
    },
    "post": {
        "charge": "name",
        "generation": "optional integer 1 100",
        "lease": "optional name",
        "model": "optional sha256",
        "steps": "integer 0 10000000",
    },
    "void": {"charge": "name"},
    "lapse": {"charge": "name"},
    "statement": {"root": "sha256", "size": f"integer 1 {INTEGER_MAX}"},
    "audit_report": {
        "charge": "name",
        "correct": "integer 0 4096",
        "epsilon_claimed": "number 0< -",
        "plan": "plan",
    },
    "model_release": {
        "charge": "name",
        "model": "sha256",
        "post": "optional name",
        "watermark": "optional sha256",
    },
    "revocation": {"contract": "sha256"},
    "decree": {"holder": "holder", "partition": "text 1000", "reason": "text 2000"},
    "clock_correction": {
        "ahead": "integer 0 253402300799999",
        "reason": "text 2000",
        "signatures": "list 1 32 text 2000",
        "time": "integer 0 253402300799999",
    },
    "key_rotation": {
        "key": "signer",
        "possession": "text 2000",
        "retires": "bytes32",
        "starts": "optional integer 0 253402300799999",
        "until": "integer 0 253402300799999",
    },
    "key_revocation": {"keys": "list 1 16 bytes32", "reason": "text 2000"},
    "key_suspension": {"keys": "list 1 16 bytes32", "reason": "text 2000", "suspended": "boolean"},
    "recovery_quorum": {
        "members": "list 1 12 did",
        "signatures": "optional list 1 12 text 2000",
        "threshold": "integer 1 12",
    },
    "key_recovery": {
        "key": "signer",
        "organisation": "did",
        "possession": "text 2000",
        "reason": "text 2000",
        "signatures": "optional list 1 12 text 2000",
    },
    "log_key_rotation": {
        "key": "key Ed25519",
        "overlap": "optional integer 1 10000000",
        "possession": "text 2000",
        "retires": "key Ed25519",
        "revokes": "optional revoked_log_key",
    },
    "log_key_suspension": {"key": "key Ed25519", "reason": "text 2000", "suspended": "boolean"},
    "release_notice": {"charge": "name", "model": "sha256"},
    "model_opening": {
        "charge": "name",
        "clean_room": "room",
        "evidence": "sha256",
        "model": "sha256",
        "nonce": "bytes32",
    },
    "merger": {"organisation": "did", "parents": "list 1 64 did", "proposed": "optional boolean"},
    "acquisition": {"acquired": "list 1 64 did", "organisation": "did"},
    "collusion": {"effective": f"integer 0 {INTEGER_MAX}", "organisations": "list 2 64 did"},
    "split": {"child": "did", "organisation": "did"},
    "transfer": {
        "agreement": "optional agreement",
        "charge": "name",
        "giver": "optional did",
        "recipient": "did",
    },
    "publication": {"charge": "name", "giver": "optional did"},
    "coalition": {"epsilon": "number 0< -", "members": "list 2 64 did"},
}
ENVELOPE: Final = {
    "actor": "did",
    "body": "object",
    "id": "name",
    "key_id": "bytes32",
    "kind": f"word {' '.join(BODIES)}",
    "v": "integer 1 1",
}
SAMPLER: Final = {"kind": "word poisson", "probability": PROBABILITY}
DP_SGD: Final = {
    "batch_size_expected": "integer 1 10000000",
    "clipping_norm": "number 0< 1000000000",
    "kind": "word dp_sgd",
    "noise_multiplier": NOISE,
    "sampler": "sampler",
    "steps": "integer 1 10000000",
    "unit": "optional word user",
    "v": "integer 1 1",
}
MECHANISM_PLAN: Final = {"kind": "word mechanism", "mechanism": "mechanism", "v": "integer 1 1"}
MECHANISMS: Final[dict[str, dict[str, str]]] = {
    "black_box": {"delta": "number 1/4503599627370496 1/2", "epsilon": EPSILON, "relation": RELATION},
    "bounded_range": {"epsilon": EPSILON, "relation": RELATION},
    "discrete_gaussian": {"noise_multiplier": NOISE},
    "gaussian": {"noise_multiplier": NOISE},
    "gdp": {"mu_square": "number 1/1000000000000 1000000", "relation": RELATION},
    "laplace": {"noise_multiplier": NOISE},
    "poisson_gaussian": {"noise_multiplier": NOISE, "probability": PROBABILITY, "steps": "integer 1 10000000"},
    "pure": {"epsilon": EPSILON, "relation": RELATION},
    "randomised_response": {"buckets": "integer 2 1000000", "noise": "number 1/1000000 1"},
    "zcdp": {"relation": RELATION, "rho": "number 1/1000000000000 256", "xi": "number 0 256"},
}
