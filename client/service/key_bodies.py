"""Bodies of commands that bring a new signing key, with its proof of possession, and what a quorum signs."""

from __future__ import annotations

from pathlib import Path

from client.keys.signer import Signer
from client.service.detached_signatures import read_document
from ledger.commands.signing_keys.recovery import QuorumClaim, RecoveryClaim
from ledger.commands.signing_keys.rotation import RotationClaim
from ledger.crypto.organisation_keys import parse_organisation_key
from ledger.domain.gate import DOCUMENT_BYTES_MAX
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert, write


def rotation(organisation: str, retires: str, new: Signer, until: int, starts: int | None = None) -> c.Object:
    """A rotation to a new key; times in Unix milliseconds, ``retires`` is the id of the other key."""
    claim = write(RotationClaim(organisation, new.public, retires))
    dates: c.Object = {"until": until} if starts is None else {"starts": starts, "until": until}
    return {"key": new.jwk, "possession": new.sign(claim), "retires": retires, **dates}


def recovery(
    organisation: str,
    new: Signer,
    reason: str,
    id: str,  # noqa: A002 - the wire's name
    stolen_since: int | None = None,
) -> c.Object:
    """A recovery by a new key, under the id that its command is to have; without the quorum's signatures.

    ``stolen_since`` is in Unix milliseconds.
    """
    claim = write(RecoveryClaim(id, organisation, new.public, reason, stolen_since))
    stolen: c.Object = {} if stolen_since is None else {"stolen_since": stolen_since}
    return {"key": new.jwk, "organisation": organisation, "possession": new.sign(claim), "reason": reason, **stolen}


def read_claim(claim: c.Json) -> RecoveryClaim | QuorumClaim:
    """What members of a quorum sign, by the use that it names. Raises: Malformed."""
    if not isinstance(claim, dict) or claim.get("use") not in {"key_recovery", "recovery_quorum"}:
        raise Malformed("claim.use", "must be 'key_recovery' or 'recovery_quorum'")
    if claim["use"] == "key_recovery":
        return convert(RecoveryClaim, claim, "claim")
    return convert(QuorumClaim, claim, "claim")


def key_id_of(named: str) -> str:
    """A key's id, from itself or from the file that holds the public key as a JWK. Raises: Malformed, OSError."""
    path = Path(named)
    if not path.is_file():
        return named
    return parse_organisation_key(c.parse(read_document(path), DOCUMENT_BYTES_MAX, named), named).thumbprint
