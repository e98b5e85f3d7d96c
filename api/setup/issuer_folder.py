"""The keys of an issuer of access tokens: those of one that people run already, or a development issuer of our own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.parse import urlsplit

from api.auth.access_tokens import Issuer
from api.dev_issuer.issuer import IssuerSettings
from api.setup.key_files import exists_error, jwk_set, signing_key, write_once
from api.setup.profile_files import Value, create_profile, path_for_profile
from client.http.base_url import base_of
from client.login.discovery import discover, fetch_json, issuer_client
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

KEY: Final = "issuer.pem"
JWK_SET: Final = "issuer.jwks"
PROFILE: Final = "issuer.toml"


def fetch_issuer(folder: Path, url: str) -> list[str]:
    """Write the public keys of a running OpenID Connect issuer; their ids, as it names them.

    Raises:
        Malformed, Refused, Unreachable: as its metadata or keys are wrong, or it does not answer.
        FileExistsError: if there are other keys; OSError.
    """
    with issuer_client(url) as http:
        document = fetch_json(http, discover(http, url).keys)
    data = c.dump(document) + b"\n"
    # As a service reads it.
    Issuer.parse(url, data)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_once(folder / JWK_SET, data)
    listed = document.get("keys")
    return [str(key.get("kid", "no id")) for key in listed if isinstance(key, dict)] if isinstance(listed, list) else []


def make_issuer(folder: Path, url: str, origin: str, clients: Mapping[str, Path]) -> str:
    """Make what a development issuer needs; the id of its key.

    Args:
        folder: gets key, JWK Set and profile, the profile last.
        url: where it will listen: http on loopback, with a port.
        origin: the log's, for which its tokens are.
        clients: by organisation, the file of its public JWK or private key.

    Raises: Malformed, FileExistsError, OSError.
    """
    profile = folder / PROFILE
    if profile.exists():
        raise exists_error(profile)
    parts = urlsplit(base_of(url, "--url"))
    if parts.port is None or parts.path:
        raise Malformed("--url", "must name a port and no path, as http://127.0.0.1:8100")
    table: dict[str, Value] = {
        "host": parts.hostname or "",
        "port": parts.port,
        "audience": origin,
        "key": KEY,
        "clients": {did: path_for_profile(folder, file) for did, file in clients.items()},
    }
    with TemporaryDirectory() as place:
        made = Path(place)
        signing_key(made / KEY)
        absolute: dict[str, Value] = {**table, "clients": {did: str(file.resolve()) for did, file in clients.items()}}
        create_profile(made / PROFILE, {"issuer": absolute})
        # All that it reads at its start: each client's key too.
        IssuerSettings.load(made / PROFILE).issuer(made, url, lambda: 0)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    signer = signing_key(folder / KEY)
    write_once(folder / JWK_SET, jwk_set(signer))
    create_profile(profile, {"issuer": table}, "A development issuer: it knows machines by their keys, and no people.")
    return signer.key_id
