"""The folder of one organisation: its signing key, its public key for the issuer, its registration, and its profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from api.setup.key_files import exists_error, jwk_text, signing_key, write_once
from api.setup.profile_files import create_profile
from client.http.base_url import base_of, require_private
from client.keys.signer import Signer
from client.service.registration import registration
from ledger.verifier import LogKey
from ledger.wire import canonical_json as c

KEY: Final = "key.pem"
JWK: Final = "key.jwk"
CLAIM: Final = "claim.json"
PROFILE: Final = "profile.toml"


@dataclass(frozen=True, slots=True)
class PartyDecisions:
    """The organisation, and the service and log that it trusts.

    Attributes:
        did: its identifier.
        name: its name, for people.
        roles: SRO, TSO, TDP, TDC or AUDITOR.
        service: the service's URL.
        issuer: the URL of the issuer that gives it access tokens.
        log: the verifier key of the log, which it got from the operator.
    """

    did: str
    name: str
    roles: Sequence[str]
    service: str
    issuer: str
    log: LogKey


def make_party(folder: Path, decisions: PartyDecisions) -> Signer:
    """Make what is missing in the folder, the profile last; its signer. Raises: Malformed, FileExistsError, OSError."""
    profile = folder / PROFILE
    if profile.exists():
        raise exists_error(profile)
    did = c.did(decisions.did, "--did")
    client = {
        "service": require_private(base_of(decisions.service, "--service"), "--service"),
        "issuer": require_private(decisions.issuer, "--issuer"),
        "log": decisions.log.vkey,
        "actor": did,
        "key": KEY,
    }
    # With a key that is thrown away, before anything is written: name and roles.
    registration(Signer.generate(), did, decisions.name, decisions.roles)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    signer = signing_key(folder / KEY)
    write_once(folder / JWK, jwk_text(signer))
    claim = registration(signer, did, decisions.name, decisions.roles)
    write_once(folder / CLAIM, c.dump(claim) + b"\n")
    create_profile(profile, {"client": client})
    return signer
