"""Decide one command: a flat list of guards on the current state, which changes nothing.

A decision takes effect only when :func:`ledger.transitions.apply.apply` is given the entry; replay applies the
same entries and must come to the same facts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ledger.crypto.detached_jws import verify
from ledger.crypto.organisation_keys import SignerKey
from ledger.crypto.public_keys import PublicKey
from ledger.domain.commands import RegisterOrganisation
from ledger.domain.facts import Facts
from ledger.domain.gate import Gate
from ledger.domain.outcomes import Code
from ledger.transitions import charges, mergers_and_transfers, registration, revocations_and_decrees
from ledger.transitions.guards import Decision, PendingCommand, Rejected
from ledger.wire.malformed import Malformed

LEDGER_ACTOR: Final = "did:web:ledger.invalid"
"""The actor of entries that the book makes by itself (a lapse), signed with the log's key."""

_LADDERS: Final[dict[str, Callable[[Facts, PendingCommand, int, int, Gate], Decision]]] = {
    "organisation": registration.organisation,
    "policy": registration.document,
    "dataset": registration.document,
    "partition": registration.partition,
    "retirement": registration.retirement,
    "contract": registration.document,
    "charge": charges.charge,
    "key_release": charges.key_release,
    "post": charges.post,
    "void": charges.void,
    "lapse": charges.lapse,
    "model_release": charges.model_release,
    "recommendation": registration.document,
    "revocation": revocations_and_decrees.revocation,
    "decree": revocations_and_decrees.decree,
    "release_notice": revocations_and_decrees.release_notice,
    "model_opening": revocations_and_decrees.model_opening,
    "merger": mergers_and_transfers.merger,
    "acquisition": mergers_and_transfers.merger,
    "collusion": mergers_and_transfers.collusion,
    "split": mergers_and_transfers.split,
    "transfer": mergers_and_transfers.transfer,
    "publication": mergers_and_transfers.publication,
    "coalition": mergers_and_transfers.coalition,
}


def decide(  # noqa: PLR0913, PLR0917 - what stands, what is asked, when and where, and who decides
    facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate, log_x: str
) -> Decision:
    """Decide a command now, as the entry at ``index``. Never raises for anything that a caller can send.

    Args:
        log_x: the log's public key, which alone signs a lapse.
    """
    try:
        verify_signer(facts, pending, log_x)
    except Rejected as refusal:
        return refusal.decided
    return decide_unsigned(facts, pending, now, index, gate)


def decide_unsigned(facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate) -> Decision:
    """Decide a command without its signature: one that is recorded already (replay), or a quote that no one signed."""
    try:
        return _LADDERS[pending.command.kind](facts, pending, now, index, gate)
    except Rejected as refusal:
        return refusal.decided
    except Malformed as fault:
        return Decision(Code.MALFORMED, str(fault), fault.field)


def verify_signer(facts: Facts, pending: PendingCommand, log_x: str) -> SignerKey:
    """The key that a command verifies with. Raises: Rejected, if there is none."""
    key = signing_key(facts, pending, log_x)
    if pending.verified_by == key.x:
        return key
    try:
        call = verify(pending.signature, pending.raw, key)
    except Malformed as fault:
        raise Rejected(Code.SIGNATURE_INVALID, str(fault), "signature") from None
    if call is not None and call.id != pending.command.id:
        raise Rejected(Code.SIGNATURE_INVALID, "signature.header.jti: is not the command's id", "signature")
    return key


def signing_key(facts: Facts, pending: PendingCommand, log_x: str) -> SignerKey:
    """The key that a command must verify with: the one it names, if its actor owns it. Raises: Rejected."""
    command = pending.command
    own: SignerKey | None = None
    if command.kind == "lapse":
        own = PublicKey("Ed25519", log_x)
    elif isinstance(pending.body, RegisterOrganisation) and not facts.organisations:
        own = pending.body.key
    if own is not None:
        if command.key_id != own.thumbprint:
            raise Rejected(Code.SIGNATURE_INVALID, "key_id: is not the key that signed", "key_id")
        return own
    key = facts.keys.get(command.key_id)
    if key is None:
        detail = f"no organisation and no clean room has registered the key {command.key_id}"
        raise Rejected(Code.SIGNATURE_INVALID, detail, "key_id")
    if key.owner != command.actor:
        raise Rejected(Code.NOT_AUTHORISED, f"the key {key.key_id} is not {command.actor}'s", "actor")
    return key.public
