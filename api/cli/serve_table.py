"""What the table ``[serve]`` of a profile may say: its fields, which of them are needed, and what each means.

:class:`api.cli.settings.Settings` takes exactly these fields, and the reference of profiles is made of it.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta
from msgspec.structs import fields

from api.http.sender_address import FIELDS
from ledger.wire.field_types import Did, between, words
from ledger.wire.records import Record

PORT_MAX: Final = 65_535
CLOCK_JUMP_S_MAX: Final = 86_400
"""The most that a profile may let the clock jump: a day."""
ISSUERS_MAX: Final = 16
WITNESSES_MAX: Final = 16
PROXIES_MAX: Final = 16
REQUIRED: Final = "required"
OPTIONAL: Final = "optional"


def _says(meaning: str) -> Meta:
    return Meta(description=meaning)


class IssuerTable(Record, frozen=True, kw_only=True):
    """An issuer that is bound to organisations or roles."""

    keys: Annotated[str, _says("the file of its public keys, a JWK Set, which is read again when it changes")]
    organisations: Annotated[
        tuple[Did, ...] | None,
        _says("for whom it speaks; for these no other issuer then does, and it gives neither AUDITOR nor OPERATOR"),
    ] = None
    roles: Annotated[
        tuple[str, ...] | None,
        _says("which it may give; of several issuers no two may give the same one unless roles says so of both"),
    ] = None


class ConsoleTable(Record, frozen=True, kw_only=True):
    """How the issuers know the console."""

    client_id: Annotated[
        str | None, _says("of a public client (RFC 6749, section 2.1) whose redirect URI is url/console/callback")
    ] = None
    issuers: Annotated[
        tuple[str, ...] | None, _says("those at which people log in; all that the service trusts, if left out")
    ] = None
    scope: Annotated[str | None, _says("the scopes to request; openid alone, if left out")] = None


class ServeTable(Record, frozen=True, kw_only=True):
    """The table ``[serve]``, of ``epsilon serve``. Paths are relative to the profile."""

    book: Annotated[
        str,
        _says("the SQLite file, or the URL of a PostgreSQL database, whose password libpq finds (PGPASSFILE)"),
    ]
    host: Annotated[str, _says("the address to listen on; elsewhere than on loopback in production only")]
    issuers: Annotated[
        dict[str, str | IssuerTable],
        Meta(
            min_length=1,
            max_length=ISSUERS_MAX,
            description="by URL whose tokens are accepted: the file of its public keys, or a table that binds it; in "
            "production none on loopback or without TLS, which is what a development issuer is",
        ),
    ]
    log_key: Annotated[str, _says("the file of the log's private key")]
    origin: Annotated[str, Meta(min_length=1, max_length=200, description="the log's name, for ever")]
    port: Annotated[int, between(0, PORT_MAX), _says("the port to listen on; 0 takes a free one")]
    allow_rollback: Annotated[
        bool | None,
        _says("keep no checkpoint, and say so at every start: an older copy of the book is served like the newest"),
    ] = None
    clock: Annotated[
        str | None,
        _says(
            "the file of when the clock of a service in production was last known to be right, which epsilon clock "
            "accept writes: who may write it is who may accept. The profile's name with .clock, if left out"
        ),
    ] = None
    clock_jump_s: Annotated[
        Annotated[int, between(1, CLOCK_JUMP_S_MAX)] | None,
        _says(
            "how many seconds more or less the clock may have advanced than the time since boot: more is a jump; "
            "ten minutes, if left out"
        ),
    ] = None
    console: Annotated[
        ConsoleTable | None, _says("how the issuers know the console, where people log in; as below, if left out")
    ] = None
    forwarded: Annotated[
        Annotated[str, words(*FIELDS)] | None,
        _says(
            "the header field in which every proxy says who calls (RFC 7239): by it requests without a valid token are "
            "counted, which behind a proxy are otherwise not"
        ),
    ] = None
    kept: Annotated[
        str | None,
        _says(
            "the file of the newest checkpoint: a book older than that is refused, so name one where backups of the "
            "book do not reach, and not in its folder; in the user's state folder (XDG_STATE_HOME or ~/.local/state), "
            "if left out"
        ),
    ] = None
    keys: Annotated[
        str | None,
        _says(
            "the folder of data keys, unencrypted; without it the service authorises only, and providers hand keys "
            "over themselves, against receipts"
        ),
    ] = None
    old_log_key: Annotated[
        str | None,
        _says(
            "the file of the private key that log_key has replaced, as long as the rotation's window lasts: both sign "
            "checkpoints there"
        ),
    ] = None
    production: Annotated[
        bool | None,
        _says("refuse development issuers, listen anywhere, have an https URL, and stop writing where the clock jumps"),
    ] = None
    proxies: Annotated[
        Annotated[tuple[str, ...], Meta(max_length=PROXIES_MAX)] | None,
        _says(
            "addresses of proxies in front of the service: each speaks for many callers, so its "
            "connections are bounded only by the number that the process has, and it has to bound those of each caller"
        ),
    ] = None
    quotas: Annotated[
        dict[str, int] | None, _says("what one organisation, clean room or address may use: the table below")
    ] = None
    snapshot: Annotated[
        str | None,
        _says(
            "the file of a snapshot of the book's state, by which it opens faster; beside an SQLite book, and of a "
            "PostgreSQL one in the user's state folder, if left out"
        ),
    ] = None
    url: Annotated[
        str | None,
        _says(
            "the service as callers know it, which their signatures name; where it listens, if left out. In production "
            "it is needed, and https, because a proxy in front of the service ends TLS"
        ),
    ] = None
    witness_keys: Annotated[
        Annotated[dict[str, str], Meta(max_length=WITNESSES_MAX)] | None,
        _says(
            "witnesses (C2SP tlog-witness) by URL, each with its pinned verifier key: the service shows "
            "them its newest checkpoint before it accepts requests and every few seconds, and stops if one contradicts"
        ),
    ] = None
    witnesses: Annotated[
        Annotated[str, words(REQUIRED, OPTIONAL)] | None,
        _says("whether the service needs the cosignature of each of them; if left out, it warns and retries"),
    ] = None


NEEDED: Final = tuple(field.name for field in fields(ServeTable) if field.required)
LEFT_OUT: Final = tuple(field.name for field in fields(ServeTable) if not field.required)
"""Fields that a profile may leave out."""
