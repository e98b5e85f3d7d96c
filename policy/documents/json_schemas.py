"""The JSON Schema of each kind of document, as it is published in ``schemas/``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ledger.domain.gate import DOCUMENT_BYTES_MAX
from ledger.wire import canonical_json as c
from policy.documents import contract, dataset, policy
from policy.documents.document_text import read_document
from policy.documents.field_shapes import Record, Schema

_Described = dataset.DatasetDescription | dataset.Recommendation

SHAPES: Final[dict[str, tuple[str, Record]]] = {
    "contract": ("A contract of TDPs and one TDC", contract.SHAPE),
    "dataset": ("A TDP's description of a dataset", dataset.DATASET),
    "policy": ("An SRO's policy for a domain", policy.SHAPE),
    "recommendation": ("A TSO's recommended budget for a dataset", dataset.RECOMMENDATION),
}


READERS: Final[dict[str, Callable[[bytes], contract.ContractDocument | _Described | policy.Policy]]] = {
    "contract": contract.ContractDocument.parse,
    "dataset": dataset.DatasetDescription.parse,
    "policy": policy.Policy.parse,
    "recommendation": dataset.Recommendation.parse,
}


def read_any(data: bytes) -> tuple[str, str]:
    """The kind of a document, and how decisions name it. Raises: Malformed; Inconsistent, if it contradicts itself."""

    def kind_of(value: object) -> str:
        kind = value.get("kind") if isinstance(value, dict) else None
        return c.one_of(kind, "kind", tuple(SHAPES))

    kind = read_document(data, DOCUMENT_BYTES_MAX, kind_of)
    return kind, READERS[kind](data).source


def schema_of(kind: str) -> Schema:
    """The published schema of a kind; what it cannot say, the reader checks. Raises: KeyError."""
    title, shape = SHAPES[kind]
    names: Schema = {
        "$id": f"urn:epsilon:schema:{kind}:1",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
    }
    return {**names, **shape.schema}
