"""Signing keys are suspended, and resumed: while a key is suspended it signs nothing, and nothing else changes."""

from __future__ import annotations

from typing import Annotated, Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.commands.signing_keys.key_authority import KEY_ROLES, KeyIds, governs, keys_in_force, named_keys, terms_of
from ledger.domain.command import REASON_MAX
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import SigningKey
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.wire.field_types import text
from ledger.wire.records import Record


class SuspendKeys(Record, frozen=True):
    """Signing keys, by their ids, that sign nothing until they are resumed; ``suspended`` is false to resume them."""

    keys: KeyIds
    reason: Annotated[str, text(REASON_MAX)]
    suspended: bool


def decide(context: Context[SuspendKeys]) -> Decision:
    """Decide a suspension, or its end: by the organisation that suspended the key, or an SRO that acts on it."""
    suspends, keys = context.body.suspended, named_keys(context, context.body.keys)
    for place, key in enumerate(keys):
        by = terms_of(context.facts, key).suspended_by
        if suspends is (by is not None):
            detail = f"the key {key.key_id} is {'' if by else 'not '}suspended{' already' if by else ''}"
            raise Rejected(Code.CONFLICT, detail, f"body.keys[{place}]")
        if by is not None and by != context.command.actor:
            _require_governs(context, key, by)
    if suspends:
        _require_one_left(context, keys)
    return context.permit()


def _require_governs(context: Context[SuspendKeys], key: SigningKey, by: str) -> None:
    if not governs(context.facts, context.require_role(), context.facts.organisations[key.owner]):
        raise Rejected(Code.NOT_AUTHORISED, f"the key {key.key_id} was suspended by {by}, which may resume it", "actor")


def _require_one_left(context: Context[SuspendKeys], keys: list[SigningKey]) -> None:
    """An SRO keeps one key in force, as only it could resume the others. Raises: Rejected."""
    facts = context.facts
    for did in {key.owner for key in keys}:
        remaining = set(keys_in_force(facts, did, context.now)) - set(context.body.keys)
        if not remaining and SRO in facts.organisations[did].roles:
            raise Rejected(Code.CONFLICT, f"{did} would be left without a key that could resume them", "body.keys")


def apply(change: Change[SuspendKeys]) -> None:
    """Record who suspended the keys, or that they are resumed."""
    state, by = change.state, change.entry.actor if change.body.suspended else None
    for key_id in change.body.keys:
        state.key_terms[key_id] = terms_of(state, state.keys[key_id])._replace(suspended_by=by)


KEY_SUSPENSION: Final = CommandKind(
    "key_suspension", SuspendKeys, decide, KEY_ROLES, "/v1/key-suspensions", apply, binds_all=True
)
