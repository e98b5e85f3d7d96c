"""An organisation's registration: name, roles and public key, with the proof that it has the private half."""

from __future__ import annotations

from collections.abc import Sequence

from client.keys.signer import Signer
from ledger.domain.command import Command
from ledger.wire import canonical_json as c


def registration(signer: Signer, organisation: str, name: str, roles: Sequence[str]) -> c.Object:
    """The body by which an SRO registers the organisation. Raises: Malformed."""
    # A client that only reads need not wait for every kind of command to load.
    from ledger.commands.registry import read_body

    claim: c.Object = {"key": signer.jwk, "name": name, "organisation": organisation, "roles": [*roles]}
    body: c.Object = {**claim, "possession": signer.sign(c.dump(claim))}
    read_body(Command("organisation", "claim", organisation, signer.key_id, body))
    return body
