"""What the service needs to start: the table ``[serve]`` of a profile.

    v = 1

    [serve]
    book = "book.sqlite"
    clock = "clock"
    clock_jump_s = 600
    kept = "/var/lib/epsilon-kept/checkpoint"
    keys = "keys"
    snapshot = "book.sqlite.snapshot"
    log_key = "log.pem"
    origin = "epsilon.example/ledger"
    host = "127.0.0.1"
    port = 8000
    url = "http://127.0.0.1:8000"
    production = false
    witnesses = "required"

    [serve.issuers]
    "http://127.0.0.1:8100" = "issuer.jwks"

    [serve.witness_keys]
    "https://witness.example" = "witness.example/w1+a3e00fe2+BNy/co4C1Hn1p+INwJrfUlgz7W55dSZReusH/GhUhJ/G"

Each field is declared, with its meaning, in :mod:`api.cli.serve_table`. Paths are relative to the profile. Only a
service in production listens elsewhere than on loopback; it takes no issuer on loopback or without TLS, and its ``url``
is https, because a proxy in front of it ends TLS. A table in place of an issuer's file binds it, as ``{keys =
"bank.jwks", organisations = ["did:web:bank-a.example"], roles = []}``.

The table ``[serve.console]`` says how the issuers know the console (:class:`api.console.session.login.LoginTerms`).

The table ``[serve.quotas]`` sets what one organisation, clean room or address may use (:mod:`api.http.quota_terms`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

from api.auth.issuer_bounds import IssuerBounds, bound_apart
from api.cli.serve_table import (
    CLOCK_JUMP_S_MAX,
    ISSUERS_MAX,
    LEFT_OUT,
    NEEDED,
    OPTIONAL,
    PORT_MAX,
    PROXIES_MAX,
    REQUIRED,
    WITNESSES_MAX,
)
from api.console.session.login import LoginTerms
from api.http.quota_terms import QuotaTerms
from api.http.sender_address import FIELDS
from client.http.base_url import base_of, is_loopback, require_private
from client.profile.profile import read_table
from ledger.book.checkpoint_file import default_path
from ledger.book.state.snapshot_file import snapshot_path
from ledger.book.wall_clock import JUMP_MS_MAX, ClockWatch
from ledger.cli.witness_client import Witness
from ledger.store.engine import sqlite_file, url_of
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed


@dataclass(frozen=True, slots=True)
class Settings:
    """The table ``[serve]``.

    Attributes:
        book: the URL of the book's database.
        clock: the file of the readings of the clock that were last known to be right.
        clock_jump_s: how many seconds the clock may differ from the time since boot before that is a jump.
        keys: None where the service authorises only.
        kept: the file of the newest checkpoint; None for the one in the user's state folder.
        snapshot: the file of the state's snapshot; None for the one in its usual place.
        allow_rollback: no checkpoint is kept, and an older copy of the book is served like the newest.
        bounds: of the issuers, by name.
        old_log_key: the key that the log's has replaced, if it still signs beside it.
        url: None where the service is known by where it listens.
        proxies: addresses whose connections are not counted by sender.
        forwarded: the header field in which proxies name the sender; empty if in none.
        quotas: of organisations, clean rooms and addresses.
        console: how the issuers know the console.
        witnesses: that get the newest checkpoint.
        witnesses_required: whether the service needs the cosignature of each of them.
    """

    book: str
    clock: Path
    clock_jump_s: int
    keys: Path | None
    kept: Path | None
    snapshot: Path | None
    allow_rollback: bool
    log_key: Path
    old_log_key: Path | None
    origin: str
    host: str
    port: int
    url: str | None
    production: bool
    proxies: tuple[str, ...]
    forwarded: str
    quotas: QuotaTerms
    console: LoginTerms
    issuers: tuple[tuple[str, Path], ...]
    bounds: Mapping[str, IssuerBounds]
    witnesses: tuple[Witness, ...]
    witnesses_required: bool

    def kept_file(self, log: LogKey) -> Path | None:
        """Where the newest checkpoint of a log is kept; None where none is."""
        return None if self.allow_rollback else self.kept or default_path(log)

    @property
    def keeps_beside_book(self) -> bool:
        """Whether the newest checkpoint lies in the folder of an SQLite book: a copy of it may hold both."""
        book = sqlite_file(self.book)
        return book is not None and self.kept is not None and self.kept.resolve().is_relative_to(book.resolve().parent)

    @property
    def clock_watch(self) -> ClockWatch:
        """How the clock is watched; in development a jump is reported, and the service goes on."""
        file = self.clock if self.production else None
        return ClockWatch(file, pauses=self.production, jump_ms=self.clock_jump_s * 1_000)

    def snapshot_file(self, log: LogKey) -> Path:
        """Where the snapshot of a log's state lies. Raises: FileNotFoundError, if there is no folder for it."""
        return self.snapshot or snapshot_path(self.book, log)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a profile. Raises: Malformed, OSError."""
        members = c.fields(read_table(path, "serve"), "serve", NEEDED, LEFT_OUT)
        production = c.boolean(members.get("production", False), "serve.production")
        allow_rollback = c.boolean(members.get("allow_rollback", False), "serve.allow_rollback")
        if allow_rollback and "kept" in members:
            raise Malformed("serve.allow_rollback", "keeps no checkpoint, so it must not be given together with 'kept'")
        witnesses, proxies = (
            _witnesses(members.get("witness_keys", {}), production=production),
            _proxies(members.get("proxies", [])),
        )
        issuers = _issuers(path.parent, members["issuers"], production=production)
        old = members.get("old_log_key")
        return cls(
            book=_book(path, c.string(members["book"], "serve.book")),
            clock=path.parent / c.string(members.get("clock", f"{path.stem}.clock"), "serve.clock"),
            clock_jump_s=c.integer(
                members.get("clock_jump_s", JUMP_MS_MAX // 1_000), "serve.clock_jump_s", 1, CLOCK_JUMP_S_MAX
            ),
            keys=path.parent / c.string(members["keys"], "serve.keys") if "keys" in members else None,
            kept=path.parent / c.string(members["kept"], "serve.kept") if "kept" in members else None,
            snapshot=path.parent / c.string(members["snapshot"], "serve.snapshot") if "snapshot" in members else None,
            allow_rollback=allow_rollback,
            log_key=path.parent / c.string(members["log_key"], "serve.log_key"),
            old_log_key=path.parent / c.string(old, "serve.old_log_key") if old is not None else None,
            origin=_origin(members["origin"]),
            host=c.string(members["host"], "serve.host"),
            port=c.integer(members["port"], "serve.port", 0, PORT_MAX),
            url=_url(members.get("url"), production=production),
            production=production,
            proxies=proxies,
            forwarded=_forwarded(members["forwarded"], proxies) if "forwarded" in members else "",
            quotas=QuotaTerms.parse(members.get("quotas", {}), "serve.quotas"),
            console=LoginTerms.parse(members.get("console", {}), "serve.console", tuple(issuers)),
            issuers=tuple((name, file) for name, (file, _) in issuers.items()),
            bounds=bound_apart({name: bounds for name, (_, bounds) in issuers.items()}),
            witnesses=witnesses,
            witnesses_required=_required(members.get("witnesses", OPTIONAL), witnesses),
        )


def _book(profile: Path, named: str) -> str:
    return url_of(named if "://" in named else profile.parent / named)


def _url(value: object, *, production: bool) -> str | None:
    url = None if value is None else base_of(c.string(value, "serve.url"), "serve.url")
    if production and (url is None or urlsplit(url).scheme != "https"):
        raise Malformed("serve.url", "must be the https URL that callers know the service by, in production")
    return url


def _issuers(folder: Path, value: object, *, production: bool) -> dict[str, tuple[Path, IssuerBounds]]:
    """Each issuer's file of keys and its bounds: the file alone, or a table with ``keys`` and its bounds."""
    if not isinstance(value, dict) or not 1 <= len(value) <= ISSUERS_MAX:
        raise Malformed("serve.issuers", f"must name 1 to {ISSUERS_MAX} issuers, each with the file of its keys")
    for name in value:
        url = urlsplit(c.string(name, "serve.issuers", 500))
        if production and (url.scheme != "https" or is_loopback(url.hostname or "")):
            raise Malformed(f"serve.issuers.{name}", "is a development issuer, which production refuses")
    issuers = {}
    for name, member in value.items():
        where = f"serve.issuers.{name}"
        members = c.fields(
            member if isinstance(member, dict) else {"keys": member}, where, ("keys",), ("organisations", "roles")
        )
        file = c.string(members["keys"], f"{where}.keys" if isinstance(member, dict) else where)
        issuers[name] = folder / file, IssuerBounds.parse(members, where)
    return issuers


def _origin(value: c.Json) -> str:
    """The log's name. Raises: Malformed, unless it is one that a note can bear (C2SP signed-note)."""
    origin = c.string(value, "serve.origin", 200)
    if "+" in origin or any(map(str.isspace, origin)):
        raise Malformed("serve.origin", "must have no space and no plus sign: it is the name in the log's key")
    return origin


def _proxies(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > PROXIES_MAX:
        raise Malformed("serve.proxies", f"must list at most {PROXIES_MAX} addresses")
    for place, item in enumerate(value):
        try:
            ip_address(c.string(item, f"serve.proxies[{place}]", 45))
        except ValueError:
            raise Malformed(f"serve.proxies[{place}]", "must be an IP address") from None
    return tuple(map(str, value))


def _forwarded(value: object, proxies: tuple[str, ...]) -> str:
    if value not in FIELDS:
        raise Malformed("serve.forwarded", f"must be one of {', '.join(FIELDS)}")
    if not proxies:
        raise Malformed("serve.forwarded", "is read from proxies alone: name their addresses in 'proxies'")
    return str(value)


def _witnesses(value: object, *, production: bool) -> tuple[Witness, ...]:
    if not isinstance(value, dict) or len(value) > WITNESSES_MAX:
        raise Malformed(
            "serve.witness_keys", f"must name at most {WITNESSES_MAX} witnesses, each with its verifier key"
        )
    witnesses = []
    for url, vkey in value.items():
        if production:
            # What stops the service, that a witness has seen more, bears no signature.
            require_private(url, f"serve.witness_keys.{url}")
        try:
            witnesses.append(Witness.parse(f"{c.string(vkey, 'vkey')}={url}"))
        except Malformed as error:
            raise Malformed(f"serve.witness_keys.{url}", error.rule) from None
    return tuple(witnesses)


def _required(value: object, witnesses: tuple[Witness, ...]) -> bool:
    if not isinstance(value, str) or value not in {REQUIRED, OPTIONAL}:
        raise Malformed("serve.witnesses", f"must be '{REQUIRED}' or '{OPTIONAL}'")
    if value == REQUIRED and not witnesses:
        raise Malformed("serve.witnesses", "are required, so serve.witness_keys must name one")
    return value == REQUIRED
