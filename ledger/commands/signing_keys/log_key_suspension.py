"""The log's own key is suspended, and resumed: the book's own entry, signed by that key.

The checkpoint that ends with a suspension is the last that the log signs until the key is resumed or replaced, and no
other entry may follow before that: no command, no lapse, no statement of the state. Reading goes on.
"""

from __future__ import annotations

from typing import Annotated, Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.commands.signing_keys.key_authority import terms_of
from ledger.commands.signing_keys.log_key_rotation import know_log_key
from ledger.crypto.public_keys import PublicKey, check_key
from ledger.domain.command import LEDGER_ACTOR, REASON_MAX
from ledger.domain.decision import Decision, Rejected
from ledger.domain.outcomes import Code
from ledger.verifier import LOG_KEY_SUSPENSION
from ledger.wire.field_types import text
from ledger.wire.records import Record


class SuspendLogKey(Record, frozen=True):
    """The log's key, which signs nothing until it is resumed or replaced; ``suspended`` is false to resume it."""

    key: PublicKey
    reason: Annotated[str, text(REASON_MAX)]
    suspended: bool

    def __post_init__(self) -> None:
        """Raises: Malformed, for a key that no log may sign with."""
        super().__post_init__()
        check_key(self.key, "Ed25519", "key")


def _decide(context: Context[SuspendLogKey]) -> Decision:
    """Only the book suspends its key, signed by that key. No policy decides."""
    body, command = context.body, context.command
    if command.actor != LEDGER_ACTOR or body.key.thumbprint != command.key_id:
        raise Rejected(Code.NOT_AUTHORISED, "the log's key is suspended by the log's own key alone", "actor")
    terms = context.facts.key_terms.get(command.key_id)
    suspended = terms is not None and terms.suspended_by is not None
    if suspended is body.suspended:
        said = "suspended already" if suspended else "not suspended"
        raise Rejected(Code.CONFLICT, f"the log's key is {said}", "body.suspended")
    return Decision(Code.PERMITTED)


def _apply(change: Change[SuspendLogKey]) -> None:
    """Record that the key signs nothing, or that it does again."""
    state, key = change.state, change.body.key
    know_log_key(change, key)
    by = LEDGER_ACTOR if change.body.suspended else None
    state.key_terms[key.thumbprint] = terms_of(state, state.keys[key.thumbprint])._replace(suspended_by=by)


SUSPENSION_OF_LOG: Final = CommandKind(
    LOG_KEY_SUSPENSION, SuspendLogKey, _decide, apply=_apply, binds_all=True, ends_suspension=True
)
"""``epsilon suspend-log-key``."""
