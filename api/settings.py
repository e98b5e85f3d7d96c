"""What the service needs to start: the table ``[serve]`` of a profile.

    v = 1

    [serve]
    book = "book.sqlite"
    kept = "checkpoint"
    keys = "keys"
    log_key = "log.pem"
    origin = "epsilon.example/ledger"
    host = "127.0.0.1"
    port = 8000

Paths are relative to the profile; ``book`` may also be the URL of a PostgreSQL database, its password left to
libpq's own means (PGPASSFILE). ``kept`` holds the newest checkpoint: a book older than that is refused, so keep it
where backups of the book do not reach. Without ``keys`` the service authorises only: providers hand keys over
themselves, against receipts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from client.profile import read_table
from client.signer import load_private
from ledger import canonical as c
from ledger.engines import url_of

PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class Settings:
    """The table ``[serve]``.

    Attributes:
        book: the URL of the book's database.
        keys: None where the service authorises only.
        kept: where the newest checkpoint is kept; None where it is not.
    """

    book: str
    keys: Path | None
    kept: Path | None
    log_key: Path
    origin: str
    host: str
    port: int

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a profile. Raises: Malformed, OSError."""
        names = ("book", "host", "log_key", "origin", "port")
        known = c.fields(read_table(path, "serve"), "serve", names, optional=("keys", "kept"))
        return cls(
            book=_book(path, c.string(known["book"], "serve.book")),
            keys=path.parent / c.string(known["keys"], "serve.keys") if "keys" in known else None,
            kept=path.parent / c.string(known["kept"], "serve.kept") if "kept" in known else None,
            log_key=path.parent / c.string(known["log_key"], "serve.log_key"),
            origin=c.string(known["origin"], "serve.origin", 200),
            host=c.string(known["host"], "serve.host"),
            port=c.integer(known["port"], "serve.port", 0, PORT_MAX),
        )

    def load_log_key(self) -> Ed25519PrivateKey:
        """The key that signs checkpoints. Raises: Malformed, OSError."""
        return load_private(self.log_key)


def _book(profile: Path, named: str) -> str:
    return url_of(named if "://" in named else profile.parent / named)
