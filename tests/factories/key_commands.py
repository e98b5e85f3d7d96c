"""Commands on signing keys, as the tests send them: each part right, and each a part that a test makes wrong."""

from __future__ import annotations

from client.keys.signer import Signer
from client.service.key_bodies import recovery, rotation
from ledger.book.submitted_command import Outcome
from ledger.commands.signing_keys.recovery import NameQuorum, RecoveryClaim
from ledger.wire import canonical_json as c
from ledger.wire.records import write
from tests.factories.people import BANK_A, DAY_MS, SRO, private_key
from tests.factories.world import World


def new_signer(name: str) -> Signer:
    """The signer of a new key of this name."""
    return Signer(private_key(f"new key {name}"))


def rotate(  # noqa: PLR0913 - what is right about it, each of which a test makes wrong
    world: World,
    new: Signer,
    *,
    did: str = BANK_A,
    old: Signer | None = None,
    until: int | None = None,
    starts: int | None = None,
    holder: Signer | None = None,
    name: str = "rotation",
    by: Signer | None = None,
) -> Outcome:
    """A new key for an organisation, which retires the old one in a day; ``holder`` signs that it has the key."""
    old = old or world.signers[did]
    body = rotation(did, old.key_id, new, world.clock.now + DAY_MS if until is None else until, starts)
    if holder is not None:
        body["possession"] = rotation(did, old.key_id, holder, 0)["possession"]
    return world.send(did, "key_rotation", body, name, by or old)


def revoke(world: World, *keys: Signer, actor: str = BANK_A, by: Signer | None = None, name: str = "stolen") -> Outcome:
    """These keys are revoked."""
    body: c.Object = {"keys": [one.key_id for one in keys], "reason": "a laptop was stolen"}
    return world.send(actor, "key_revocation", body, name, by)


def suspend(
    world: World, *keys: Signer, actor: str = BANK_A, by: Signer | None = None, on: bool = True, name: str = "doubt"
) -> Outcome:
    """These keys are suspended, or resumed."""
    body: c.Object = {"keys": [one.key_id for one in keys], "reason": "a laptop is missing", "suspended": on}
    return world.send(actor, "key_suspension", body, name, by)


def name_quorum(  # noqa: PLR0913 - as above
    world: World,
    *members: str,
    threshold: int = 2,
    actor: str = SRO,
    signed_by: tuple[str, ...] = (),
    name: str = "q",
    extends: bool = False,
) -> Outcome:
    """An organisation names its quorum; the one that stands has signed by these members."""
    body: c.Object = {"members": [*members], "threshold": threshold}
    body |= {"extends_to_registered": True} if extends else {}
    claim = NameQuorum(members, threshold, (), True if extends else None).claim(actor, name)
    signed: c.Object = {"signatures": [world.signers[one].sign(claim) for one in signed_by]} if signed_by else {}
    return world.send(actor, "recovery_quorum", {**body, **signed}, name)


def recover(  # noqa: PLR0913 - as above
    world: World,
    new: Signer,
    *signed_by: str,
    did: str = SRO,
    actor: str = BANK_A,
    name: str = "recovery",
    claimed: str = "",
    by: Signer | None = None,
    since: int | None = None,
    signed_since: int | None = None,
) -> Outcome:
    """A new key for an organisation whose key was lost, signed by these members of its quorum."""
    body, reason = recovery(did, new, "the key was lost", name, since), "the key was lost"
    members_since = since if signed_since is None else signed_since
    claim = write(RecoveryClaim(claimed or name, did, new.public, reason, members_since))
    signed: c.Object = {"signatures": [world.signers[one].sign(claim) for one in signed_by]} if signed_by else {}
    return world.send(actor, "key_recovery", {**body, **signed}, name, by)
