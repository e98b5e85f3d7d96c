"""A profile: who is calling, with which key, which service, and which log key to trust.

    v = 1

    [client]
    service = "http://127.0.0.1:8000"
    key = "bank-a.pem"
    actor = "did:web:bank-a.example"
    log = "epsilon.example/ledger+8f2c1a90+AQ..."
    issuer = "https://login.example"

Paths are relative to the profile. Tables ``[serve]`` and ``[issuer]`` may stand beside it, for ``epsilon serve`` and
``epsilon dev-issuer``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

from client.service import ATTEMPTS, Service
from client.signer import Signer
from client.tokens import ClientCredentials
from ledger import canonical as c
from ledger.malformed import Malformed
from ledger.verifier import LogKey

PROFILE_BYTES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class Profile:
    """The table ``[client]`` of a profile."""

    service: str
    key: Path
    actor: str
    log: LogKey
    issuer: str

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a profile. Raises: Malformed, OSError."""
        known = c.fields(read_table(path, "client"), "client", ("actor", "issuer", "key", "log", "service"))
        return cls(
            service=c.string(known["service"], "client.service"),
            key=path.parent / c.string(known["key"], "client.key"),
            actor=c.did(known["actor"], "client.actor"),
            log=LogKey.parse(c.string(known["log"], "client.log")),
            issuer=c.string(known["issuer"], "client.issuer"),
        )

    def signer(self) -> Signer:
        """The key that signs for this profile. Raises: Malformed, OSError."""
        return Signer.load(self.key)

    def open(self, attempts: int = ATTEMPTS) -> Service:
        """The service, with this profile's organisation as the caller. Raises: Malformed, OSError."""
        credentials = ClientCredentials(self.issuer, self.actor, self.signer(), self.log.origin)
        return Service(self.service, credentials, attempts=attempts)


def read_table(path: Path, table: str) -> dict[str, Any]:
    """One table of a profile file, whose own shape is checked strictly. Raises: Malformed, OSError."""
    with path.open("rb") as file:
        data = file.read(PROFILE_BYTES_MAX + 1)
    if len(data) > PROFILE_BYTES_MAX:
        raise Malformed(str(path), f"a profile has at most {PROFILE_BYTES_MAX} bytes")
    try:
        known = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as fault:
        raise Malformed(str(path), f"is not TOML: {fault}") from None
    c.fields(known, "", ("v", table), ("client", "issuer", "serve"))
    c.integer(known["v"], "v", 1, 1)
    return c.fields(known[table], table, (), tuple(known[table]) if isinstance(known[table], dict) else ())
