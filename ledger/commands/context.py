"""A pending command, the context in which it is decided, and the guards that several kinds of command share."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Generic, TypeVar

from msgspec import Struct

from ledger.accounts.pricing import COMPUTED, ComputedPrices
from ledger.commands.verdict_cache import VerdictCache
from ledger.crypto.public_keys import CleanRoomKeys
from ledger.domain.charge_record import Charge
from ledger.domain.command import Command
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Contract, Facts, Organisation, Partition
from ledger.domain.gate import Gate, Request, Verdict
from ledger.domain.outcomes import ChargeState, Code
from ledger.domain.roles import CCR, FIRST
from ledger.wire import canonical_json as c
from ledger.wire.records import Record

B_co = TypeVar("B_co", bound=Record, covariant=True)


# A struct is made in C in a fifth of the time that a named tuple takes, and one of these is made for every command.
class PendingCommand(Struct, frozen=True):
    """A received command.

    Attributes:
        verified_by: the ``x`` of a key that it is known to verify with.
        refused_by: the ``x`` of a key that it is known not to verify with, and why.
        prices: the numbers that were prepared for it; else they are computed while it is decided.
        request: the canonical bytes of its body, if they are known.
        nonce_once: whether it is not recorded if an entry holds its nonce.
    """

    command: Command
    body: Record
    raw: bytes
    signature: str
    verified_by: str = ""
    refused_by: tuple[str, str] = ("", "")
    prices: ComputedPrices = COMPUTED
    request: bytes = b""
    nonce_once: bool = False


class Context(Struct, Generic[B_co], frozen=True):
    """One command and the inputs of its decision: the facts, the time (ms) and index of its entry, and the gate.

    Attributes:
        kept: the cache of the gate's verdicts; None where the gate is called for each command.
    """

    facts: Facts
    command: Command
    body: B_co
    prices: ComputedPrices
    roles: tuple[str, ...]
    now: int
    index: int
    gate: Gate
    kept: VerdictCache[Any] | None = None

    def require_role(self) -> Organisation:
        """The organisation that sent the command, in a permitted role and by a key of its own. Raises: Rejected."""
        command = self.command
        organisation = self.facts.organisations.get(command.actor)
        key = self.facts.keys.get(command.key_id)
        if organisation is None or (key is not None and key.charge is not None):
            raise Rejected(Code.NOT_AUTHORISED, f"{command.kind} is not for a clean room's key", "key_id")
        # A clean room is identified by its key, and an unregistered organisation has no role.
        roles = [role for role in self.roles if role not in {CCR, FIRST}]
        if not set(roles) & set(organisation.roles):
            raise Rejected(Code.NOT_AUTHORISED, f"{command.kind} is for the role {' or '.join(roles)}", "actor")
        return organisation

    def require_permit(self, signers: tuple[str, ...] = (), epsilon: tuple[tuple[str, Fraction], ...] = ()) -> Verdict:
        """The gate's verdict, if it permits. Raises: Rejected, with every check."""
        verdict = self.gate(Request(self.command, self.body, self.now, signers, epsilon), self.facts)
        failed = [check for check in verdict.checks if not check.passed]
        if verdict.permit and not failed:
            return verdict
        # A rejection records every check; a permit's checks can be recomputed from the facts.
        checks: c.Object = {"checks": [check.to_json() for check in verdict.checks]}
        detail = "; ".join(check.text for check in failed) or "the gate gave no reason"
        missing = "; ".join(check.text for check in failed if check.code == "signature_missing")
        if missing:
            raise Rejected(Code.SIGNATURE_MISSING, missing, "body.signatures", checks)
        if any(check.code == "document_malformed" for check in failed):
            raise Rejected(Code.MALFORMED, detail, "body.document", checks)
        raise Rejected(Code.POLICY_DENIED, detail, "", checks)

    def permit(self, recorded: Record | None = None, code: Code = Code.PERMITTED) -> Decision:
        """The decision that all guards hold, if the gate permits; ``recorded`` goes to the entry. Raises: Rejected."""
        self.require_permit()
        return Decision(code, derived={} if recorded is None else recorded.to_json())

    def permit_equal(self, code: Code) -> Decision:
        """As :meth:`permit`, for a verdict that is the same for every run of the actor: by the cached one, if any.

        Raises:
            Rejected: if the gate does not permit.
            AssertionError: if a sampled full decision denies what a cached permit permits.
        """
        cache, key = self.kept, (self.command.kind, self.command.actor)
        cached: Verdict | None = None if cache is None else cache.get(key)
        holds = cached is not None and cached.until is not None and self.now < cached.until
        if cache is None or not holds or cache.is_sampled():
            try:
                verdict = self.require_permit()
            except Rejected:
                assert not holds, f"{self.command.kind} {self.command.id} has a cached permit, and none in full"
                raise
            if cache is not None and verdict.until is not None:
                cache.keep(key, verdict)
        return Decision(code)

    def organisation(self, did: str, field: str) -> Organisation:
        """A registered organisation that the body names. Raises: Rejected."""
        organisation = self.facts.organisations.get(did)
        if organisation is None:
            raise Rejected(Code.NOT_FOUND, f"{did} is not registered", f"body.{field}")
        return organisation

    def organisations(self, dids: Iterable[str], field: str) -> list[Organisation]:
        """Several of them. Raises: Rejected."""
        return [self.organisation(did, f"{field}[{place}]") for place, did in enumerate(dids)]

    def partition(self, ref: str, field: str = "partition") -> Partition:
        """A partition that the body names. Raises: Rejected."""
        partition = self.facts.partitions.get(ref)
        if partition is None:
            raise Rejected(Code.NOT_FOUND, f"there is no partition {ref}", f"body.{field}")
        return partition

    def contract(self, document: str) -> Contract:
        """A contract that the body names by its document's digest. Raises: Rejected."""
        contract = self.facts.contracts.get(document)
        if contract is None:
            raise Rejected(Code.NOT_FOUND, f"there is no contract {document}", "body.contract")
        return contract

    def charge(self, name: str, field: str = "charge") -> Charge:
        """A charge that the body names. Raises: Rejected."""
        charge = self.facts.charges.get(name)
        if charge is None:
            raise Rejected(Code.NOT_FOUND, f"there is no charge {name}", f"body.{field}")
        return charge

    def require_clean_room(self, charge: Charge) -> None:
        """Check that the clean room of a charge sent the command. Raises: Rejected."""
        if self.command.key_id != charge.key_id:
            detail = f"only the clean room of charge {charge.id} may request this"
            raise Rejected(Code.NOT_AUTHORISED, detail, "key_id")

    def require_new_clean_room(self, keys: CleanRoomKeys, use: str) -> None:
        """Check that a clean room's signing key is not in use. Raises: Rejected."""
        if keys.signing.thumbprint in self.facts.keys:
            detail = f"the clean room's signing key is in use: one clean room, one {use}"
            raise Rejected(Code.CONFLICT, detail, "body.clean_room.signing")

    def require_evidence(self, digest: str) -> None:
        """Check that an attestation is stored. Raises: Rejected."""
        if digest not in self.facts.documents:
            raise Rejected(Code.NOT_FOUND, f"no evidence {digest} was stored", "body.evidence")


def require_pending(charge: Charge) -> None:
    """Check that a charge is not settled. Raises: Rejected."""
    if charge.state is not ChargeState.PENDING:
        raise Rejected(Code.CONFLICT, f"charge {charge.id} is {charge.state} already", "body.charge")


def require_model(charge: Charge, model: str) -> None:
    """Check that a model is the one that the post of a run names, if it must name one. Raises: Rejected.

    A run of no steps has no model.
    """
    unnamed = charge.model is None and charge.leases is None and charge.steps_posted != 0
    if unnamed or model == charge.model:
        return
    stated = "none" if charge.model is None else charge.model
    raise Rejected(Code.CONFLICT, f"the model of charge {charge.id} is {stated}, by its post", "body.model")


def require_post(charge: Charge, post: str | None) -> None:
    """Check that the post of a run is named. Raises: Rejected."""
    if post is None or post != charge.post:
        raise Rejected(Code.CONFLICT, f"the post of charge {charge.id} is {charge.post or 'none'}", "body.post")


def require_posted(charge: Charge, reason: str = "its run was not posted") -> None:
    """Check that what ran was posted after a key release. Raises: Rejected."""
    if charge.state is not ChargeState.POSTED or charge.key_release is None:
        raise Rejected(Code.CONFLICT, f"charge {charge.id} is {charge.state}: {reason}", "body.charge")
