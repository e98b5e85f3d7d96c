"""Policy decisions on signing keys: no policy restricts them, so everything that the ledger allows is permitted."""

from __future__ import annotations

from typing import Final

from ledger.commands.signing_keys.recovery import QUORUM, RECOVERY, NameQuorum, RecoverKey
from ledger.commands.signing_keys.revocation import KEY_REVOCATION, RevokeKeys
from ledger.commands.signing_keys.rotation import ROTATION, RotateKey
from ledger.commands.signing_keys.suspension import KEY_SUSPENSION, SuspendKeys
from policy.decisions.request import Case, on


def key_change(case: Case, _body: RotateKey | RevokeKeys | SuspendKeys) -> None:
    """Decide a rotation, revocation or suspension: the ledger decides which keys the sender may act on."""
    case.check("actor_unknown", case.actor in case.facts.organisations, case.actor, "registered")


def quorum(case: Case, body: NameQuorum) -> None:
    """Decide the naming of a quorum."""
    case.registered("organisation_unknown", body.members)


def recovery(case: Case, body: RecoverKey) -> None:
    """Decide a recovery: the ledger decides whether enough of its quorum have signed."""
    case.registered("organisation_unknown", (body.organisation,))


VERDICTS: Final = (
    on(ROTATION, key_change),
    on(KEY_REVOCATION, key_change),
    on(KEY_SUSPENSION, key_change),
    on(QUORUM, quorum),
    on(RECOVERY, recovery),
)
"""By kind of command."""
