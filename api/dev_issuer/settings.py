"""What the development issuer needs to start: the table ``[issuer]`` of a profile.

Clients are named with the file of their key, of which only the public half is used: on one machine they lie side by
side. Paths are relative to the profile.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from api.dev_issuer.issuer import DevelopmentIssuer, Person
from client.keys.signer import Signer
from client.profile.profile import read_table
from ledger.wire.field_types import Did, Name, between, text
from ledger.wire.records import Record, convert

_File = Annotated[str, text(1_000)]


class IssuerSettings(Record, frozen=True):
    """The table ``[issuer]``."""

    audience: Annotated[str, text(200)]
    clients: Annotated[dict[Did, _File], Meta(max_length=256)]
    host: Annotated[str, text(1_000)]
    key: _File
    port: Annotated[int, between(0, 65_535)]
    people: Annotated[dict[Name, Person], Meta(max_length=256)] | None = None

    @classmethod
    def load(cls, path: Path) -> IssuerSettings:
        """Read a profile. Raises: Malformed, OSError."""
        return convert(cls, read_table(path, "issuer"), "issuer")

    def issuer(self, folder: Path, url: str, clock: Callable[[], int]) -> DevelopmentIssuer:
        """The issuer at ``url``, with the key files of a profile's folder. Raises: Malformed, OSError."""
        clients = {did: Signer.load(folder / file).public for did, file in self.clients.items()}
        signer = Signer.load(folder / self.key)
        return DevelopmentIssuer(url, self.audience, signer, clients, self.people or {}, clock)
