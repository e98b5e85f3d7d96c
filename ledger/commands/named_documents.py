"""Which members of a command name documents that are stored beside the log.

A body holds other digests too, of models, plans and what a clean room is to run: those may equal the digest of any
document, so they name none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ledger.wire import canonical_json as c

NAMING: Final = ("commitments", "document", "evidence", "signatures")
"""Commitments of a partition, an entered document with its signatures, and the evidence of a clean room."""


def named_documents(request: c.Json) -> Iterator[str]:
    """The digests of the documents that a command's body enters or was decided on."""
    if not isinstance(request, dict):
        return
    for name in NAMING:
        value = request.get(name)
        for digest in value if isinstance(value, list) else [value]:
            if isinstance(digest, str):
                yield digest
