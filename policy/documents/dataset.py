"""A TDP's description of a dataset, and a TSO's recommendation of a budget for it.

{"kind":"dataset","v":1,"provider":"did:web:hospital.example","id":"digits","domain":"health",...}
{"kind":"recommendation","v":1,"issuer":"did:web:tso.example","id":"digits-2026","version":1,...}
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from ledger.commands.registration.partition import UNITS
from ledger.domain.gate import DOCUMENT_BYTES_MAX
from policy.documents import field_shapes as s
from policy.documents.document_text import read_document

TEXT_MAX: Final = 20_000
RECORDS_MAX: Final = 10**12

DATASET: Final = s.document(
    "dataset",
    {
        "deidentification": s.text(TEXT_MAX),
        "domain": s.NAME,
        "id": s.NAME,
        "provider": s.DID,
        "schema": s.text(TEXT_MAX),
        "unit": s.word(*UNITS),
    },
    {"membership": s.text(TEXT_MAX), "records_min": s.integer(1, RECORDS_MAX)},
)
RECOMMENDATION: Final = s.document(
    "recommendation",
    {
        "budget": s.record({"delta_max": s.DELTA, "epsilon_max": s.EPSILON}).shape,
        "dataset": s.NAME,
        "id": s.NAME,
        "issuer": s.DID,
        "provider": s.DID,
        "version": s.VERSION,
    },
)


@dataclass(frozen=True, slots=True)
class DatasetDescription:
    """What a TDP offers: known by (provider, id), never by the id alone.

    Attributes:
        membership: the public, fixed function that says which partition a privacy unit belongs to.
        records_min: a public lower bound on how many records there are.
    """

    provider: str
    id: str
    domain: str
    schema: str
    unit: str
    deidentification: str
    membership: str | None = None
    records_min: int | None = None

    @property
    def source(self) -> str:
        """How a decision names it."""
        return f"dataset {self.id} of {self.provider}"

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read JSON or YAML. Raises: Malformed."""
        return read_document(data, DOCUMENT_BYTES_MAX, cls.of)

    @classmethod
    def of(cls, value: object) -> Self:
        """Read a value. Raises: Malformed."""
        return cls(**{name: one for name, one in DATASET.read(value).items() if name not in {"kind", "v"}})


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A TSO's proposed budget for the partitions of one dataset; a budget above it needs a reason."""

    id: str
    version: int
    issuer: str
    provider: str
    dataset: str
    epsilon_max: Fraction
    delta_max: Fraction

    @property
    def source(self) -> str:
        """How a decision names it."""
        return f"recommendation {self.id} version {self.version}"

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read JSON or YAML. Raises: Malformed."""
        return read_document(data, DOCUMENT_BYTES_MAX, cls.of)

    @classmethod
    def of(cls, value: object) -> Self:
        """Read a value. Raises: Malformed."""
        known = RECOMMENDATION.read(value)
        plain = ("dataset", "id", "issuer", "provider", "version")
        return cls(**{name: known[name] for name in plain}, **known["budget"])
