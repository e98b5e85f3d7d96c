"""The log's own key is replaced: the book's own entry, signed by the key that it retires.

The checkpoint over the first entries up to this one and no others is the last that the old key signs, and the first
that the new key signs; both sign it. From the entry on the new key signs the book's own entries, and the old one
nothing. A verifier that kept either key finds the other by the entry and its receipt (``with_rotations`` of
:mod:`ledger.verifier`). In the state both are keys of the log itself, which is no organisation.
"""

from __future__ import annotations

from typing import Final, Literal

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.commands.signing_keys.key_authority import Possession, require_new_key, revoke_key
from ledger.crypto.public_keys import PublicKey, check_key
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import SigningKey
from ledger.domain.outcomes import Code
from ledger.verifier import LOG_KEY_ROTATION
from ledger.wire.field_types import constant
from ledger.wire.records import Record, write


class LogKeyClaim(Record, frozen=True):
    """The claim that the possession signature of a new key of the log covers."""

    key: PublicKey
    retires: PublicKey
    use: Literal["log_key_rotation"] = constant("log_key_rotation")


class RotateLogKey(Record, frozen=True):
    """A new key of the log in place of the one that signs this; ``possession`` is the new key's own signature."""

    key: PublicKey
    possession: Possession
    retires: PublicKey

    def __post_init__(self) -> None:
        """Raises: Malformed, for a key that no log may sign with."""
        super().__post_init__()
        for name, key in (("key", self.key), ("retires", self.retires)):
            check_key(key, "Ed25519", name)

    def claim(self) -> bytes:
        """The bytes ``possession`` signs."""
        return write(LogKeyClaim(self.key, self.retires))


def _decide(context: Context[RotateLogKey]) -> Decision:
    """Only the book makes a rotation, signed by the key that it retires. No policy decides."""
    body, command = context.body, context.command
    if command.actor != LEDGER_ACTOR or body.retires.thumbprint != command.key_id:
        raise Rejected(Code.NOT_AUTHORISED, "the log's key is replaced by the log's own key alone", "actor")
    if body.key == body.retires:
        raise Rejected(Code.CONFLICT, "the new key is the key that it replaces", "body.key")
    require_new_key(context.facts, body.key, body.possession, body.claim())
    return Decision(Code.PERMITTED)


def _apply(change: Change[RotateLogKey]) -> None:
    """Record both keys; the retired one signs nothing more."""
    body, keys = change.body, change.state.keys
    for key in (body.retires, body.key):
        # No earlier entry names the first key of the log.
        if key.thumbprint not in keys:
            keys[key.thumbprint] = SigningKey(key.thumbprint, LEDGER_ACTOR, key.x, None, change.index)
    revoke_key(change, body.retires.thumbprint)


ROTATION_OF_LOG: Final = CommandKind(LOG_KEY_ROTATION, RotateLogKey, _decide, apply=_apply, binds_all=True)
