"""One document of each kind with every field it can have."""

from typing import Any, Final

from tests.factories.decision_scene import CONTRACT, DATASET, PLAN, POLICY, STREAM
from tests.factories.people import BANK_A, BANK_B, HOSPITAL

FULL: Final[dict[str, dict[str, Any]]] = {
    "policy": {
        **POLICY,
        "alerts": ["0.5", "0.9"],
        "coalitions": [{"epsilon_max": "6.5", "members": [BANK_A, BANK_B], "name": "banks"}],
        "commitments": True,
        "levels": [{"dataset": "letters", "level": 2, "provider": HOSPITAL}],
        "lineage": {"delta_max": "0.00001", "epsilon_max": "6"},
        "load": PLAN,
        "notice_hours": 24,
        "pipeline": True,
        "step_leases": True,
        "refund": "attested",
        "register": ["budget", "spent"],
        "quota": {"share_max": "0.5"},
        "run": {
            "delta_max": "0.00001",
            "epsilon_max": "2.5",
            "noise_multiplier_min": "1",
            "probability_max": "0.125",
            "steps_max": 1_000,
        },
        "sealed": {"everyone": "caps", "inference": "attested"},
        "shared_accounts": "exact",
        "tuning": "charged",
        "watermark": True,
    },
    "dataset": {**DATASET, "membership": "by the quarter of the first visit", "records_min": 10_000},
    "contract": {
        **CONTRACT,
        "audit": {"canaries_max": 5_000, "partitions": [f"{HOSPITAL}/digits/2026-q1"]},
        "lineage": {"epsilon_max": "5"},
        "run": {
            "delta_max": "0.00001",
            "epsilon_max": "2.4",
            "mechanisms": ["poisson_gaussian"],
            "noise_multiplier_min": "2",
            "probability_max": "0.1",
            "steps_max": 500,
        },
        "share_max": "1/3",
        "waivers": [
            {
                "ends": "2026-11-01T00:00:00Z",
                "issuer": "did:web:sro.example",
                "pipeline": "f" * 64,
                "reason": "the metrics are of a public test set",
                "waives": "metrics_exact",
            }
        ],
    },
    "recommendation": {
        "budget": {"delta_max": "0.00001", "epsilon_max": "5"},
        "dataset": "digits",
        "id": "digits-2026",
        "issuer": "did:web:tso.example",
        "kind": "recommendation",
        "provider": HOSPITAL,
        "v": 1,
        "version": 1,
    },
    "stream": {
        **STREAM,
        "appearances_max": 2,
        "load": PLAN,
        "persons": "declared",
        "prices": [60],
        "rule": "catalogue",
        "slack": "0.0000001",
        "unit": "user",
        "unit_records_max": 8,
    },
}
