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
from policy.depa.pipeline.mounts import is_mount_of, leaves_folder
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
        mounts: the paths at which it reads datasets of the contract.
        renamed: each name that its query gives to a column of another name, in capitals.
        rows: the declared bound on the rows of one data principal in the result; None without one.
    """

    path: str
    output: str | None
    mounts: tuple[str, ...]
    rows: int | None
    renamed: tuple[str, ...] = ()

    @property
    def query_path(self) -> str:
        """Where its query stands."""
        return f"{self.path}.joined_dataset.joining_query"


def read_join(name: str, fields: Fields, contract: Contract) -> Join:
    """A join stage's config; every error becomes a reason."""
    fields.only(("datasets", "joined_dataset", BOUND))
    datasets = list(fields.objects("datasets", DATASETS_MAX))
    read = [_dataset(dataset, contract) for dataset in datasets]
    rows = fields.whole(BOUND, 1, GROUP_MAX) if fields.has(BOUND) else None
    mounts = tuple(mount for mount in read if mount)
    if name in SPARK:
        output, renamed = _spark(fields, datasets, contract)
        return Join(fields.path, output, mounts, rows, renamed)
    for keys in _permitted_keys(datasets, contract):
        # It puts files of equal names into one folder, by no key at all.
        fields.refuse("join_key_not_permitted", "joined_dataset", f"a directory join has no key; {_keys_text(keys)}")
    return Join(fields.path, fields.text("joined_dataset"), mounts, rows)


def _permitted_keys(datasets: list[Fields], contract: Contract) -> list[tuple[str, ...]]:
    """The keys that each dataset of a join may be joined on, of those that the contract bounds."""
    used = {name for dataset in datasets if isinstance(name := dataset.value.get("id"), str)}
    return [bound.join_keys for bound in contract.bounds if bound.join_keys is not None and bound.dataset in used]


def _keys_text(keys: tuple[str, ...]) -> str:
    return f"permitted are {', '.join(keys)}" if keys else "the contract permits none"


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
    if fields.has("file") and (file := fields.text("file")) is not None and leaves_folder(file):
        fields.refuse("mount_differs", "file", "it leads out of the folder of the dataset")
    mount = fields.text("mount_path") if fields.has("mount_path") else None
    if mount is not None and datasets and not is_mount_of(mount, datasets, contract):
        owners = " or ".join(dict.fromkeys(dataset.owner or "<owner>" for dataset in datasets))
        fields.refuse("mount_differs", "mount_path", f"must be /mnt/remote/{owners}")
        return None
    return mount if datasets else None


def _spark(fields: Fields, datasets: list[Fields], contract: Contract) -> tuple[str | None, tuple[str, ...]]:
    """The path of a Spark join's result, and the names that its query gives to columns of other names."""
    joined = fields.inner("joined_dataset")
    if not fields.has("joined_dataset"):
        return None, ()
    joined.only(_JOINED)
    key, query = joined.text("joining_key"), joined.text("joining_query")
    renamed: tuple[str, ...] = ()
    if key is not None and query is not None:
        names = [dataset.text("name") for dataset in datasets]
        renamed = _check_query(joined, key, query, {name.upper() for name in names if name is not None})
    for keys in _permitted_keys(datasets, contract):
        if key is not None and key not in keys:
            joined.refuse("join_key_not_permitted", "joining_key", _keys_text(keys))
    output = joined.text("joined_dataset")
    # Before 2025 the folder of the result was a field of its own.
    folder = joined.text("model_output_folder") if joined.has("model_output_folder") else None
    if folder and output and not output.startswith("/"):
        output = f"{folder.rstrip('/')}/{output}"
    return output, renamed


def _check_query(joined: Fields, key: str, query: str, known_tables: set[str]) -> tuple[str, ...]:
    """Report a query that is not plain, or reads another table; the names that it gives to columns of other names."""
    try:
        plain = check_query(query, key)
    except NotPlain as error:
        joined.refuse("join_query", "joining_query", str(error))
        return ()
    for table in plain.tables:
        if table not in known_tables:
            joined.refuse("join_query", "joining_query", f"{table!r} is no dataset of this stage")
    return plain.renamed
