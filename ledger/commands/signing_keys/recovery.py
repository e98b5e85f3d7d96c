"""A lost key is replaced: an SRO's by a quorum that it named beforehand, another organisation's by its SRO too.

A quorum is named while the organisation has its key, and replaced only with the quorum's own consent: a thief of the
key names no other quorum, and an SRO acts on no key of a member (:mod:`ledger.commands.signing_keys.key_authority`). So
the quorum recovers from a stolen key, whatever was done to the organisation's own keys meanwhile. A recovery revokes
every key that the organisation has, since a lost key may be in anyone's hands, and gives it a new one. Members sign by
keys that are in force at the recovery, so a member may rotate its own key in between.

An SRO may extend its quorum to the SROs that it registers from then on: each is registered with that quorum as its own,
and extended likewise. So an SRO that a thief of the key registers, or that such an SRO registers, is recovered too.
What else they signed is undone by new commands: a recovery states the time since which the key was stolen, and what
the organisation's keys signed since then is listed from the log. Members are registered before, so none of them
is recovered by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final, Literal

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.commands.registration.document import signer_of
from ledger.commands.signing_keys.key_authority import (
    KEY_ROLES,
    Possession,
    TouchedRuns,
    add_key,
    check_signing_key,
    governs,
    require_new_key,
    revoke_key,
    touched_runs,
)
from ledger.crypto.detached_jws import SIGNATURE_BYTES_MAX
from ledger.crypto.organisation_keys import SignerKey
from ledger.domain.command import REASON_MAX
from ledger.domain.decision import Decision, Rejected
from ledger.domain.key_terms import ExtendedQuorum, RecoveryQuorum
from ledger.domain.outcomes import Code
from ledger.domain.roles import SRO
from ledger.wire.field_types import Did, Name, Time, between, constant, distinct, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, write

MEMBERS_MAX: Final = 12
"""The most members of a quorum: all of their signatures fit into one command."""


Signatures = Annotated[tuple[Annotated[str, text(SIGNATURE_BYTES_MAX)], ...], distinct(MEMBERS_MAX)]
"""Detached JWS of members of a quorum."""


class QuorumClaim(Record, frozen=True):
    """The claim that members of a quorum sign to be replaced: the command without signatures, under its id."""

    id: Name
    members: tuple[Did, ...]
    organisation: Did
    threshold: int
    extends_to_registered: Literal[True] | None = None
    use: Literal["recovery_quorum"] = constant("recovery_quorum")


class NameQuorum(Record, frozen=True):
    """Organisations of which ``threshold`` together may give the sender a new signing key.

    ``signatures`` are those of the quorum that is replaced; the first one needs none. ``extends_to_registered`` makes
    it the first quorum of each SRO that the sender registers from now on, too; it is never taken back.
    """

    members: Annotated[tuple[Did, ...], distinct(MEMBERS_MAX)]
    threshold: Annotated[int, between(1, MEMBERS_MAX)]
    signatures: Signatures = ()
    extends_to_registered: Literal[True] | None = None

    def claim(self, organisation: str, command_id: str) -> bytes:
        """The bytes that members of the quorum that is replaced sign."""
        return write(QuorumClaim(command_id, self.members, organisation, self.threshold, self.extends_to_registered))


class RecoveryClaim(Record, frozen=True):
    """The claim that each member of a quorum and the new key sign: the recovery, under the id of its command."""

    id: Name
    organisation: Did
    key: SignerKey
    reason: Annotated[str, text(REASON_MAX)]
    stolen_since: Time | None = None
    use: Literal["key_recovery"] = constant("key_recovery")


class RecoverKey(Record, frozen=True):
    """A new signing key for an organisation in place of all that it had.

    ``possession`` is the new key's own signature, ``signatures`` are the detached JWS of the quorum's members; an SRO
    needs none to recover an organisation that is no SRO. From ``stolen_since`` on (ms) the signers do not trust what
    the organisation's keys signed: it stays, and ``GET /v1/decisions`` lists it.
    """

    organisation: Did
    key: SignerKey
    possession: Possession
    reason: Annotated[str, text(REASON_MAX)]
    signatures: Signatures = ()
    stolen_since: Time | None = None

    def __post_init__(self) -> None:
        """Raises: Malformed, for a key that no organisation may sign with."""
        super().__post_init__()
        check_signing_key(self.key)

    def claim(self, command_id: str) -> bytes:
        """The bytes that every member signs."""
        return write(RecoveryClaim(command_id, self.organisation, self.key, self.reason, self.stolen_since))


def _name_quorum(context: Context[NameQuorum]) -> Decision:
    """Decide the naming of a quorum; the organisation itself must not be a member."""
    body, actor = context.body, context.command.actor
    context.organisations(body.members, "members")
    if actor in body.members:
        raise Rejected(Code.MALFORMED, "body.members: the sender cannot recover itself", "body.members")
    if body.threshold > len(body.members):
        raise Rejected(Code.MALFORMED, "body.threshold: is more than there are members", "body.threshold")
    quorum = context.facts.recovery_quorums.get(actor)
    if quorum is not None:
        _require_signed(context, quorum, body.claim(actor, context.command.id), body.signatures)
    return context.permit()


def _apply_quorum(change: Change[NameQuorum]) -> None:
    body, actor = change.body, change.entry.actor
    change.state.recovery_quorums[actor] = RecoveryQuorum(actor, body.members, body.threshold, change.index)
    if body.extends_to_registered and actor not in change.state.extended_quorums:
        change.state.extended_quorums[actor] = ExtendedQuorum(actor, change.index)


def _recover(context: Context[RecoverKey]) -> Decision:
    """Decide a recovery."""
    facts, body = context.facts, context.body
    organisation, claim = context.organisation(body.organisation, "organisation"), body.claim(context.command.id)
    if body.stolen_since is not None and body.stolen_since > context.now:
        raise Rejected(Code.MALFORMED, "body.stolen_since: must not lie after now", "body.stolen_since")
    if not (not body.signatures and governs(facts, context.require_role(), organisation)):
        _require_signed(context, _quorum_of(context), claim, body.signatures)
    require_new_key(facts, body.key, body.possession, claim)
    return context.permit(touched_runs(facts, {organisation.did}))


def _quorum_of(context: Context[RecoverKey]) -> RecoveryQuorum:
    did = context.body.organisation
    quorum = context.facts.recovery_quorums.get(did)
    if quorum is None:
        who = "" if SRO in context.facts.organisations[did].roles else ": an SRO may recover it"
        detail = f"{did} has named no quorum that could recover it{who}"
        raise Rejected(Code.NOT_AUTHORISED, detail, "body.organisation")
    return quorum


def _require_signed(context: Context[Any], quorum: RecoveryQuorum, claim: bytes, signatures: Iterable[str]) -> None:
    """Check that enough members of a quorum have signed a claim, by keys in force. Raises: Rejected."""
    signed = set()
    for place, signature in enumerate(signatures):
        try:
            signed.add(signer_of(context.facts, claim, signature, context.now))
        except Malformed as error:
            raise Rejected(Code.SIGNATURE_INVALID, str(error), f"body.signatures[{place}]") from None
    count = len(signed & set(quorum.members))
    if count < quorum.threshold:
        members = ", ".join(quorum.members)
        detail = f"{count} of the quorum of {quorum.organisation} have signed, and {quorum.threshold} must: {members}"
        raise Rejected(Code.SIGNATURE_MISSING, detail, "body.signatures")


def _apply_recovery(change: Change[RecoverKey]) -> None:
    """Revoke every key that the organisation has, and add the new one."""
    body = change.body
    for key in change.state.keys_of(body.organisation):
        revoke_key(change, key.key_id)
    add_key(change, body.organisation, body.key, change.entry.time)


QUORUM: Final = CommandKind(
    "recovery_quorum", NameQuorum, _name_quorum, KEY_ROLES, "/v1/recovery-quorums", _apply_quorum, binds_all=True
)
RECOVERY: Final = CommandKind(
    "key_recovery",
    RecoverKey,
    _recover,
    KEY_ROLES,
    "/v1/key-recoveries",
    _apply_recovery,
    recorded=TouchedRuns,
    binds_all=True,
)
