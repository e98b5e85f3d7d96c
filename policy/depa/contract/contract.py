"""A DEPA contract: its parties, datasets, keys, dates and privacy constraints.

    {"id":"f4f72a88-...","schemaVersion":"0.1","startTime":"2023-03-14T00:00:00.000Z","tdc":"did:web:...",
     "datasets":[{"id":"19517ba8-...","provider":"did:web:...","key":{"properties":{"kid":"..."}}}],
     "constraints":[{"privacy":[{"dataset":"19517ba8-...","epsilon_threshold":"1.5","delta":"0.01"}]}],...}

Two spellings of constraints exist: that of the contracts DEPA ships, above, and that of its API specification,
``constraints.data[]{"id","privacy":{"epsilon","delta"}}``. A dataset is known by (provider, dataset id, key id).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from policy.depa.contract.decimal_json import strings_in
from policy.depa.contract.field_reader import Fields, read_did
from policy.depa.contract.privacy_constraints import Bound, read_bounds
from policy.depa.contract.reasons import Reasons
from policy.documents.contract import DATASETS_MAX, PARTIES_MAX

PATH: Final = "contract"
SCHEMAS: Final = ("0.1",)
PURPOSES: Final = ("TRAINING", "LLM_FINETUNING")
_FIELDS: Final = (
    "ccrp",
    "constraints",
    "dataset",
    "datasets",
    "expiryTime",
    "id",
    "jurisdiction",
    "purpose",
    "schemaVersion",
    "startTime",
    "tdc",
    "tdps",
    "terms",
    "version",
)
_UNREAD: Final = ("ccrp", "jurisdiction", "terms", "version")
"""Each may bind the parties. What describes a dataset (its ``url``, ``schema`` and ``sample``) binds nobody."""
_DATASET_FIELDS: Final = ("id", "key", "name", "owner", "provider", "sample", "schema", "url")


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset as the contract names it; a field is None if a reason explains why.

    Attributes:
        owner: the short name that pipelines use for its provider; empty in old contracts.
        vault: where its key is stored; empty if the contract does not state it.
    """

    path: str
    id: str | None
    provider: str | None
    key: str | None
    name: str
    owner: str
    vault: str


@dataclass(frozen=True, slots=True)
class Contract:
    """A parsed contract; a field is None if a reason explains why. Times are Unix milliseconds."""

    id: str | None
    tdc: str | None
    tdps: tuple[str, ...]
    starts: int | None
    ends: int | None
    purpose: str | None
    datasets: tuple[Dataset, ...]
    bounds: tuple[Bound, ...]

    def by_key(self) -> tuple[tuple[Dataset, ...], ...]:
        """The datasets by data key, in order: datasets of one key are released, and so charged, together.

        An equal key id joins those of one provider, unless both state the vault of the key and the vaults differ. Two
        providers never share a partition, so what one of them is charged for says nothing of the other's records.
        """
        groups: list[list[Dataset]] = []
        for dataset in self.datasets:
            joined = [group for group in groups if any(_same_key(dataset, member) for member in group)]
            rest = [group for group in groups if group not in joined]
            groups = [*rest, [*(member for group in joined for member in group), dataset]]
        places = {id(dataset): place for place, dataset in enumerate(self.datasets)}
        ordered = (sorted(group, key=lambda one: places[id(one)]) for group in groups)
        return tuple(tuple(group) for group in sorted(ordered, key=lambda group: places[id(group[0])]))

    def epsilon_max(self, datasets: tuple[Dataset, ...] | None = None) -> Fraction | None:
        """The least ε any of these datasets allows one run: every run opens all of them. None if none states one."""
        return min((bound.epsilon for bound in self._of(datasets) if bound.epsilon is not None), default=None)

    def delta_max(self, datasets: tuple[Dataset, ...] | None = None) -> Fraction | None:
        """The least δ, likewise."""
        return min((bound.delta for bound in self._of(datasets) if bound.delta is not None), default=None)

    def _of(self, datasets: tuple[Dataset, ...] | None) -> list[Bound]:
        ids = {dataset.id for dataset in (self.datasets if datasets is None else datasets)}
        return [bound for bound in self.bounds if datasets is None or bound.dataset in ids]


def read_contract(value: Any, reasons: Reasons) -> Contract:  # noqa: ANN401 - JSON
    """A contract from its JSON; every error becomes a reason, and none raises."""
    top = Fields(value, PATH, reasons)
    top.only(_FIELDS)
    for path, text in strings_in(top.value, PATH):
        if "$" in text:
            reasons.warn("placeholder", path, text)
    top.one_of("schemaVersion", SCHEMAS)
    if top.has("version"):
        top.text("version")
    top.unread(*_UNREAD)
    contract = Contract(
        id=top.name("id"),
        tdc=top.did("tdc"),
        tdps=_tdps(top),
        starts=top.time("startTime"),
        ends=top.time("expiryTime"),
        purpose=top.one_of("purpose", PURPOSES),
        datasets=tuple(_datasets(top)),
        bounds=read_bounds(top),
    )
    _check_parties(contract, reasons)
    _check_identities(contract, reasons)
    _check_bounds(contract, reasons)
    return contract


def _tdps(top: Fields) -> tuple[str, ...]:
    items = top.items("tdps", PARTIES_MAX)
    read = (read_did(did, f"{PATH}.tdps[{place}]", top.reasons) for place, did in enumerate(items))
    return tuple(dict.fromkeys(did for did in read if did is not None))


def _datasets(top: Fields) -> Iterator[Dataset]:
    """``datasets``, or the specification's single ``dataset``."""
    if top.has("dataset") and top.has("datasets"):
        top.refuse("field_twice", "dataset", "as datasets and as dataset")
    if top.has("dataset") and not top.has("datasets"):
        yield _dataset(top.inner("dataset"))
        return
    yield from map(_dataset, top.objects("datasets", DATASETS_MAX))


def _dataset(fields: Fields) -> Dataset:
    fields.only(_DATASET_FIELDS)
    kid, vault = _key(fields)
    return Dataset(
        path=fields.path,
        id=fields.name("id"),
        provider=fields.did("provider"),
        key=kid,
        name=(fields.text("name") or "") if fields.has("name") else "",
        owner=(fields.text("owner") or "") if fields.has("owner") else "",
        vault=vault,
    )


def _key(fields: Fields) -> tuple[str | None, str]:
    """The id of the data key, and the vault that stores it."""
    key = fields.inner("key")
    if not fields.has("key"):
        return None, ""
    key.only(("properties", "type"))
    key.one_of("type", ("azure",))
    properties = key.inner("properties")
    if not key.has("properties"):
        return None, ""
    properties.only(("authority", "endpoint", "kid"))
    properties.unread("authority")  # who attests is the policy's to say
    vault = properties.text("endpoint", empty=True) if properties.has("endpoint") else ""
    return properties.name("kid"), vault or ""


def _check_parties(contract: Contract, reasons: Reasons) -> None:
    if contract.starts is not None and contract.ends is not None and contract.starts >= contract.ends:
        reasons.refuse("dates_unordered", f"{PATH}.expiryTime")
    for dataset in contract.datasets:
        if dataset.provider is not None and dataset.provider not in contract.tdps:
            reasons.refuse("provider_not_party", f"{dataset.path}.provider", dataset.provider)


def _check_identities(contract: Contract, reasons: Reasons) -> None:
    seen: set[tuple[str | None, str | None]] = set()
    for dataset in contract.datasets:
        pair = (dataset.provider, dataset.id)
        if None not in pair and pair in seen:
            reasons.refuse("dataset_twice", f"{dataset.path}.id", dataset.id)
        seen.add(pair)
    for group in contract.by_key():
        if len(group) > 1:
            names = ", ".join(dataset.name or dataset.id or dataset.path for dataset in group)
            reasons.warn("keys_together", f"{group[0].path}.key.properties.kid", group[0].key, names)


def _check_bounds(contract: Contract, reasons: Reasons) -> None:
    held = Counter(dataset.id for dataset in contract.datasets if dataset.id)
    providers = {name: {dataset.provider for dataset in contract.datasets if dataset.id == name} for name in held}
    counts = Counter(bound.dataset for bound in contract.bounds if bound.dataset)
    seen: set[str] = set()
    for bound in contract.bounds:
        if bound.dataset is None:
            continue
        if bound.dataset not in held:
            reasons.refuse("constraint_dataset_unknown", bound.path, bound.dataset)
        if bound.dataset in seen:
            reasons.refuse("constraint_twice", bound.path, bound.dataset)
        seen.add(bound.dataset)
    for dataset in contract.datasets:
        if dataset.id is not None and not counts[dataset.id]:
            reasons.refuse("constraint_missing", dataset.path, dataset.id)
        elif dataset.id is not None and len(providers[dataset.id]) > 1:
            reasons.refuse("dataset_ambiguous", f"{dataset.path}.id", dataset.id)


def _same_key(dataset: Dataset, other: Dataset) -> bool:
    if dataset.key is None or (dataset.provider, dataset.key) != (other.provider, other.key):
        return False
    return not (dataset.vault and other.vault) or dataset.vault == other.vault
