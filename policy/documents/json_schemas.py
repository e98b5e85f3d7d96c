"""The JSON Schema of each kind of document, as published in ``schemas/``."""

from __future__ import annotations

from typing import Any, Final

from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from ledger.wire import canonical_json as c
from ledger.wire.json_schema import Schema, json_schemas
from policy.documents.contract import ContractDocument
from policy.documents.dataset import DatasetDescription, Recommendation
from policy.documents.document import Document
from policy.documents.document_text import read_document
from policy.documents.policy import Policy
from policy.documents.stream import StreamDocument

KINDS: Final[dict[str, tuple[str, type[Document]]]] = {
    "contract": ("A contract of TDPs and one TDC", ContractDocument),
    "dataset": ("A TDP's description of a dataset", DatasetDescription),
    "policy": ("An SRO's policy for a domain", Policy),
    "recommendation": ("A TSO's recommended budget for a dataset", Recommendation),
    "stream": ("A TDP's stream of slices of a dataset", StreamDocument),
}


def read_any(data: bytes) -> tuple[str, str]:
    """The kind of a document, and its name in decisions. Raises: Malformed; Inconsistent, if it contradicts itself."""

    def kind_of(value: object) -> str:
        kind = value.get("kind") if isinstance(value, dict) else None
        return c.one_of(kind, "kind", tuple(KINDS))

    kind = read_document(data, POLICY_DOCUMENT_BYTES_MAX, kind_of)
    return kind, KINDS[kind][1].parse(data).source


def schema_of(kind: str) -> Schema:
    """The published schema of a kind; the reader checks what it cannot express. Raises: KeyError."""
    title, record = KINDS[kind]
    (schema,), parts = json_schemas(record)
    return {
        "$id": f"urn:epsilon:schema:{kind}:1",
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_inline(schema, parts),
        "title": title,
    }


def _inline(schema: Any, parts: Schema) -> Any:  # noqa: ANN401 - JSON Schema
    """A schema without references, and without descriptions of Python classes."""
    if isinstance(schema, list):
        return [_inline(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$defs" in schema:
        return {"type": "object"}  # a plan: its own reader checks it
    if "$ref" in schema:
        schema = {**parts[schema["$ref"].rpartition("/")[2]], **{k: v for k, v in schema.items() if k != "$ref"}}
    described = {"title", "description"}
    return {k: _inline(v, parts) for k, v in schema.items() if k not in described or not isinstance(v, str)}
