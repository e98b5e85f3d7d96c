"""Documents and detached signatures in files, so that parties on different machines can sign the same bytes.

A party signs with ``epsilon contract sign`` and sends the line it gets to the party that enters the document. The line
is a detached JWS (:mod:`ledger.crypto.detached_jws`) and holds nothing of the document; it verifies over these very
bytes alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from client.keys.signer import Signer
from ledger.crypto import detached_jws
from ledger.domain.gate import POLICY_DOCUMENT_BYTES_MAX
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

SIGNATURES_MAX: Final = 31
"""Beside the signature of the party that enters the document."""


def read_document(path: Path) -> bytes:
    """The exact bytes that are signed. Raises: Malformed, OSError."""
    with path.open("rb") as file:
        data = file.read(POLICY_DOCUMENT_BYTES_MAX + 1)
    if not 0 < len(data) <= POLICY_DOCUMENT_BYTES_MAX:
        raise Malformed(str(path), f"must have 1 to {POLICY_DOCUMENT_BYTES_MAX} bytes")
    return data


def parse_document(data: bytes) -> Any:  # noqa: ANN401 - JSON or YAML
    """The value that a document holds, whose form the service validates; None for what is neither JSON nor YAML."""
    try:
        text = data.decode()
        return json.loads(text) if text.lstrip()[:1] == "{" else yaml.safe_load(text)
    except (ValueError, RecursionError, yaml.YAMLError):
        return None


def require_kind(path: Path, data: bytes, kind: str) -> None:
    """See that a file is a document of this kind; what is wrong in such a one, or in its text, the service names.

    Raises:
        Malformed: for a document of another kind, or a file of something else.
    """
    value = parse_document(data)
    if value is None:
        return
    stated = value.get("kind") if isinstance(value, dict) else None
    if stated != kind:
        says = f"'kind: {stated}'" if isinstance(stated, str) else "no kind"
        raise Malformed(str(path), f"must say 'kind: {kind}', and says {says}")


def digest_of(named: str) -> str:
    """A document's SHA-256, from itself or from the file that holds the document. Raises: Malformed, OSError."""
    try:
        return c.sha256(named, "document")
    except Malformed:
        if not Path(named).is_file():
            raise Malformed("document", f"{named[:200]!r} is neither a file nor a SHA-256 digest") from None
        return c.digest(read_document(Path(named)))


def sign_document(signer: Signer, data: bytes) -> c.Object:
    """A detached signature, with the digest of its document and the id of its key."""
    return {"document": c.digest(data), "key_id": signer.key_id, "signature": signer.sign(data)}


def read_signatures(paths: Sequence[Path]) -> dict[str, str]:
    """Detached signatures by the key they name, one a file. Raises: Malformed, OSError."""
    if len(paths) > SIGNATURES_MAX:
        raise Malformed("signature", f"must be given at most {SIGNATURES_MAX} times")
    signatures: dict[str, str] = {}
    for path in paths:
        with path.open("rb") as file:
            raw = file.read(detached_jws.SIGNATURE_BYTES_MAX + 2)
        try:
            text = raw.decode("ascii").strip()
            key_id = detached_jws.key_id_of(text)
        except (UnicodeDecodeError, Malformed):
            raise Malformed(str(path), "holds no detached JWS, as `epsilon contract sign` writes it") from None
        if key_id in signatures:
            raise Malformed(str(path), f"is a second signature with the key {key_id}")
        signatures[key_id] = text
    return signatures
