"""A contract between TDPs and one TDC: which datasets, for what, from when until when, how many runs of what size.

{"kind":"contract","v":1,"id":"digits-bank-a","version":1,"tdc":"did:web:bank-a.example",...}
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from ledger.domain.gate import DOCUMENT_BYTES_MAX
from policy.checks import field_readers as r
from policy.documents import field_shapes as s
from policy.documents.document_text import read_document
from policy.documents.run_bounds import CONTRACT_RUN, UNBOUNDED, RunBounds, bounds_of

PARTIES_MAX: Final = 16
DATASETS_MAX: Final = 64
RUNS_MAX: Final = 1_000_000
TEXT_MAX: Final = 20_000

SHAPE: Final = s.document(
    "contract",
    {
        "datasets": s.listed(s.record({"dataset": s.NAME, "provider": s.DID}).shape, DATASETS_MAX, "datasets"),
        "ends": s.TIME,
        "id": s.NAME,
        "purpose": s.text(TEXT_MAX),
        "run": CONTRACT_RUN,
        "runs_max": s.integer(1, RUNS_MAX),
        "starts": s.TIME,
        "tdc": s.DID,
        "tdps": s.listed(s.DID, PARTIES_MAX, "TDPs"),
        "version": s.VERSION,
    },
    {"lineage": s.record({"epsilon_max": s.EPSILON}).shape, "share_max": s.SHARE},
)


@dataclass(frozen=True, slots=True)
class ContractDocument:
    """What all its TDPs and the TDC sign; in force from ``starts`` until before ``ends`` (ms).

    Attributes:
        run_epsilon_max: the cap on one run; ``run`` has the other bounds.
        share_max: the greatest share of each partition's capacity that the TDC's lineage may use.
    """

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
    run: RunBounds = UNBOUNDED
    share_max: Fraction | None = None

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
        """Read JSON or YAML and validate. Raises: Malformed; Inconsistent, if it contradicts itself."""
        return read_document(data, DOCUMENT_BYTES_MAX, cls.of)

    @classmethod
    def of(cls, value: object) -> Self:
        """Read a value and validate. Raises: Malformed; Inconsistent, if it contradicts itself."""
        known = SHAPE.read(value)
        same = ("ends", "id", "purpose", "runs_max", "starts", "tdc", "tdps", "version")
        contract = cls(
            **{name: known[name] for name in same},
            datasets=tuple((one["provider"], one["dataset"]) for one in known["datasets"]),
            run_epsilon_max=known["run"]["epsilon_max"],
            run=bounds_of(known["run"]),
            lineage_epsilon_max=known.get("lineage", {}).get("epsilon_max"),
            share_max=known.get("share_max"),
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
