"""The documents people sign: an SRO's policy, a TDP's dataset description, a contract of TDPs and a TDC.

    {"kind":"contract","v":1,"id":"digits-bank-a","version":1,"tdc":"did:web:bank-a.example",...}

Each ``parse`` is strict: an unknown field is an error that names it, numbers are exact strings, and what
contradicts itself is :class:`~policy.reading.Inconsistent`. Signatures are over the bytes as given.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from ledger import canonical as c
from ledger.malformed import Malformed
from ledger.mechanism import KINDS
from policy import reading as r
from policy.attesters import Attestation

LEVEL_SEALED: Final = 2
PARTIES_MAX: Final = 16
DATASETS_MAX: Final = 64
TEXT_MAX: Final = 20_000
AGE_DAYS_MAX: Final = 36_500
RUNS_MAX: Final = 1_000_000
RECORDS_MAX: Final = 10**12

# Policies speak the glossary's words. The ledger may know fewer yet; then nothing is opened under them.
UNITS: Final = ("record", "user")
RELATIONS: Final = ("ADD_OR_REMOVE_ONE", "REPLACE_ONE", "REPLACE_SPECIAL")
RULES: Final = ("renyi", "reference", "gaussian")
MECHANISMS: Final = tuple(kind for kind in KINDS if kind not in {"composed", "group", "self_composed"})
"""What holds others is permitted if all it holds is; tuning is a mechanism of its own."""


@dataclass(frozen=True, slots=True)
class Policy:
    """An SRO's policy for a domain, from ``effective`` (ms) until a later version is.

    Attributes:
        epsilon_max: the largest ε a partition may be opened with; ``delta_max`` likewise.
        lineage_epsilon_max: the cap on what each lineage may learn of a partition, at the partition's δ.
        run_epsilon_max: the cap on one run, at the partition's δ.
        partition_age_days_max: after so many days a partition takes no more charges; required at Level 1.
    """

    id: str
    version: int
    issuer: str
    domain: str
    level: int
    effective: int
    epsilon_max: Fraction
    delta_max: Fraction
    lineage_epsilon_max: Fraction
    run_epsilon_max: Fraction
    unit: str
    relation: str
    rules: tuple[str, ...]
    mechanisms: tuple[str, ...]
    records_min: int
    partition_age_days_max: int | None
    attestation: Attestation
    model_release: bool

    @property
    def source(self) -> str:
        """How a decision names it."""
        return f"policy {self.id} version {self.version}"

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read and validate. Raises: Malformed; Inconsistent, if it contradicts itself."""
        names = (
            "attestation",
            "budget",
            "domain",
            "effective",
            "id",
            "issuer",
            "level",
            "lineage",
            "mechanisms",
        )
        more = ("model_release", "records_min", "relation", "rules", "run", "unit", "version")
        known = r.tagged(data, "policy", names + more, optional=("partition_age_days_max",))
        budget = c.fields(known["budget"], "budget", ("delta_max", "epsilon_max"))
        age = known.get("partition_age_days_max")
        if "partition_age_days_max" in known:
            c.integer(age, "partition_age_days_max", 1, AGE_DAYS_MAX)
        policy = cls(
            id=c.name(known["id"], "id"),
            version=r.version_number(known["version"], "version"),
            issuer=c.did(known["issuer"], "issuer"),
            domain=c.name(known["domain"], "domain"),
            level=c.integer(known["level"], "level", 0, LEVEL_SEALED),
            effective=r.parse_time(known["effective"], "effective"),
            epsilon_max=r.parse_epsilon(budget["epsilon_max"], "budget.epsilon_max"),
            delta_max=r.parse_delta(budget["delta_max"], "budget.delta_max"),
            lineage_epsilon_max=r.epsilon_cap(known["lineage"], "lineage"),
            run_epsilon_max=r.epsilon_cap(known["run"], "run"),
            unit=c.one_of(known["unit"], "unit", UNITS),
            relation=c.one_of(known["relation"], "relation", RELATIONS),
            rules=r.subset(known["rules"], "rules", RULES),
            mechanisms=r.subset(known["mechanisms"], "mechanisms", MECHANISMS),
            records_min=c.integer(known["records_min"], "records_min", 1, RECORDS_MAX),
            partition_age_days_max=age,
            attestation=Attestation.parse(known["attestation"], "attestation"),
            model_release=c.boolean(known["model_release"], "model_release"),
        )
        policy.validate()
        return policy

    def validate(self) -> None:
        """Hold the fields against one another. Raises: Inconsistent."""
        if self.level == 1 and self.partition_age_days_max is None:
            raise r.Inconsistent("partition_age_days_max", "is missing: Level 1 requires renewal")
        if self.level == LEVEL_SEALED and self.model_release:
            raise r.Inconsistent("model_release", "must be false: at Level 2 no model is released")
        if self.lineage_epsilon_max > self.epsilon_max:
            raise r.Inconsistent("lineage.epsilon_max", "must be at most budget.epsilon_max")


@dataclass(frozen=True, slots=True)
class DatasetDescription:
    """What a TDP offers: known by (provider, id), never by the id alone."""

    provider: str
    id: str
    domain: str
    schema: str
    unit: str
    deidentification: str

    @property
    def source(self) -> str:
        """How a decision names it."""
        return f"dataset {self.id} of {self.provider}"

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read. Raises: Malformed."""
        known = r.tagged(data, "dataset", ("deidentification", "domain", "id", "provider", "schema", "unit"))
        return cls(
            provider=c.did(known["provider"], "provider"),
            id=c.name(known["id"], "id"),
            domain=c.name(known["domain"], "domain"),
            schema=c.string(known["schema"], "schema", TEXT_MAX),
            unit=c.one_of(known["unit"], "unit", UNITS),
            deidentification=c.string(known["deidentification"], "deidentification", TEXT_MAX),
        )


@dataclass(frozen=True, slots=True)
class ContractDocument:
    """What all its TDPs and the TDC sign; in force from ``starts`` until before ``ends`` (ms)."""

    id: str
    version: int
    tdps: tuple[str, ...]
    tdc: str
    datasets: tuple[tuple[str, str], ...]
    purpose: str
    starts: int
    ends: int
    run_epsilon_max: Fraction
    runs_max: int
    lineage_epsilon_max: Fraction | None

    @property
    def source(self) -> str:
        """How a decision names it."""
        return f"contract {self.id} version {self.version}"

    @property
    def parties(self) -> tuple[str, ...]:
        """Everyone who signs: every TDP and the TDC."""
        return (*self.tdps, self.tdc)

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read and validate. Raises: Malformed; Inconsistent, if it contradicts itself."""
        names = ("datasets", "ends", "id", "purpose", "run", "runs_max", "starts", "tdc", "tdps", "version")
        known = r.tagged(data, "contract", names, optional=("lineage",))
        tdps = c.strings(known["tdps"], "tdps", PARTIES_MAX)
        contract = cls(
            id=c.name(known["id"], "id"),
            version=r.version_number(known["version"], "version"),
            tdps=tuple(c.did(tdp, f"tdps[{place}]") for place, tdp in enumerate(tdps)),
            tdc=c.did(known["tdc"], "tdc"),
            datasets=_datasets(known["datasets"]),
            purpose=c.string(known["purpose"], "purpose", TEXT_MAX),
            starts=r.parse_time(known["starts"], "starts"),
            ends=r.parse_time(known["ends"], "ends"),
            run_epsilon_max=r.epsilon_cap(known["run"], "run"),
            runs_max=c.integer(known["runs_max"], "runs_max", 1, RUNS_MAX),
            lineage_epsilon_max=r.epsilon_cap(known["lineage"], "lineage") if "lineage" in known else None,
        )
        contract.validate()
        return contract

    def validate(self) -> None:
        """Hold the fields against one another. Raises: Inconsistent."""
        if self.starts >= self.ends:
            raise r.Inconsistent("ends", "must be after starts")
        for place, (provider, _) in enumerate(self.datasets):
            if provider not in self.tdps:
                raise r.Inconsistent(f"datasets[{place}].provider", "must be one of tdps")


def _datasets(value: object) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= DATASETS_MAX:
        raise Malformed("datasets", f"must be a list of 1 to {DATASETS_MAX} datasets")
    found = []
    for place, item in enumerate(value):
        known = c.fields(item, f"datasets[{place}]", ("dataset", "provider"))
        provider = c.did(known["provider"], f"datasets[{place}].provider")
        found.append((provider, c.name(known["dataset"], f"datasets[{place}].dataset")))
    if len(set(found)) != len(found):
        raise Malformed("datasets", "names a dataset twice")
    return tuple(found)
