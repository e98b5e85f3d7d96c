"""The data keys of a charge go to its attested clean room: from this entry on they count as released."""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.accounts.account_sums import AccountSums
from ledger.accounts.limits import limits_since
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context, require_pending
from ledger.commands.signing_keys.key_authority import revoked_since
from ledger.domain.charge_record import Charge
from ledger.domain.decision import Decision, Rejected
from ledger.domain.gate import Verdict
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import Code
from ledger.domain.roles import CCR
from ledger.filters import read_rule
from ledger.wire.field_types import KeyBytes, Name, Sha256
from ledger.wire.records import Record


class ReleaseKey(Record, frozen=True):
    """The data keys of a charge's partitions for the attested clean room; ``nonce`` answers a challenge."""

    charge: Name
    evidence: Sha256
    nonce: KeyBytes


class Released(NamedTuple):
    """A key release and the charge it is for."""

    id: str
    charge: str

    def apply(self, state: MemoryState, _index: int, _sums: AccountSums) -> None:
        """Record that the keys of the charge are released."""
        state.charges[self.charge] = self.changed(state.charges[self.charge])

    def changed(self, charge: Charge) -> Charge:
        """The charge from this entry on."""
        return charge._replace(key_release=self.id)


def decide(context: Context[ReleaseKey]) -> Decision:
    """Decide a key release."""
    charge = context.charge(context.body.charge)
    context.require_clean_room(charge)
    require_pending(charge)
    if charge.key_release is not None:
        detail = f"the keys of charge {charge.id} were released by {charge.key_release}"
        raise Rejected(Code.CONFLICT, detail, "body.charge")
    if revoked := revoked_since(context.facts, charge.actor, charge.index):
        detail = f"{charge.actor} had the key {revoked}, revoked since, when it sent charge {charge.id}: void it"
        raise Rejected(Code.CONFLICT, detail, "body.charge")
    context.require_evidence(context.body.evidence)
    verdict = context.require_permit()
    if verdict.caps:
        _require_within_caps(context, charge, verdict)
    return Decision(Code.PERMITTED)


def _require_within_caps(context: Context[ReleaseKey], charge: Charge, verdict: Verdict) -> None:
    """Check that every account of the organisation that lineage has changed since is within its cap. Raises: Rejected.

    A charge counts in full from its admission on, so without lineage nothing is over a cap.
    """
    facts, author = context.facts, context.facts.organisations[charge.actor]
    partitions = tuple(facts.partitions[ref] for ref in charge.partitions)
    for limit in limits_since(facts, partitions, verdict, author, charge.index, context.prices):
        terms = read_rule(facts.partitions[limit.partition].terms)
        if not terms.admits(limit.before(facts), limit.cap):
            detail = (
                f"by what {charge.actor} has come to know since charge {charge.id}, an account of {limit.partition} "
                "is over its cap: void charges that have not begun"
            )
            raise Rejected(Code.CONFLICT, detail, "body.charge")


def effect(entry: Recorded[ReleaseKey]) -> Released:
    """The effect of a key release's entry."""
    return Released(entry.id, entry.body.charge)


KEY_RELEASE: Final = CommandKind("key_release", ReleaseKey, decide, (CCR,), "/v1/key-releases", effect=effect)
