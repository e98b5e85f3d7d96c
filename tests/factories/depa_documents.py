"""A contract and a pipeline in DEPA's form, made up for the tests; as they are, nothing refuses them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from policy.checks.field_readers import parse_time
from policy.depa.evaluation import Terms
from policy.depa.import_check import Checked, check
from tests.factories.path_changes import changed
from tests.factories.people import BANK_A, HOSPITAL, LABORATORY

CHECKED_AT: Final = parse_time("2026-06-01T00:00:00Z", "now")
VISITS, TESTS, WARDS = "8c1d7c2a-visits", "8c1d7c2a-tests", "8c1d7c2a-wards"


def _dataset(name: str, owner: str, provider: str, key: str, title: str) -> dict[str, Any]:
    properties = {"kid": key, "authority": {"endpoint": "attest.example"}, "endpoint": "vault.example"}
    return {
        "id": name,
        "owner": owner,
        "name": title,
        "url": f"https://{owner}.example/data.img",
        "provider": provider,
        "key": {"type": "azure", "properties": properties},
    }


def _bound(name: str, epsilon: str) -> dict[str, str]:
    return {"dataset": name, "epsilon_threshold": epsilon, "delta": "0.01"}


CONTRACT: Final[dict[str, Any]] = {
    "id": "3f0a5a50-contract",
    "schemaVersion": "0.1",
    "startTime": "2026-01-01T00:00:00.000Z",
    "expiryTime": "2027-01-01T00:00:00.000Z",
    "tdc": BANK_A,
    "tdps": [HOSPITAL, LABORATORY],
    "ccrp": "did:web:rooms.example",
    "datasets": [
        _dataset(VISITS, "hospital", HOSPITAL, "HospitalKey", "visits"),
        _dataset(TESTS, "lab", LABORATORY, "LabKey", "tests"),
        _dataset(WARDS, "hospital", HOSPITAL, "HospitalKey", "wards"),
    ],
    "purpose": "TRAINING",
    "constraints": [{"privacy": [_bound(VISITS, "2.50"), _bound(TESTS, "2"), _bound(WARDS, "3.0")]}],
    "terms": {"payment": {}, "revocation": {}},
}
JOIN: Final[dict[str, Any]] = {
    "name": "SparkJoin",
    "config": {
        "datasets": [
            {
                "id": VISITS,
                "provider": "hospital",
                "name": "visits",
                "file": "v.csv",
                "mount_path": "/mnt/remote/hospital",
            },
            {"id": TESTS, "provider": "lab", "name": "tests", "file": "t.csv", "mount_path": "/mnt/remote/lab"},
        ],
        "joined_dataset": {
            "joined_dataset": "/data/joined.csv",
            "joining_query": "SELECT * FROM visits AS v JOIN tests AS t ON v.phone = t.phone",
            "joining_key": "phone",
            "drop_columns": ["name"],
            "identifiers": ["phone"],
        },
        "rows_per_principal_max": 1,
    },
}
TRAIN: Final[dict[str, Any]] = {
    "name": "Train_DL",
    "config": {
        "paths": {"input_dataset_path": "/data/joined.csv", "trained_model_output_path": "/mnt/remote/output"},
        "model_type": "onnx",
        "is_private": True,
        "privacy_params": {"max_grad_norm": 0.5, "epsilon": 2.0, "delta": 0.0001},
        "device": "cpu",
        "batch_size": 50,
        "optimizer": {"name": "SGD", "params": {"lr": 1e-05}},
        "scheduler": None,
        "total_epochs": 2,
        "dataset_config": {
            "type": "tabular",
            "target_variable": "result",
            "missing_strategy": "fill",
            "fill_value": 0,
            "splits": {"train": 0.8, "test": 0.2, "random_state": 42},
        },
        "loss_config": {"class": "torch.nn.BCELoss"},
        "metrics": [],
        "task_type": "classification",
    },
}
PIPELINE: Final[dict[str, Any]] = {"pipeline": [JOIN, TRAIN]}
TREES: Final[dict[str, Any]] = {
    "name": "Train_XGB",
    "config": {
        "paths": {"input_dataset_path": "/data/joined.csv", "trained_model_output_path": "/mnt/remote/output"},
        "is_private": True,
        "privacy_params": {"epsilon": 1.5, "delta": None},
        "model_config": {"n_estimators": 50, "scale_pos_weight": 1.0},
    },
}


def checked(
    contract: Mapping[str, Any] | None = None,
    pipeline: Mapping[str, Any] | None = None,
    **terms: Any,  # noqa: ANN401 - what Terms takes
) -> Checked:
    """A check of the scene with some paths changed."""
    texts = [
        json.dumps(changed(base, change or {})).encode()
        for base, change in ((CONTRACT, contract), (PIPELINE, pipeline))
    ]
    return check(texts[0], texts[1], Terms(**{"now": CHECKED_AT, **terms}))


def refusals(found: Checked) -> list[tuple[str, str]]:
    """Every refusal by code and field, in order."""
    return [(reason.code, reason.field) for reason in found.reasons if reason.refused]


def warnings(found: Checked) -> list[tuple[str, str]]:
    """Every warning, likewise."""
    return [(reason.code, reason.field) for reason in found.reasons if not reason.refused]
