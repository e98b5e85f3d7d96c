"""DEPA's joins: each is admitted with a declared bound on the rows of one data principal in its result.

    {"name":"SparkJoin","config":{"datasets":[...],"rows_per_principal_max":1,
     "joined_dataset":{"joined_dataset":"/tmp/joined.csv","joining_query":"SELECT ...","joining_key":"phone_hashed"}}}

``rows_per_principal_max`` is our field: DEPA's own configurations have none, and a join of many rows to many would let
one principal into the result any number of times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.mechanisms.mechanism import GROUP_MAX
from policy.depa.contract.contract import Contract
from policy.depa.contract.field_reader import Fields
from policy.depa.pipeline.join_query import NotPlain, check_query
from policy.documents.contract import DATASETS_MAX

BOUND: Final = "rows_per_principal_max"
SPARK: Final = ("SparkJoin", "Join")
NAMES: Final = (*SPARK, "DirectoryJoin")
_DATASET: Final = ("file", "id", "mount_path", "name", "provider", "select_variables")
_JOINED: Final = (
    "drop_columns",
    "identifiers",
    "joined_dataset",
    "joined_result_columns",
    "joining_key",
    "joining_query",
    "model_output_folder",
)


@dataclass(frozen=True, slots=True)
class Join:
    """One parsed join.

    Attributes:
        output: the path of its result; None if a reason explains why.
        mounts: the paths of the datasets that it names.
        rows: the declared bound on the rows of one data principal in the result; None without one.
    """

    path: str
    output: str | None
    mounts: tuple[str, ...]
    rows: int | None


def read_join(name: str, fields: Fields, contract: Contract) -> Join:
    """A join stage's config; every error becomes a reason."""
    fields.only(("datasets", "joined_dataset", BOUND))
    datasets = list(fields.objects("datasets", DATASETS_MAX))
    read = [_dataset(dataset, contract) for dataset in datasets]
    output = _spark(fields, datasets, contract) if name in SPARK else fields.text("joined_dataset")
    rows = fields.whole(BOUND, 1, GROUP_MAX) if fields.has(BOUND) else None
    return Join(fields.path, output, tuple(mount for mount in read if mount), rows)


def _dataset(fields: Fields, contract: Contract) -> str | None:
    fields.only(_DATASET)
    name = fields.name("id")
    datasets = [dataset for dataset in contract.datasets if name is not None and dataset.id == name]
    if name is not None and not datasets:
        fields.refuse("dataset_not_in_contract", "id")
    if datasets and fields.has("provider"):
        provider = fields.text("provider")
        if provider is not None and not any(provider in {dataset.owner, dataset.provider} for dataset in datasets):
            providers = " or ".join(
                dict.fromkeys(dataset.owner or dataset.provider or "no provider" for dataset in datasets)
            )
            fields.refuse("provider_differs", "provider", providers)
    return fields.text("mount_path") if fields.has("mount_path") else None


def _spark(fields: Fields, datasets: list[Fields], contract: Contract) -> str | None:
    joined = fields.inner("joined_dataset")
    if not fields.has("joined_dataset"):
        return None
    joined.only(_JOINED)
    key, query = joined.text("joining_key"), joined.text("joining_query")
    if key is not None and query is not None:
        names = [dataset.text("name") for dataset in datasets]
        _check_query(joined, key, query, {name.upper() for name in names if name is not None})
    for bound in contract.bounds:
        used = bound.dataset in {
            dataset.value.get("id") for dataset in datasets if isinstance(dataset.value.get("id"), str)
        }
        if key is not None and used and bound.join_keys and key not in bound.join_keys:
            joined.refuse("join_key_not_permitted", "joining_key", ", ".join(bound.join_keys))
    output = joined.text("joined_dataset")
    # Before 2025 the folder of the result was a field of its own.
    folder = joined.text("model_output_folder") if joined.has("model_output_folder") else None
    return f"{folder.rstrip('/')}/{output}" if folder and output and not output.startswith("/") else output


def _check_query(joined: Fields, key: str, query: str, known_tables: set[str]) -> None:
    try:
        tables = check_query(query, key)
    except NotPlain as error:
        joined.refuse("join_query", "joining_query", str(error))
        return
    for table in tables:
        if table not in known_tables:
            joined.refuse("join_query", "joining_query", f"{table!r} is no dataset of this stage")
