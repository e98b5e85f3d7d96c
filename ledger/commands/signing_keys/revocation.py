"""Signing keys are revoked for good: from this entry on they sign nothing, and the entry lists the affected runs.

Runs that the organisation charged before, whose data keys are not released yet, get no keys: the revoked key may have
signed them. They are voided, or lapse, and are charged anew by a key in force. Runs whose keys are released go on; they
count in full until they are settled.
"""

from __future__ import annotations

from typing import Annotated, Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.commands.signing_keys.key_authority import (
    KEY_ROLES,
    KeyIds,
    TouchedRuns,
    keys_in_force,
    named_keys,
    revoke_key,
    touched_runs,
)
from ledger.domain.command import REASON_MAX
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import SigningKey
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.wire.field_types import text
from ledger.wire.records import Record


class RevokeKeys(Record, frozen=True):
    """Signing keys, by their ids, that sign nothing from this entry on: the sender's own, or an SRO names others'."""

    keys: KeyIds
    reason: Annotated[str, text(REASON_MAX)]


def decide(context: Context[RevokeKeys]) -> Decision:
    """Decide a revocation."""
    keys = named_keys(context, context.body.keys)
    _require_one_left(context, keys)
    return context.permit(touched_runs(context.facts, {key.owner for key in keys}))


def _require_one_left(context: Context[RevokeKeys], keys: list[SigningKey]) -> None:
    """An SRO without a quorum that could recover it keeps one key: without one, no one governs. Raises: Rejected."""
    facts, revoked = context.facts, set(context.body.keys)
    for did in {key.owner for key in keys}:
        remaining = [key for key in keys_in_force(facts, did, context.now) if key not in revoked]
        if not remaining and SRO in facts.organisations[did].roles and did not in facts.recovery_quorums:
            detail = f"{did} would be left without a key, and has named no quorum to recover it: rotate first"
            raise Rejected(Code.CONFLICT, detail, "body.keys")


def apply(change: Change[RevokeKeys]) -> None:
    """Revoke each of them."""
    for key_id in change.body.keys:
        revoke_key(change, key_id)


KEY_REVOCATION: Final = CommandKind(
    "key_revocation",
    RevokeKeys,
    decide,
    KEY_ROLES,
    "/v1/key-revocations",
    apply,
    recorded=TouchedRuns,
    binds_all=True,
)
