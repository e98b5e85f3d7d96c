"""Guards shared by commands on signing keys: which keys are in force, who may act on them, and how a key is added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Final

from ledger.commands.command_kind import Change
from ledger.commands.context import Context
from ledger.crypto import detached_jws
from ledger.crypto.organisation_keys import SignerKey
from ledger.crypto.public_keys import PublicKey, check_key
from ledger.domain.command import LEDGER_ACTOR
from ledger.domain.decision import Rejected
from ledger.domain.facts import Facts, Organisation, SigningKey
from ledger.domain.key_terms import KeyTerms, key_refusal
from ledger.domain.outcomes import Code
from ledger.domain.roles import AUDITOR, SRO, TDC, TDP, TSO
from ledger.wire.field_types import KeyBytes, Name, distinct, text
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

KEYS_MAX: Final = 16
"""Keys of one organisation that are not revoked and not retired, and keys that one command names."""
RUNS_NAMED_MAX: Final = 100
"""Pending runs that one entry names; it counts all of them."""
KEY_ROLES: Final = (SRO, TSO, TDP, TDC, AUDITOR)
"""The roles whose organisations sign commands."""
Possession = Annotated[str, text(detached_jws.SIGNATURE_BYTES_MAX)]
"""A detached JWS by the new key itself over its intended use."""
KeyIds = Annotated[tuple[KeyBytes, ...], distinct(KEYS_MAX)]


class TouchedRuns(Record, frozen=True):
    """The pending runs that a stolen key may have begun or agreed to, as the entry records them.

    Attributes:
        pending: how many there are.
        runs: the first of them, in the order of their entries.
        withheld: those among ``runs`` whose data keys are not released yet, and now never will be.
    """

    pending: int
    runs: Annotated[tuple[Name, ...], distinct(RUNS_NAMED_MAX, 0)]
    withheld: Annotated[tuple[Name, ...], distinct(RUNS_NAMED_MAX, 0)]


def check_signing_key(key: SignerKey) -> None:
    """Reject a sealing key, and a key that anyone could use. Raises: Malformed."""
    if isinstance(key, PublicKey):
        check_key(key, "Ed25519", "key")


def require_new_key(facts: Facts, key: SignerKey, possession: str, claim: bytes) -> None:
    """Check that a key is not in use, and that its holder agrees to this use. Raises: Rejected."""
    if key.thumbprint in facts.keys:
        raise Rejected(Code.CONFLICT, "this key is registered already", "body.key")
    try:
        detached_jws.verify(possession, claim, key)
    except Malformed as error:
        raise Rejected(Code.SIGNATURE_INVALID, f"possession of the key: {error}", "body.possession") from None


def terms_of(facts: Facts, key: SigningKey) -> KeyTerms:
    """The terms of a key; by default in force from its entry on, if no command on keys has named it."""
    terms = facts.key_terms.get(key.key_id)
    return terms or KeyTerms(key.key_id, key.owner, 0, None, None, None, key.index)


def require_key_in_force(facts: Facts, key_id: str, now: int, *, ends_suspension: bool = False) -> None:
    """Check that a key's signatures count at a time (ms), those of the log's key that end its suspension too.

    Raises:
        Rejected: if they do not.
    """
    terms = facts.key_terms.get(key_id)
    if ends_suspension and terms is not None and terms.revoked is None and terms.suspended_by == LEDGER_ACTOR:
        return
    if refusal := key_refusal(facts, key_id, now):
        raise Rejected(Code.SIGNATURE_INVALID, refusal, "key_id")


def keys_in_force(facts: Facts, did: str, now: int) -> list[str]:
    """The ids of an organisation's keys whose signatures count at a time (ms)."""
    return [key.key_id for key in facts.keys_of(did) if not terms_of(facts, key).refusal(now)]


def require_room(facts: Facts, did: str, now: int) -> None:
    """Check that an organisation may have one more key. Raises: Rejected."""
    all_terms = (terms_of(facts, key) for key in facts.keys_of(did))
    live = [terms for terms in all_terms if terms.revoked is None and (terms.until is None or now < terms.until)]
    if len(live) >= KEYS_MAX:
        raise Rejected(Code.CONFLICT, f"{did} has {KEYS_MAX} keys: revoke one, or wait for one to retire", "body.key")


def require_authority(context: Context[Any], owner: str, field: str) -> None:
    """Check that the sender may act on an organisation's keys: its own, or as an SRO. Raises: Rejected."""
    actor = context.require_role()
    if owner != actor.did and not governs(context.facts, actor, context.organisation(owner, field)):
        detail = f"only {owner} acts on its keys: an SRO acts on keys of organisations that are no SRO and recover none"
        raise Rejected(Code.NOT_AUTHORISED, detail, "actor")


def governs(facts: Facts, actor: Organisation, owner: Organisation) -> bool:
    """Whether an organisation acts on another one's keys: an SRO does, except on those of SROs and of their quorums.

    So a thief of an SRO's key can neither replace nor stop the organisations that would recover it: the quorum of the
    SRO, and the quorums of its members. A quorum that another organisation names exempts no one from the SRO.
    """
    return SRO in actor.roles and not _may_recover_an_sro(facts, owner.did)


def _may_recover_an_sro(facts: Facts, did: str) -> bool:
    """Whether an organisation is an SRO, or in the quorum of one, directly or through other quorums."""
    recovers: dict[str, list[str]] = {}
    for quorum in facts.recovery_quorums.values():
        for member in quorum.members:
            recovers.setdefault(member, []).append(quorum.organisation)
    reached = [did]
    for current in reached:
        reached += [other for other in recovers.pop(current, ()) if other not in reached]
    return any(SRO in facts.organisations[organisation].roles for organisation in reached)


def named_keys(context: Context[Any], key_ids: Iterable[str]) -> list[SigningKey]:
    """The organisations' keys that a body names, on which the sender may act. Raises: Rejected."""
    keys = []
    for place, key_id in enumerate(key_ids):
        field = f"keys[{place}]"
        key = context.facts.keys.get(key_id)
        if key is None or key.charge is not None:
            raise Rejected(Code.NOT_FOUND, f"no organisation has registered the key {key_id}", f"body.{field}")
        require_authority(context, key.owner, field)
        if terms_of(context.facts, key).revoked is not None:
            raise Rejected(Code.CONFLICT, f"the key {key_id} is revoked already", f"body.{field}")
        keys.append(key)
    return keys


def touched_runs(facts: Facts, owners: Iterable[str]) -> TouchedRuns:
    """The pending runs of organisations: those that they charged, and those on the data that they provide."""
    whose = set(owners)
    runs = sorted(
        (
            charge
            for charge in facts.pending_charges()
            if charge.actor in whose or not whose.isdisjoint(facts.contracts[charge.contract].providers)
        ),
        key=lambda run: run.index,
    )
    listed = runs[:RUNS_NAMED_MAX]
    withheld = (charge.id for charge in listed if charge.key_release is None and charge.actor in whose)
    return TouchedRuns(len(runs), tuple(charge.id for charge in listed), tuple(withheld))


def revoked_since(facts: Facts, did: str, index: int) -> str:
    """A key of an organisation that existed before the entry at ``index`` and was revoked after it; empty if none."""
    for terms in facts.key_terms.values():
        revoked = terms.revoked if terms.owner == did else None
        if revoked is not None and revoked > index > facts.keys[terms.key_id].index:
            return terms.key_id
    return ""


def add_key(change: Change[Any], did: str, key: SignerKey, starts: int) -> None:
    """Add an entry's new key to its organisation."""
    state, index, name = change.state, change.index, key.thumbprint
    state.keys[name] = SigningKey(name, did, key.x, None, index)
    state.key_terms[name] = KeyTerms(name, did, starts, None, None, None, index)


def revoke_key(change: Change[Any], key_id: str) -> None:
    """Revoke a key from an entry on."""
    state = change.state
    terms = terms_of(state, state.keys[key_id])
    if terms.revoked is None:
        state.key_terms[key_id] = terms._replace(revoked=change.index)
