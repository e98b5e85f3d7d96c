"""What the development issuer needs to start: the table ``[issuer]`` of a profile.

Clients are named with the file of their key, of which only the public half is used: on one machine they lie side by
side. Paths are relative to the profile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from api.auth.access_tokens import OWN_ROLES
from api.dev_issuer.issuer import DevelopmentIssuer, Person
from client.keys.signer import Signer
from client.profile.profile import read_table
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

CLIENTS_MAX: Final = 256
PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True)
class IssuerProfile:
    """The table ``[issuer]``."""

    host: str
    port: int
    audience: str
    key: Path
    clients: tuple[tuple[str, Path], ...]
    people: tuple[tuple[str, Person], ...]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a profile. Raises: Malformed, OSError."""
        names = ("audience", "clients", "host", "key", "port")
        known = c.fields(read_table(path, "issuer"), "issuer", names, ("people",))
        clients, people = known["clients"], known.get("people", {})
        for field, table in (("clients", clients), ("people", people)):
            if not isinstance(table, dict) or len(table) > CLIENTS_MAX:
                raise Malformed(f"issuer.{field}", f"must be a table of at most {CLIENTS_MAX}")
        return cls(
            host=c.string(known["host"], "issuer.host"),
            port=c.integer(known["port"], "issuer.port", 0, PORT_MAX),
            audience=c.string(known["audience"], "issuer.audience", 200),
            key=path.parent / c.string(known["key"], "issuer.key"),
            clients=tuple(
                (c.did(did, "issuer.clients"), path.parent / c.string(file, f"issuer.clients.{did}"))
                for did, file in clients.items()
            ),
            people=tuple((c.name(name, "issuer.people"), _person(one, name)) for name, one in people.items()),
        )

    def issuer(self, url: str, clock: Callable[[], int]) -> DevelopmentIssuer:
        """The issuer at ``url``. Raises: Malformed, OSError."""
        clients = {did: Signer.load(file).public for did, file in self.clients}
        return DevelopmentIssuer(url, self.audience, Signer.load(self.key), clients, dict(self.people), clock)


def _person(value: object, name: str) -> Person:
    where = f"issuer.people.{name}"
    known = c.fields(value, where, ("organisation",), ("roles",))
    roles = c.strings(known["roles"], f"{where}.roles", len(OWN_ROLES)) if "roles" in known else ()
    for role in roles:
        c.one_of(role, f"{where}.roles", OWN_ROLES)
    return Person(c.did(known["organisation"], f"{where}.organisation"), roles)
