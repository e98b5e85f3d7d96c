"""The OpenAPI document as a build artefact: ``make openapi`` writes it, a digest of its bytes is checked in.

``build/openapi/openapi.json`` has one value a line, so that ``diff`` shows what a change of the code changes for
callers. Tests take it from there if its digest is the checked-in one, else from the application itself.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import migrations
from api.app import create_app
from api.keys.data_key_store import FileKeyStore
from api.wire.openapi_document import openapi_document
from ledger.book.book import Book
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from policy.decisions.gate import gate

ROOT: Final = Path(__file__).parents[3]
BUILT: Final = ROOT / "build" / "openapi" / "openapi.json"
DIGEST: Final = ROOT / "api" / "openapi.sha256"
"""As ``sha256sum --check`` reads it."""


def pretty(document: object) -> bytes:
    """The bytes that the digest is of."""
    return (json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def digest_line(data: bytes) -> str:
    """What is checked in."""
    return f"{hashlib.sha256(data).hexdigest()}  {BUILT.relative_to(ROOT)}\n"


def build() -> bytes:
    """The document that the application makes, whatever its book holds."""
    log_key, origin = Ed25519PrivateKey.generate(), "epsilon.example/ledger"
    log = LogKey(origin, log_key.public_key().public_bytes_raw())
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/book.sqlite"
        migrations.upgrade(url)
        book = Book.open(url, gate=gate, log_key=log_key, origin=origin, clock=int)
        try:
            app = create_app(
                book, FileKeyStore(Path(folder)), url="http://127.0.0.1:8000", log=log, clock=int, issuers=()
            )
            return pretty(json.loads(c.dump(openapi_document(app))))
        finally:
            book.close()


@cache
def document_bytes() -> bytes:
    """The built document, if it is up to date with the digest; else a fresh one."""
    known = BUILT.read_bytes() if BUILT.exists() else b""
    return known if digest_line(known) == DIGEST.read_text(encoding="ascii") else build()


def main() -> None:
    """Build it, and write its digest: ``git diff`` shows whether it is the one that was checked in."""
    data = build()
    BUILT.parent.mkdir(parents=True, exist_ok=True)
    BUILT.write_bytes(data)
    DIGEST.write_text(digest_line(data), encoding="ascii")


if __name__ == "__main__":
    main()
