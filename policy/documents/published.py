"""The JSON Schema of each kind of document, as it is published in ``schemas/``."""

from __future__ import annotations

from typing import Final

from policy.documents import contract, dataset, policy
from policy.documents.shapes import Record, Schema

SHAPES: Final[dict[str, tuple[str, Record]]] = {
    "contract": ("A contract of TDPs and one TDC", contract.SHAPE),
    "dataset": ("A TDP's description of a dataset", dataset.DATASET),
    "policy": ("An SRO's policy for a domain", policy.SHAPE),
    "recommendation": ("A TSO's recommended budget for a dataset", dataset.RECOMMENDATION),
}


def schema_of(kind: str) -> Schema:
    """The published schema of a kind; what it cannot say, the reader checks. Raises: KeyError."""
    title, shape = SHAPES[kind]
    names: Schema = {
        "$id": f"urn:epsilon:schema:{kind}:1",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
    }
    return {**names, **shape.schema}
