"""An organisation replaces a signing key by a new one, from an effective date on, with a window in which both count."""

from __future__ import annotations

from typing import Final, Literal

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.commands.signing_keys.key_authority import (
    KEY_ROLES,
    Possession,
    add_key,
    check_signing_key,
    require_new_key,
    require_room,
    terms_of,
)
from ledger.crypto.organisation_keys import SignerKey
from ledger.domain.decision import Decision, Rejected
from ledger.domain.outcomes import Code
from ledger.wire.field_types import Did, KeyBytes, Time, constant
from ledger.wire.records import Record, write

WINDOW_MS_MAX: Final = 400 * 86_400_000
"""How far ahead (ms) a rotation may set the start of a key, and the end of another."""


class RotationClaim(Record, frozen=True):
    """The claim that the possession signature of a rotation covers."""

    organisation: Did
    key: SignerKey
    retires: KeyBytes
    use: Literal["key_rotation"] = constant("key_rotation")


class RotateKey(Record, frozen=True, kw_only=True):
    """A new signing key in place of another one of the sender's; ``possession`` is the new key's own signature.

    The new key signs from ``starts`` on (ms; from the entry on if absent), the other one until ``until``.
    """

    key: SignerKey
    possession: Possession
    retires: KeyBytes
    until: Time
    starts: Time | None = None

    def __post_init__(self) -> None:
        """Raises: Malformed, for a key that no organisation may sign with."""
        super().__post_init__()
        check_signing_key(self.key)

    def claim(self, organisation: str) -> bytes:
        """The bytes ``possession`` signs."""
        return write(RotationClaim(organisation, self.key, self.retires))


def decide(context: Context[RotateKey]) -> Decision:
    """Decide a rotation: at every time at least one of the keys counts."""
    facts, body, actor, now = context.facts, context.body, context.require_role().did, context.now
    replaced = facts.keys.get(body.retires)
    if replaced is None or replaced.charge is not None or replaced.owner != actor:
        raise Rejected(Code.NOT_FOUND, f"{actor} has no key {body.retires}", "body.retires")
    terms = terms_of(facts, replaced)
    if terms.revoked is not None or (terms.until is not None and now >= terms.until):
        raise Rejected(Code.CONFLICT, f"the key {body.retires} {terms.refusal(now)}", "body.retires")
    if body.starts is not None and not now < body.starts <= now + WINDOW_MS_MAX:
        raise Rejected(Code.MALFORMED, "body.starts: must lie after now and within 400 days of it", "body.starts")
    starts = body.starts or now
    if not starts <= body.until <= now + WINDOW_MS_MAX:
        rule = "must not lie before the start of the new key, nor more than 400 days ahead"
        raise Rejected(Code.MALFORMED, f"body.until: {rule}", "body.until")
    if terms.until is not None and body.until > terms.until:
        detail = f"the key {body.retires} is to retire at {terms.until} already: no rotation moves that back"
        raise Rejected(Code.CONFLICT, detail, "body.until")
    require_room(facts, actor, now)
    require_new_key(facts, body.key, body.possession, body.claim(actor))
    return context.permit()


def apply(change: Change[RotateKey]) -> None:
    """Add the new key, and end the other one at its time."""
    state, body, actor = change.state, change.body, change.entry.actor
    add_key(change, actor, body.key, body.starts or change.entry.time)
    terms = terms_of(state, state.keys[body.retires])
    state.key_terms[body.retires] = terms._replace(until=body.until)


ROTATION: Final = CommandKind("key_rotation", RotateKey, decide, KEY_ROLES, "/v1/key-rotations", apply, binds_all=True)
