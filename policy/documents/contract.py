"""A contract between TDPs and one TDC: its datasets, purpose, dates, number of runs and bounds on each.

{"kind":"contract","v":1,"id":"digits-bank-a","version":1,"tdc":"did:web:bank-a.example",...}
"""

from __future__ import annotations

from typing import Annotated, Final

from ledger.mechanisms.audited_plan import CANARIES_MAX
from ledger.wire.field_types import Did, Name, Ref, Sha256, between, distinct, words
from ledger.wire.records import Record
from policy.checks.field_readers import Inconsistent
from policy.documents.dataset import DatasetName, Text
from policy.documents.document import Document, Epsilon, Share, Time, Version
from policy.documents.run_bounds import ContractRunLimits

PARTIES_MAX: Final = 16
DATASETS_MAX: Final = 64
RUNS_MAX: Final = 1_000_000
WAIVERS_MAX: Final = 32
AUDITED_MAX: Final = 64
"""Partitions that a contract opens for audit."""
WAIVABLE: Final = ("join_unbounded", "metrics_exact", "preprocessing_fitted")
"""Operations of a pipeline beside training that have no price, by the codes of the DEPA import."""


class LineageBound(Record, frozen=True):
    """The cap on what the TDC's lineage may learn of each partition."""

    epsilon_max: Epsilon


class Waiver(Record, frozen=True):
    """An SRO's decision that an operation without a price, in one pipeline, does not stop the contract's runs.

    Attributes:
        ends: the time (ms) from which it stops them again.
        pipeline: the digest of the pipeline's bytes, which a charge names and its clean room attests.
        reason: an explanation for people.
    """

    ends: Time
    issuer: Did
    pipeline: Sha256
    reason: Text
    waives: Annotated[str, words(*WAIVABLE)]


class AuditTerms(Record, frozen=True):
    """What the providers agree to with their signatures: canaries beside the records of these partitions.

    Attributes:
        canaries_max: of one run.
    """

    canaries_max: Annotated[int, between(1, CANARIES_MAX)]
    partitions: Annotated[tuple[Ref, ...], distinct(AUDITED_MAX)]


class ContractDocument(Document, frozen=True, tag_field="kind", tag="contract"):
    """A contract, signed by all its TDPs and the TDC; in force from ``starts`` until before ``ends`` (ms).

    Attributes:
        audit: the partitions that are open for audited runs; without it there are none.
        run: the cap on one run's ε, and its other bounds.
        share_max: the greatest share of each partition's capacity that the TDC's lineage may use.
        waivers: each signed by its issuer too; a contract with waivers admits runs of their pipelines only.
    """

    datasets: Annotated[tuple[DatasetName, ...], distinct(DATASETS_MAX)]
    ends: Time
    id: Name
    purpose: Text
    run: ContractRunLimits
    runs_max: Annotated[int, between(1, RUNS_MAX)]
    starts: Time
    tdc: Did
    tdps: Annotated[tuple[Did, ...], distinct(PARTIES_MAX)]
    version: Version
    audit: AuditTerms | None = None
    lineage: LineageBound | None = None
    share_max: Share | None = None
    waivers: Annotated[tuple[Waiver, ...], distinct(WAIVERS_MAX)] | None = None

    @property
    def source(self) -> str:
        """Its name in decisions."""
        return f"contract {self.id} version {self.version}"

    @property
    def parties(self) -> tuple[str, ...]:
        """The parties: every TDP and the TDC."""
        return (*self.tdps, self.tdc)

    @property
    def signers(self) -> tuple[str, ...]:
        """All that must sign: the parties, and the issuers of waivers."""
        return tuple(dict.fromkeys((*self.parties, *(waiver.issuer for waiver in self.waivers or ()))))

    def __post_init__(self) -> None:
        """Check the fields against one another. Raises: Malformed, Inconsistent."""
        super().__post_init__()
        if self.starts >= self.ends:
            raise Inconsistent("ends", "must be after starts")
        for place, dataset in enumerate(self.datasets):
            if dataset.provider not in self.tdps:
                raise Inconsistent(f"datasets[{place}].provider", "must be one of tdps")
        own = {(dataset.provider, dataset.dataset) for dataset in self.datasets}
        for place, ref in enumerate(() if self.audit is None else self.audit.partitions):
            if tuple(ref.split("/")[:2]) not in own:
                raise Inconsistent(f"audit.partitions[{place}]", "must be of one of datasets")
        for place, waiver in enumerate(self.waivers or ()):
            if waiver.ends > self.ends:
                raise Inconsistent(f"waivers[{place}].ends", "must not be after the contract's end")
