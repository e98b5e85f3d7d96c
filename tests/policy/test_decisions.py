"""Each check on both sides of its edge: what is changed in a scene that permits, and the faults then found.

An empty set of faults is a permit on the near side of an edge.
"""

from typing import Any

import pytest

from ledger.gate import Verdict
from tests.policy.scene import (
    CONTRACT,
    GONE,
    MERGED,
    NOW,
    OTHER_TDC,
    OTHER_TDP,
    PARTITION,
    POLICY,
    SRO,
    TDC,
    TDP,
    decide,
)

SECOND = {**POLICY, "version": 2, "effective": "2026-05-15T00:00:00Z"}
NEXT = {**CONTRACT, "version": 2}
BOTH = {**CONTRACT, "id": "new", "tdps": [TDP, OTHER_TDP]}
CONTRACTS: dict[str, Any] = {"contracts|1": NEXT}
DIGEST = "f" * 64
C1, P1 = "contract digits-bank-a version 1", "policy health-images version 1"
JUST_ABOVE_2, JUST_BELOW_2_4 = "2.00000000000000000000001", "2.39999999999999999999999"

Change = dict[str, Any]
Case = tuple[str, Change, set[str]]

ENTERED: list[Case] = [
    ("policy", {"entered|version": 1}, {"version_not_next"}),
    ("policy", {"entered|version": 3}, {"version_not_next"}),
    ("policy", {"entered|domain": "other"}, {"version_not_next"}),
    ("policy", {"entered|domain": "other", "entered|version": 1}, set()),
    ("policy", {"actor": TDP}, {"actor_not_issuer"}),
    ("policy", {"signers": []}, {"signature_missing"}),
    ("policy", {"signers": [TDP]}, {"signature_missing"}),
    ("policy", {"entered|issuer": TDP, "actor": TDP, "signers": [TDP]}, {"issuer_changed"}),
    ("policy", {"entered|effective": "2026-05-31T00:00:00Z"}, set()),
    ("policy", {"entered|effective": "2026-05-30T23:59:59Z"}, {"effective_past"}),
    ("policy", {"policies|0|effective": NOW}, set()),
    ("policy", {"policies|0|effective": "2026-06-01T00:00:01Z"}, {"effective_unordered"}),
    ("policy", {"entered|level": "1"}, {"document_malformed"}),
    ("policy", {"entered|partition_age_days_max": GONE}, {"document_inconsistent"}),
    ("policy", {"entered": GONE, "body": {"document": DIGEST, "signatures": [DIGEST]}}, {"document_unknown"}),
    ("dataset", {"actor": OTHER_TDP}, {"actor_not_provider"}),
    ("dataset", {"signers": []}, {"signature_missing"}),
    ("dataset", {"entered|id": "digits"}, {"dataset_known"}),
    ("dataset", {"entered|domain": "other"}, {"policy_missing"}),
    ("dataset", {"policies|0|effective": NOW}, set()),
    ("dataset", {"policies|0|effective": "2026-06-01T00:00:01Z"}, {"policy_missing"}),
    ("dataset", {"entered|unit": "row"}, {"document_malformed"}),
    ("contract", {"actor": TDP}, set()),
    ("contract", {"actor": SRO}, {"actor_not_party"}),
    ("contract", {"signers": [TDP]}, {"signature_missing"}),
    ("contract", {"signers": [TDC]}, {"signature_missing"}),
    ("contract", {"entered": BOTH}, {"signature_missing"}),
    ("contract", {"entered": BOTH, "signers": [TDP, OTHER_TDP, TDC]}, set()),
    ("contract", {f"organisations|{TDP}": ["TDC"]}, {"party_role_missing"}),
    ("contract", {f"organisations|{TDC}": ["TDP"]}, {"party_role_missing"}),
    (
        "contract",
        {"entered": BOTH, f"organisations|{OTHER_TDP}": GONE, "signers": [TDP, OTHER_TDP, TDC]},
        {"party_role_missing"},
    ),
    ("contract", {"entered|datasets|0|dataset": "letters"}, {"dataset_unknown"}),
    ("contract", {"entered|version": 2}, {"version_not_next"}),
    ("contract", {"entered": NEXT}, set()),
    ("contract", {"entered": CONTRACT}, {"version_not_next"}),
    (
        "contract",
        {"entered": {**NEXT, "tdc": OTHER_TDC}, "signers": [TDP, OTHER_TDC], "actor": TDP},
        {"signature_missing"},
    ),
    (
        "contract",
        {"entered": {**NEXT, "tdc": OTHER_TDC}, "signers": [TDP, TDC, OTHER_TDC], "actor": TDP},
        set(),
    ),
    ("contract", {"entered|ends": "2026-06-01T00:00:01Z"}, set()),
    ("contract", {"entered|ends": NOW}, {"contract_ended"}),
]
OPENED: list[Case] = [
    ("partition", {"body|epsilon": "8"}, set()),
    ("partition", {"body|epsilon": "8.0001"}, {"epsilon_above_budget"}),
    ("partition", {"body|epsilon": "0"}, {"epsilon_not_positive"}),
    ("partition", {"body|delta": "0.000010000001"}, {"delta_above_budget"}),
    ("partition", {"body|delta": "0"}, set()),
    ("partition", {"body|records": 500}, set()),
    ("partition", {"body|records": 499}, {"records_too_few"}),
    ("partition", {"body|relation": "ADD_OR_REMOVE_ONE"}, {"relation_not_permitted"}),
    ("partition", {"policies|0|unit": "user"}, {"unit_not_permitted"}),
    ("partition", {"dataset|unit": "user"}, {"unit_not_described"}),
    ("partition", {"policies|0|rules": ["reference", "renyi"]}, set()),
    ("partition", {"policies|0|rules": ["reference"]}, {"rule_not_permitted"}),
    ("partition", {"actor": OTHER_TDP}, {"actor_not_provider"}),
    ("partition", {"body|dataset": "letters"}, {"dataset_unknown"}),
    ("partition", {"policies|0|effective": "2026-06-01T00:00:01Z"}, {"policy_missing"}),
    ("partition", {"policies|1": {**SECOND, "records_min": 801}}, {"records_too_few"}),
    ("retirement", {"actor": OTHER_TDP}, {"actor_not_provider"}),
    ("retirement", {"partitions": []}, {"partition_unknown"}),
]
CHARGED: list[Case] = [
    ("charge", {"body|contract": DIGEST}, {"contract_unknown"}),
    ("charge", CONTRACTS, {"contract_superseded"}),
    ("charge", {"contracts|0|starts": NOW}, set()),
    ("charge", {"contracts|0|starts": "2026-06-01T00:00:01Z"}, {"contract_not_begun"}),
    ("charge", {"contracts|0|ends": "2026-06-01T00:00:01Z"}, set()),
    ("charge", {"contracts|0|ends": NOW}, {"contract_ended"}),
    ("charge", {"actor": MERGED}, set()),
    ("charge", {"actor": OTHER_TDC}, {"actor_not_consumer"}),
    ("charge", {"actor": "did:web:nobody.example"}, {"actor_not_consumer"}),
    ("charge", {"actor": TDC, "contracts|0|tdc": MERGED}, {"actor_not_consumer"}),
    ("charge", {"runs": 3}, {"runs_exhausted"}),
    ("charge", {"partitions|0|retired": True}, {"partition_retired"}),
    ("charge", {"body|partitions": [f"{TDP}/digits/other"]}, {"partition_unknown"}),
    ("charge", {"contracts|0|datasets|0|dataset": "letters"}, {"dataset_not_in_contract"}),
    ("charge", {"partitions|0|run": None}, {"run_not_told"}),
    ("charge", {"partitions|0|run": "2.4"}, set()),
    ("charge", {"partitions|0|run": "2.40000000000000000000001"}, {"run_above_contract"}),
    ("charge", {"partitions|0|run": "2.5", "contracts|0|run|epsilon_max": "3"}, set()),
    ("charge", {"partitions|0|run": "2.5001", "contracts|0|run|epsilon_max": "3"}, {"run_above_policy"}),
    ("charge", {"partitions|0|run": "9"}, {"run_above_contract", "run_above_policy"}),
    ("charge", {"policies|0|mechanisms": ["laplace", "poisson_gaussian"]}, set()),
    ("charge", {"policies|0|mechanisms": ["laplace"]}, {"mechanism_not_permitted"}),
    ("charge", {"policies|0|effective": "2026-06-01T00:00:01Z"}, {"policy_missing"}),
    ("charge", {"partitions|0|opened": "2026-03-03T00:00:00Z"}, set()),
    ("charge", {"partitions|0|opened": "2026-03-02T23:59:59Z"}, {"partition_too_old"}),
    (
        "charge",
        {
            "partitions|1": {**PARTITION, "name": "2026-q2", "retired": True},
            "body|partitions|1": f"{TDP}/digits/2026-q2",
        },
        {"partition_retired"},
    ),
    (
        "charge",
        {
            "partitions|1": {**PARTITION, "name": "2026-q2", "run": "2.45"},
            "body|partitions|1": f"{TDP}/digits/2026-q2",
        },
        {"run_above_contract"},
    ),
]
RELEASED: list[Case] = [
    ("key_release", {"body|charge": "run-2"}, {"charge_unknown"}),
    ("key_release", CONTRACTS, {"contract_superseded"}),
    ("key_release", {"contracts|0|starts": "2026-06-01T00:00:01Z"}, {"contract_not_begun"}),
    ("key_release", {"contracts|0|ends": NOW}, {"contract_ended"}),
    ("key_release", {"charge|state": "posted"}, {"charge_not_pending"}),
    ("key_release", {"charge|state": "voided"}, {"charge_not_pending"}),
    ("key_release", {"charge|deadline": NOW}, set()),
    ("key_release", {"charge|deadline": "2026-05-31T23:59:59Z"}, {"deadline_passed"}),
    ("key_release", {"key_id": "A" * 43}, {"key_not_clean_room"}),
    ("key_release", {"policies|0|effective": "2026-06-01T00:00:01Z"}, {"policy_missing"}),
    ("key_release", {"body|evidence": DIGEST}, {"attestation_malformed"}),
    (
        "key_release",
        {"policies|1": {**SECOND, "attestation": {**POLICY["attestation"], "claims": {"swname": "newer"}}}},
        {"attestation_claim"},
    ),
    ("model_release", {"body|charge": "run-2"}, {"charge_unknown"}),
    ("model_release", {"key_id": "A" * 43}, {"key_not_clean_room"}),
    ("model_release", {"policies|0|model_release": False}, {"model_not_released"}),
    ("model_release", {"policies|0|level": 0}, set()),
    (
        "model_release",
        {"policies|0|level": 2, "policies|0|model_release": False},
        {"model_not_released", "level_seals_model"},
    ),
    (
        "model_release",
        {"policies|0|level": 2, "policies|0|model_release": False, "policies|1": SECOND},
        {"level_seals_model"},
    ),
    ("model_release", {"policies|0|effective": "2026-06-01T00:00:01Z"}, {"policy_missing"}),
]
REST: list[Case] = [
    ("organisation", {"actor": "did:web:nobody.example"}, {"actor_unknown"}),
    ("organisation", {"actor": "did:web:new.example"}, set()),
    ("post", {"body|charge": "run-2"}, {"charge_unknown"}),
    ("void", {"body|charge": "run-2"}, {"charge_unknown"}),
    ("lapse", {"body|charge": "run-2"}, {"charge_unknown"}),
    ("merger", {"actor": TDC}, {"actor_not_sro"}),
    ("merger", {"actor": "did:web:nobody.example"}, {"actor_not_sro"}),
    ("merger", {"body|parents": [TDC, "did:web:nobody.example"]}, {"parent_unknown"}),
    ("merger", {"body|proposed": True}, set()),
    ("acquisition", {"actor": TDC}, {"actor_not_sro"}),
    ("acquisition", {"body|acquired|0": "did:web:nobody.example"}, {"parent_unknown"}),
    ("collusion", {"actor": TDC}, {"actor_not_sro"}),
    ("collusion", {"body|organisations|0": "did:web:nobody.example"}, {"organisation_unknown"}),
    ("split", {"actor": TDC}, {"actor_not_sro"}),
    ("split", {"body|child": "did:web:nobody.example"}, {"organisation_unknown"}),
    ("publication", {"actor": TDC}, {"actor_not_sro"}),
    ("publication", {"body|charge": "run-2"}, {"charge_unknown"}),
    ("publication", {"body|giver": "did:web:nobody.example"}, {"organisation_unknown"}),
    ("coalition", {"actor": TDC}, {"actor_not_sro"}),
    ("coalition", {"body|members|0": "did:web:nobody.example"}, {"organisation_unknown"}),
    ("transfer", {"policies|0|level": 2, "policies|0|model_release": False}, set()),
    ("transfer", {"actor": TDP}, {"actor_unknown", "charge_not_posted"}),
    ("transfer", {"actor": TDC}, {"charge_not_posted"}),
    ("transfer", {"actor": TDC, "charge|state": "posted"}, set()),
    ("transfer", {"body|charge": "run-2"}, {"charge_unknown"}),
    ("transfer", {"body|recipient": "did:web:nobody.example"}, {"recipient_unknown"}),
    (
        "transfer",
        {
            "actor": TDC,
            "charge|state": "posted",
            "policies|0|level": 2,
            "policies|0|model_release": False,
            "policies|1": SECOND,
        },
        {"level_seals_model"},
    ),
    ("transfer", {"actor": TDC, "charge|state": "posted", "policies|0|model_release": False}, {"model_not_released"}),
]


def faults(verdict: Verdict) -> set[str]:
    """The codes of the checks that failed."""
    return {check.code for check in verdict.checks if not check.passed}


@pytest.mark.parametrize(("kind", "change", "found"), ENTERED + OPENED + CHARGED + RELEASED + REST)
def test_each_edge(kind: str, change: Change, found: set[str]) -> None:
    """Exactly the listed faults are found, and one fault is enough to deny."""
    verdict = decide(kind, change)
    assert faults(verdict) == found
    assert verdict.permit is not bool(found)


@pytest.mark.parametrize(
    ("kind", "change", "code", "text", "source"),
    [
        ("charge", {"partitions|0|run": "2.40001"}, "run_above_contract", "2.40001 > 2.4", C1),
        ("charge", {"partitions|0|run": JUST_ABOVE_2}, "run_above_policy", "2.0001 <= 2.5", P1),
        ("charge", {"partitions|0|run": JUST_BELOW_2_4}, "run_above_contract", "2.4000 <= 2.4", C1),
        ("charge", {"runs": 3}, "runs_exhausted", "4 > 3", C1),
        ("charge", {"partitions|0|opened": "2026-01-31T00:00:00Z"}, "partition_too_old", "00:00Z > last", P1),
        ("partition", {"body|records": 499}, "records_too_few", "499 < 500", P1),
        ("partition", {"body|delta": "1/3"}, "delta_above_budget", "1/3 > 0.00001", P1),
        (
            "contract",
            {"signers": [TDP]},
            "signature_missing",
            f"{TDC} has not signed",
            "contract new version 1",
        ),
        (
            "policy",
            {"signers": []},
            "signature_missing",
            f"{SRO} has not signed",
            "policy health-images version 2",
        ),
        ("policy", {"entered|level": "1"}, "document_malformed", "level: must be an integer, not str", ""),
    ],
)
def test_a_check_tells_numbers_and_source(kind: str, change: Change, code: str, text: str, source: str) -> None:
    """The numbers compared and the document that says so stand in the check."""
    found = [check for check in decide(kind, change).checks if check.code == code]
    assert any(text in check.text and check.source == source for check in found)


def test_each_missing_signature_is_named() -> None:
    """A contract that nobody signed names every party, once each."""
    verdict = decide("contract", {"signers": []})
    named = [check.text for check in verdict.checks if check.code == "signature_missing"]
    assert named == [f"{TDP} has not signed", f"{TDC} has not signed"]
