"""The log's own key is replaced: the book's own entry, signed by the key that it retires.

The checkpoint over the first entries up to this one and no others is the first that the new key signs; both sign it.
From the entry on the new key signs the book's own entries. A verifier that kept either key finds the other by the entry
and its receipt (``with_rotations`` of :mod:`ledger.verifier`). In the state both are keys of the log itself, which is
no organisation.

Without a window that checkpoint is the last that the old key signs. With one both keys sign, over so many entries more:
the time in which those that know the old key alone learn of the new one. A rotation may also revoke a key of the log
that was stolen, the one that it retires or an earlier one, as of a size: by that key alone no larger checkpoint counts.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.commands.signing_keys.key_authority import Possession, require_new_key, revoke_key
from ledger.crypto.public_keys import PublicKey, check_key
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import SigningKey
from ledger.domain.outcomes import Code
from ledger.verifier import LOG_KEY_ROTATION
from ledger.wire.canonical_json import INTEGER_MAX
from ledger.wire.field_types import KeyBytes, between, constant
from ledger.wire.records import Record, write

OVERLAP_MAX: Final = 10_000_000
"""Entries after a rotation over which the old key may go on signing beside the new one."""


class LogKeyClaim(Record, frozen=True):
    """The claim that the possession signature of a new key of the log covers."""

    key: PublicKey
    retires: PublicKey
    use: Literal["log_key_rotation"] = constant("log_key_rotation")


class RevokedLogKey(Record, frozen=True):
    """A key of the log that was stolen, by its id, and the size of the last checkpoint by it alone that counts."""

    key: KeyBytes
    size: Annotated[int, between(0, INTEGER_MAX)]


class RotateLogKey(Record, frozen=True):
    """A new key of the log in place of the one that signs this; ``possession`` is the new key's own signature.

    Attributes:
        overlap: over how many entries more both keys sign checkpoints.
        revokes: a stolen key of the log.
    """

    key: PublicKey
    possession: Possession
    retires: PublicKey
    overlap: Annotated[int, between(1, OVERLAP_MAX)] | None = None
    revokes: RevokedLogKey | None = None

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
    if body.revokes is not None:
        _require_revocable(context, body.revokes)
    return Decision(Code.PERMITTED)


def _require_revocable(context: Context[RotateLogKey], revokes: RevokedLogKey) -> None:
    """Check that the log had the key, had the size, and that no window goes on by a stolen key. Raises: Rejected."""
    body, facts = context.body, context.facts
    known = facts.keys.get(revokes.key)
    # A charge may have named the log's first key as its clean room's, before an entry said whose it is; it has terms
    # since it was retired, which no clean room's key has.
    was_the_logs = known is not None and (
        known.owner == LEDGER_ACTOR or (known.charge is not None and revokes.key in facts.key_terms)
    )
    if revokes.key != body.retires.thumbprint and not was_the_logs:
        raise Rejected(Code.NOT_FOUND, f"the log never had the key {revokes.key}", "body.revokes.key")
    if revokes.size > context.index:
        raise Rejected(Code.CONFLICT, f"the log has {context.index} entries", "body.revokes.size")
    if body.overlap is not None and revokes.key == body.retires.thumbprint:
        raise Rejected(Code.CONFLICT, "a key that was stolen does not go on signing beside the new one", "body.overlap")


def _apply(change: Change[RotateLogKey]) -> None:
    """Record both keys; the retired one signs nothing more."""
    body = change.body
    for key in (body.retires, body.key):
        know_log_key(change, key)
    revoke_key(change, body.retires.thumbprint)


def know_log_key(change: Change[Any], key: PublicKey) -> None:
    """Record a key of the log: no earlier entry names its first one."""
    keys = change.state.keys
    if key.thumbprint not in keys:
        keys[key.thumbprint] = SigningKey(key.thumbprint, LEDGER_ACTOR, key.x, None, change.index)


ROTATION_OF_LOG: Final = CommandKind(
    LOG_KEY_ROTATION, RotateLogKey, _decide, apply=_apply, binds_all=True, ends_suspension=True
)
