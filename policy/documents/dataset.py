"""A TDP's description of a dataset, and a TSO's recommendation of a budget for it.

{"kind":"dataset","v":1,"provider":"did:web:hospital.example","id":"digits","domain":"health",...}
{"kind":"recommendation","v":1,"issuer":"did:web:tso.example","id":"digits-2026","version":1,...}
"""

from __future__ import annotations

from typing import Annotated, Final

from ledger.commands.registration.partition import UNITS
from ledger.wire.field_types import Did, Name, between, text, words
from ledger.wire.records import Record
from policy.documents.document import Budget, Document, Version

TEXT_MAX: Final = 20_000
RECORDS_MAX: Final = 10**12

Text = Annotated[str, text(TEXT_MAX)]
RecordsMin = Annotated[int, between(1, RECORDS_MAX)]
Unit = Annotated[str, words(*UNITS)]


class DatasetName(Record, frozen=True):
    """A dataset by its provider and its id."""

    dataset: Name
    provider: Did


class DatasetDescription(Document, frozen=True, tag_field="kind", tag="dataset"):
    """A TDP's dataset: identified by (provider, id), never by the id alone.

    Attributes:
        membership: the public, fixed function that assigns a privacy unit to a partition.
        records_min: a public lower bound on how many records there are.
    """

    deidentification: Text
    domain: Name
    id: Name
    provider: Did
    schema: Text
    unit: Unit
    membership: Text | None = None
    records_min: RecordsMin | None = None

    @property
    def source(self) -> str:
        """Its name in decisions."""
        return f"dataset {self.id} of {self.provider}"


class Recommendation(Document, frozen=True, tag_field="kind", tag="recommendation"):
    """A TSO's proposed budget for the partitions of one dataset; a budget above it needs a reason."""

    budget: Budget
    dataset: Name
    id: Name
    issuer: Did
    provider: Did
    version: Version

    @property
    def source(self) -> str:
        """Its name in decisions."""
        return f"recommendation {self.id} version {self.version}"
