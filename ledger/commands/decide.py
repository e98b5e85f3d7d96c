"""Decide one command: a flat list of guards on the current state, which changes nothing.

A decision takes effect only when :func:`ledger.commands.apply.apply` is given the entry; replay applies the
same entries and must come to the same facts.
"""

from __future__ import annotations

from typing import Any

from ledger.commands.context import PendingCommand
from ledger.commands.registration.organisation import RegisterOrganisation
from ledger.commands.registry import CLIENT_KINDS, KINDS
from ledger.commands.signing_keys.key_authority import require_key_in_force
from ledger.commands.verdict_cache import VerdictCache
from ledger.crypto.detached_jws import Call, ed25519_check, verify
from ledger.crypto.ed25519 import Check
from ledger.crypto.organisation_keys import SignerKey
from ledger.crypto.public_keys import PublicKey
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Facts
from ledger.domain.gate import Gate
from ledger.domain.outcomes import Code
from ledger.wire.malformed import Malformed


def decide(  # noqa: PLR0913, PLR0917 - the state, the command, when and where, and who decides
    facts: Facts,
    pending: PendingCommand,
    now: int,
    index: int,
    gate: Gate,
    log_x: str,
    kept: VerdictCache[Any] | None = None,
) -> Decision:
    """Decide a command now, as the entry at ``index``. Raises nothing, whatever a caller sends.

    Args:
        log_x: the log's public key, which alone signs the book's own entries until an entry replaces it.
        kept: the cache of the gate's verdicts.
    """
    try:
        verify_signer(facts, pending, log_x)
    except Rejected as refusal:
        return refusal.decided
    return decide_unsigned(facts, pending, now, index, gate, kept)


def decide_unsigned(  # noqa: PLR0913, PLR0917 - as above
    facts: Facts, pending: PendingCommand, now: int, index: int, gate: Gate, kept: VerdictCache[Any] | None = None
) -> Decision:
    """Decide a command without its signature: one that is recorded already (replay), or a quote that no one signed."""
    kind = KINDS[pending.command.kind]
    context = kind.context(facts, pending, now, index, gate, kept)
    try:
        require_key_in_force(facts, pending.command.key_id, now, ends_suspension=kind.ends_suspension)
        if kind.requires_role:
            context.require_role()
        return kind.decide(context)
    except Rejected as refusal:
        return refusal.decided
    except Malformed as error:
        return Decision(Code.MALFORMED, str(error), error.field)


def verify_signer(facts: Facts, pending: PendingCommand, log_x: str) -> SignerKey:
    """The key that a command verifies with. Raises: Rejected, if there is none."""
    key = signing_key(facts, pending, log_x)
    if pending.verified_by != key.x:
        x, refusal = pending.refused_by
        if x != key.x:
            refusal = refusal_by(key, pending)
        if refusal:
            raise Rejected(Code.SIGNATURE_INVALID, refusal, "signature")
    return key


def refusal_by(key: SignerKey, pending: PendingCommand) -> str:
    """Why a command does not verify with a key; empty if it does."""
    try:
        call = verify(pending.signature, pending.raw, key)
    except Malformed as error:
        return str(error)
    return _other_request(call, pending)


def _other_request(call: Call | None, pending: PendingCommand) -> str:
    if call is not None and call.id != pending.command.id:
        return "signature.header.jti: is not the command's id"
    return ""


def check_elsewhere(key: SignerKey, pending: PendingCommand) -> Check | None:
    """A signature check that another process may make in place of :func:`refusal_by`, with the same result if it holds.

    None if the command is refused without a signature check, or its key is not Ed25519.
    """
    if not isinstance(key, PublicKey):
        return None
    try:
        call, check = ed25519_check(pending.signature, pending.raw, key)
    except Malformed:
        return None
    return None if _other_request(call, pending) else check


def signing_key(facts: Facts, pending: PendingCommand, log_x: str) -> SignerKey:
    """The key that a command must verify with: the one it names, if its actor owns it. Raises: Rejected."""
    command = pending.command
    own: SignerKey | None = None
    key = facts.keys.get(command.key_id)
    if command.kind not in CLIENT_KINDS:
        # A key of the log may be retired; its terms state whether it is in force.
        own = PublicKey("Ed25519", log_x) if key is None or key.owner != LEDGER_ACTOR else key.public
    elif isinstance(pending.body, RegisterOrganisation) and not facts.organisations:
        own = pending.body.key
    if own is not None:
        if command.key_id != own.thumbprint:
            raise Rejected(Code.SIGNATURE_INVALID, "key_id: is not the key that signed", "key_id")
        return own
    if key is None or key.owner == LEDGER_ACTOR:
        detail = f"no organisation and no clean room has registered the key {command.key_id}"
        raise Rejected(Code.SIGNATURE_INVALID, detail, "key_id")
    if key.owner != command.actor:
        raise Rejected(Code.NOT_AUTHORISED, f"the key {key.key_id} is not {command.actor}'s", "actor")
    return key.public
