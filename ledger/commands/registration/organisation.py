"""An SRO registers an organisation with its first signing key; the first entry of a book is its SRO, by itself."""

from __future__ import annotations

from typing import Annotated, Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.crypto import detached_jws
from ledger.crypto.organisation_keys import SignerKey
from ledger.crypto.public_keys import PublicKey, check_key
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Organisation, SigningKey
from ledger.domain.key_terms import ExtendedQuorum, RecoveryQuorum
from ledger.domain.organisation_graph import NodeKind
from ledger.domain.outcomes import Code
from ledger.domain.roles import FIRST, ORGANISATION_ROLES, SRO
from ledger.wire.field_types import Did, distinct, text, words
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, write

Role = Annotated[str, words(*ORGANISATION_ROLES)]


class OrganisationClaim(Record, frozen=True):
    """The claim that the possession signature of a registration covers."""

    organisation: Did
    name: Annotated[str, text(200)]
    roles: Annotated[tuple[Role, ...], distinct(len(ORGANISATION_ROLES))]
    key: SignerKey


class RegisterOrganisation(Record, frozen=True):
    """A legal body with its roles and first signing key; ``possession`` is that key's own signature."""

    organisation: Did
    name: Annotated[str, text(200)]
    roles: Annotated[tuple[Role, ...], distinct(len(ORGANISATION_ROLES))]
    key: SignerKey
    possession: Annotated[str, text(1_000)]

    def __post_init__(self) -> None:
        """Reject a sealing key, and a key that anyone could use. Raises: Malformed."""
        super().__post_init__()
        if isinstance(self.key, PublicKey):
            check_key(self.key, "Ed25519", "key")

    def claim(self) -> bytes:
        """The bytes ``possession`` signs."""
        return write(OrganisationClaim(self.organisation, self.name, self.roles, self.key))


def decide(context: Context[RegisterOrganisation]) -> Decision:
    """Decide a registration."""
    facts, body = context.facts, context.body
    if facts.organisations:
        context.require_role()
    elif context.index != 0 or context.command.actor != body.organisation or SRO not in body.roles:
        raise Rejected(Code.NOT_AUTHORISED, "the first entry of a book is an SRO that registers itself", "actor")
    if body.organisation in facts.organisations:
        raise Rejected(Code.CONFLICT, f"{body.organisation} is registered already", "body.organisation")
    if body.key.thumbprint in facts.keys:
        raise Rejected(Code.CONFLICT, "this key is registered already", "body.key")
    try:
        detached_jws.verify(body.possession, body.claim(), body.key)
    except Malformed as error:
        raise Rejected(Code.SIGNATURE_INVALID, f"possession of the key: {error}", "body.possession") from None
    return context.permit()


def apply(change: Change[RegisterOrganisation]) -> None:
    """Add the organisation and its key; its node of the lineage graph knows every published model.

    An SRO that one with an extended quorum registers has that quorum (:mod:`ledger.commands.signing_keys.recovery`).
    """
    state, index, body = change.state, change.index, change.body
    did, key = body.organisation, body.key
    state.organisations[did] = Organisation(did, body.name, body.roles, index, ((change.entry.time, index),), index)
    state.keys[key.thumbprint] = SigningKey(key.thumbprint, did, key.x, None, index)
    if SRO in body.roles and change.entry.actor in state.extended_quorums:
        terms = state.recovery_quorums[change.entry.actor]
        state.recovery_quorums[did] = RecoveryQuorum(did, terms.members, terms.threshold, index)
        state.extended_quorums[did] = ExtendedQuorum(did, index)
    edit = change.lineage_edit()
    edit.add_node(NodeKind.ORGANISATION, did, members=(did,))
    if state.publication is not None:
        edit.add_edge(state.publication, index, None)
    edit.apply_to(state)


ORGANISATION: Final = CommandKind(
    "organisation", RegisterOrganisation, decide, (FIRST, SRO), "/v1/organisations", apply, binds_all=True
)
