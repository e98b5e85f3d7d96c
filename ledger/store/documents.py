"""The documents of a book by their digest, each hashed when it is read: a changed one is never used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlalchemy import func, select

from ledger.store.engine import Executor
from ledger.store.tables import DOCUMENT
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

DOCUMENTS_BYTES_MAX: Final = 32 << 20
"""Documents that are held at once."""
_DOCUMENT: Final = DOCUMENT
_HEADER: Final = b"eyJ"
"""The first bytes of a detached JWS: a JSON object in base64url."""


class StoredDocuments(Mapping[str, bytes]):
    """The documents of a book. The newest read are held, which saves a statement and a hash.

    Attributes:
        connection: what reads them. Another may take its place: what a digest names never changes.
    """

    def __init__(self, connection: Executor | None = None) -> None:
        """Hold nothing yet."""
        self.connection = connection
        self._held: dict[str, bytes] = {}
        self._bytes = 0

    def __getitem__(self, name: str) -> bytes:
        """A document. Raises: KeyError; Malformed, if the stored bytes have another digest."""
        if name not in self._held:
            self._hold(name, self._read(name))
        return self._held[name]

    def _read(self, name: str) -> bytes:
        found = self._execute(select(_DOCUMENT.c.data).where(_DOCUMENT.c.digest == name)).scalar()
        if found is None:
            raise KeyError(name)
        data = bytes(found)
        if c.digest(data) != name:
            raise Malformed("", f"document {name}: its bytes have another digest")
        return data

    def _hold(self, name: str, data: bytes) -> None:
        if self._bytes + len(data) > DOCUMENTS_BYTES_MAX:
            self._held.clear()
            self._bytes = 0
        self._held[name] = data
        self._bytes += len(data)

    def __iter__(self) -> Iterator[str]:
        return (str(name) for name in self._execute(select(_DOCUMENT.c.digest)).scalars())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _execute(self, statement: Any) -> Any:  # noqa: ANN401 - SQLAlchemy's own types
        assert self.connection is not None, "a transaction is open while documents are read"
        return self.connection.execute(statement)


def detached_signatures(connection: Executor, length_max: int) -> Iterator[tuple[str, bytes]]:
    """The documents that begin as detached signatures do, with their digests: one pass over all documents.

    Neither the digests nor the signatures are verified.

    Args:
        length_max: of a signature, in bytes; what is longer is not read.
    """
    # The length comes first: a database knows it without reading a long document.
    begins = func.substr(DOCUMENT.c.data, 1, len(_HEADER)) == _HEADER
    chosen = select(DOCUMENT.c.digest, DOCUMENT.c.data).where(func.length(DOCUMENT.c.data) <= length_max, begins)
    with connection.execute(chosen, execution_options={"yield_per": 1_000}) as found:
        yield from ((str(digest), bytes(data)) for digest, data in found)
