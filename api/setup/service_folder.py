"""The folder of a service for a real deployment: the log's key, its verifier key, and the profile of ``epsilon serve``.

Every decision is the caller's. The profile is written last: a folder without it was interrupted, and is completed with
the key that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

from api.auth.jwks_files import IssuerFiles
from api.setup.key_files import exists_error, signing_key, verifier_key, write_once
from api.setup.profile_files import Value, create_profile, path_for_profile
from client.http.base_url import base_of, is_loopback
from ledger.log.verification import parse_log_key
from ledger.verifier import LogKey
from ledger.wire.malformed import Malformed

LOG_KEY: Final = "log.pem"
VERIFIER_KEY: Final = "log.vkey"
PROFILE: Final = "service.toml"


@dataclass(frozen=True, slots=True)
class ServiceDecisions:
    """What only people can decide.

    Attributes:
        origin: the log's name, for ever.
        database: an SQLite file, or the URL of a PostgreSQL database.
        url: where callers reach the service: https in production, http on loopback for tests.
        address: where it listens, as HOST:PORT; for an http URL the URL's own if empty.
        issuers: the URL of each, with the file of its public keys.
        data_keys: the folder where the service keeps data keys, unencrypted; None where providers grant them.
    """

    origin: str
    database: str
    url: str
    address: str
    issuers: Mapping[str, Path]
    data_keys: Path | None = None


def make_service(folder: Path, decisions: ServiceDecisions, read: Callable[[Path], object]) -> LogKey:
    """Make what is missing in the folder; its log's verifier key.

    Args:
        read: reads a profile as ``epsilon serve`` does; it raises Malformed before anything is made.

    Raises: Malformed, FileExistsError, OSError.
    """
    profile = folder / PROFILE
    if profile.exists():
        raise exists_error(profile)
    tables = _tables(folder, decisions)
    _check(tables, read)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    signing_key(folder / LOG_KEY)
    log = verifier_key(folder / LOG_KEY, decisions.origin)
    write_once(folder / VERIFIER_KEY, f"{log.vkey}\n".encode("ascii"))
    if decisions.data_keys is not None:
        decisions.data_keys.mkdir(mode=0o700, parents=True, exist_ok=True)
    create_profile(profile, tables, "The service, as `epsilon init service` made it.")
    return log


def _tables(folder: Path, decisions: ServiceDecisions) -> dict[str, dict[str, Value]]:
    url = base_of(decisions.url, "--url")
    parts = urlsplit(url)
    production = parts.scheme == "https"
    if not production and not is_loopback(parts.hostname or ""):
        raise Malformed("--url", "must be https, or http on this machine for tests")
    host, port = _address(decisions.address or ("" if production else parts.netloc))
    own = "://" in decisions.database
    keys: dict[str, Value] = {}
    if decisions.data_keys is not None:
        keys = {"keys": path_for_profile(folder, decisions.data_keys)}
    return {
        "serve": {
            "book": decisions.database if own else path_for_profile(folder, Path(decisions.database)),
            **keys,
            "log_key": LOG_KEY,
            "origin": decisions.origin,
            "host": host,
            "port": port,
            "url": url,
            "production": production,
            "issuers": {name: path_for_profile(folder, file) for name, file in decisions.issuers.items()},
        }
    }


def _address(given: str) -> tuple[str, int]:
    """A host and a port, an IPv6 address in brackets. Raises: Malformed."""
    try:
        parts = urlsplit(f"//{given}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port is None or parts.netloc != given:
        raise Malformed("--listen", "must be where the service listens, as 127.0.0.1:8000")
    return host, port


def _check(tables: dict[str, dict[str, Value]], read: Callable[[Path], object]) -> None:
    """Hold the profile to what ``epsilon serve`` reads. Raises: Malformed."""
    origin = str(tables["serve"]["origin"])
    try:
        parse_log_key(LogKey(origin, bytes(32)).vkey)
    except Malformed:
        raise Malformed("--origin", "must be a name as ledger.example/2026, without '+' and blanks") from None
    with TemporaryDirectory() as place:
        create_profile(Path(place) / PROFILE, tables)
        read(Path(place) / PROFILE)


def check_issuer_keys(decisions: ServiceDecisions) -> tuple[Path, ...]:
    """The files of issuers' keys that are not there yet. Raises: Malformed, OSError: of one that is no JWK Set."""
    missing = []
    for name, file in decisions.issuers.items():
        if file.exists():
            IssuerFiles([(name, file)])
        else:
            missing.append(file)
    return tuple(missing)
