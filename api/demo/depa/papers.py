"""The scenario's contract and pipeline in DEPA's form: made up here, or DEPA's own from a folder that is named.

As in what DEPA ships, no one is a party yet, the contract is over, the scaler and the stratified split are fitted on
the records, and metrics are exact: ``epsilon depa adapt`` says of each what has to change.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from api.demo.depa.plans import INPUTS, SELECTED, TARGET
from api.demo.depa.raw_files import FOLDER_VARIABLE, NAMES

FILES: Final = ("contract.json", "pipeline_config.json")
IDS: Final = {
    "icmr": "19517ba8-bab8-11ed-afa1-0242ac120002",
    "cowin": "216d5cc6-bab8-11ed-afa1-0242ac120002",
    "index": "2830a144-bab8-11ed-afa1-0242ac120002",
}
_TITLES: Final = {"icmr": "icmr_test_results", "cowin": "cowin_vaccine_data", "index": "index_patient_records"}
_QUERY: Final = (
    "SELECT * FROM icmr_test_results AS icmr JOIN index_patient_records AS idx ON idx.pk_mobno_hashed = "
    "icmr.pk_mobno_hashed JOIN cowin_vaccine_data AS cowin ON idx.pk_mobno_hashed = cowin.pk_mobno_hashed"
)


MEASURED: Final = ("accuracy", "confusion_matrix", "f1_score", "precision_recall_curve")
"""What DEPA's pipeline measures exactly beside the area under the curve; the run leaves it out."""


def papers() -> tuple[bytes, bytes, str]:
    """The contract, the pipeline, and where they come from in words. Raises: OSError."""
    named = os.environ.get(FOLDER_VARIABLE)
    for folder in [Path(named), Path(named).parent] if named else []:
        if all((folder / name).is_file() for name in FILES):
            contract, pipeline = ((folder / name).read_bytes() for name in FILES)
            return contract, pipeline, f"DEPA's own, of {folder}"
    return json.dumps(_contract()).encode(), json.dumps(_pipeline()).encode(), "made up, in DEPA's form"


def _contract() -> dict[str, Any]:
    bound = {"epsilon_threshold": "1.5", "noise_multiplier": "2.0", "delta": "0.01", "epochs_per_report": "2"}
    return {
        "id": "f4f72a88-bab1-11ed-afa1-0242ac120002",
        "schemaVersion": "0.1",
        "startTime": "2023-03-14T00:00:00.000Z",
        "expiryTime": "2024-03-14T00:00:00.000Z",
        "tdc": "",
        "tdps": [],
        "ccrp": "did:web:rooms.example",
        "datasets": [_dataset(name) for name in NAMES],
        "purpose": "TRAINING",
        "constraints": [{"privacy": [{"dataset": IDS[name], **bound} for name in NAMES]}],
        "terms": {"payment": {}, "revocation": {}},
    }


def _dataset(name: str) -> dict[str, Any]:
    authority = {"endpoint": "attest.example"}
    return {
        "id": IDS[name],
        "owner": name,
        "name": _TITLES[name],
        "url": f"https://{name}.example/data.img",
        "provider": "",
        "key": {
            "type": "azure",
            "properties": {"kid": f"{name}-key", "authority": authority, "endpoint": ""},
        },
    }


def _columns(name: str) -> list[str]:
    return [*([TARGET] if name == NAMES[0] else []), *INPUTS[name]]


def _pipeline() -> dict[str, Any]:
    datasets = [
        {
            "id": IDS[name],
            "provider": name,
            "name": _TITLES[name],
            "file": f"{name}.csv",
            "select_variables": [SELECTED.get(column, column) for column in _columns(name)],
            "mount_path": f"/mnt/remote/{name}/",
        }
        for name in NAMES
    ]
    joined = {
        "joined_dataset": "/tmp/covid_joined.csv",  # noqa: S108 - a name inside DEPA's clean room
        "joining_query": _QUERY,
        "joining_key": "pk_mobno_hashed",
        "drop_columns": ["pk_mobno"],
        "identifiers": ["pk_mobno_hashed"],
    }
    training = {
        "paths": {
            "input_dataset_path": "/tmp/covid_joined.csv",  # noqa: S108 - as above
            "trained_model_output_path": "/mnt/remote/output",
        },
        "model_type": "onnx",
        "is_private": True,
        "privacy_params": {"max_grad_norm": 0.1, "epsilon": 1.0, "delta": 0.01},
        "device": "cpu",
        "batch_size": 8,
        "optimizer": {"name": "SGD", "params": {"lr": 0.0001}},
        "scheduler": None,
        "total_epochs": 1,
        "dataset_config": {
            "type": "tabular",
            "target_variable": "icmr_a_icmr_test_result",
            "preprocessing": {"scaler": "standard"},
            "missing_strategy": "fill",
            "fill_value": 0,
            "splits": {"train": 0.7, "val": 0.2, "test": 0.1, "random_state": 42, "stratify": True},
        },
        "loss_config": {"class": "torch.nn.BCELoss", "params": {"reduction": "mean"}},
        "metrics": [*MEASURED, {"name": "roc_auc", "params": {}}],
        "task_type": "classification",
    }
    return {
        "pipeline": [
            {"name": "SparkJoin", "config": {"datasets": datasets, "joined_dataset": joined}},
            {"name": "Train_DL", "config": training},
        ]
    }
