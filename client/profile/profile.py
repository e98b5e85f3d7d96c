"""A profile: the caller, the service, and the log key to trust.

An organisation's names its DID and its signing key:

    v = 1

    [client]
    service = "http://127.0.0.1:8000"
    key = "bank-a.pem"
    actor = "did:web:bank-a.example"
    log = "epsilon.example/ledger+8f2c1a90+AQ..."
    issuer = "https://login.example"

A person's has no key and no actor, but the id under which the issuer knows this program, and the scopes to request if
they are not ``openid`` alone. ``epsilon login`` learns the person; the profile reads, and signs nothing:

    [client]
    service = "http://127.0.0.1:8000"
    client_id = "epsilon"
    scope = "openid ledger.read"
    log = "epsilon.example/ledger+8f2c1a90+AQ..."
    issuer = "https://login.example"

Paths are relative to the profile. It may also hold tables ``[serve]`` and ``[issuer]``, for ``epsilon serve`` and
``epsilon dev-issuer``.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Self

from msgspec import Meta

from client.http.access_tokens import ClientCredentials, Credentials
from client.http.base_url import require_private
from client.http.problems import Refused
from client.keys.signer import Signer
from client.profile.token_store import LoginCredentials, LoginFile, Purpose
from client.service.service import ATTEMPTS, Service
from ledger.log.verification import parse_log_key
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert

TOML_BYTES_MAX: Final = 65_536
SCOPE: Final = "openid"
NO_KEY: Final = "no_key"
_SQLITE: Final = b"SQLite format 3\0"


class Party(Record, frozen=True):
    """An organisation, and the file of the key that signs for it."""

    actor: Annotated[Did, Meta(description="the organisation")]
    issuer: Annotated[str, text(1_000, description="the URL of the issuer that gives it access tokens")]
    key: Annotated[str, text(1_000, description="the file of its signing key, in PEM, which its owner alone may read")]
    log: Annotated[str, text(1_000, description="the log's verifier key: whose signature is believed")]
    service: Annotated[str, text(1_000, description="the URL of the service")]

    def __post_init__(self) -> None:
        """Hold it to what keeps its tokens from others. Raises: Malformed."""
        super().__post_init__()
        # Anyone who reads a bearer token on its way may read what the organisation may (RFC 6750, section 5.3).
        require_private(self.service, "service")
        require_private(self.issuer, "issuer")


class Person(Purpose, frozen=True):
    """A person who logs in.

    ``client_id`` is the id under which the issuer knows this program, a public client (RFC 8252); ``scope`` names the
    requested scopes, words between spaces, ``openid`` among them, which is requested alone where it is absent.
    """

    scope: Annotated[str, text(1_000, description="the scopes to request; openid alone, if left out")] | None = None

    def __post_init__(self) -> None:
        """Hold it to what a login needs. Raises: Malformed."""
        super().__post_init__()
        # Anyone who reads a bearer token on its way may read what the person may (RFC 6750, section 5.3).
        require_private(self.service, "service")
        if SCOPE not in (self.scope or SCOPE).split(" "):
            raise Malformed("scope", "must be words between spaces, with 'openid' among them")


@dataclass(frozen=True, slots=True)
class Profile:
    """The table ``[client]`` of the profile at ``path``."""

    path: Path
    service: str
    log: LogKey
    issuer: str
    who: Party | Person

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a profile. Raises: Malformed, OSError."""
        table = read_table(path, "client")
        kind: type[Party | Person] = Person if "client_id" in table else Party
        who = convert(kind, table, "client")
        try:
            log = parse_log_key(who.log)
        except Malformed:
            rule = "is no verifier key of a log (NAME+KEY_ID+KEY): copy it as the log's operator published it"
            raise Malformed("client.log", rule) from None
        return cls(path, who.service, log, who.issuer, who)

    @property
    def actor(self) -> str:
        """The organisation that calls. Raises: Refused, of a person's profile."""
        return self._party.actor

    @property
    def key(self) -> Path:
        """The file of the key that signs. Raises: Refused, of a person's profile."""
        return self.path.parent / self._party.key

    def signer(self) -> Signer:
        """The key that signs for this profile. Raises: Refused, of a person's; Malformed, OSError."""
        return Signer.load(self.key)

    def person(self) -> Person:
        """The person's login settings. Raises: Malformed, of an organisation's profile."""
        if isinstance(self.who, Person):
            return self.who
        raise Malformed("client.client_id", "is missing: the profile is an organisation's, which needs no login")

    def open(self, attempts: int = ATTEMPTS) -> Service:
        """The service, held to its log as it was seen, called by this profile's organisation or person.

        Raises:
            Malformed, OSError.
        """
        return Service(self.service, self._credentials(), attempts=attempts).held_to(self.log)

    def _credentials(self) -> Credentials:
        if isinstance(self.who, Person):
            return LoginCredentials(LoginFile(self.path), self.who)
        return ClientCredentials(self.issuer, self.who.actor, self.signer(), self.log.origin)

    @property
    def _party(self) -> Party:
        if isinstance(self.who, Party):
            return self.who
        detail = f"{self.path} is a person's profile: it has no key, and what has to be signed needs one"
        raise Refused(403, {"code": NO_KEY, "detail": detail, "field": "client.key"})


_FILES: Final = {
    "client": "a profile of a party",
    "issuer": "a profile of an issuer",
    "records": "a schema",
    "serve": "a profile of a service",
    "train": "a job",
}
"""By its table, what a TOML file of this program is."""


def read_table(path: Path, table: str, beside: tuple[str, ...] = ("client", "issuer", "serve")) -> dict[str, Any]:
    """One table of a profile or a job, whose own shape is checked strictly. Raises: Malformed, OSError.

    Args:
        beside: the names of other tables that the file may hold.
    """
    with path.open("rb") as file:
        data = file.read(TOML_BYTES_MAX + 1)
    if data.startswith(_SQLITE):
        raise Malformed(
            str(path), f"is a book, not a profile: `epsilon standing {path}` shows its accounts and charges"
        )
    if len(data) > TOML_BYTES_MAX:
        raise Malformed(str(path), f"must have at most {TOML_BYTES_MAX} bytes")
    try:
        # Some editors begin a file with a byte order mark.
        document = tomllib.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise Malformed(str(path), f"is not TOML: {error}") from None
    except (ValueError, RecursionError):
        # What tomllib leaves to Python: brackets nested too deep, an integer of thousands of digits.
        raise Malformed(str(path), "is nested too deep or holds too long a number") from None
    if table not in document and (other := next((name for name in _FILES if name in document), "")):
        rule = f"is {_FILES[other]} ([{other}]); {_FILES[table]} ([{table}]) is needed here"
        raise Malformed(str(path), rule)
    c.fields(document, "", ("v", table), beside)
    c.integer(document["v"], "v", 1, 1)
    return c.fields(document[table], table, (), tuple(document[table]) if isinstance(document[table], dict) else ())
