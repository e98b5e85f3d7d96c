"""A pending command, its decision, and the guards that every kind of command shares."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ledger.domain.commands import Body, Command, read_body
from ledger.domain.facts import Facts, Organisation
from ledger.domain.gate import Gate, Request, Verdict
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c

if TYPE_CHECKING:
    from ledger.transitions.pricing import ComputedPrices


@dataclass(frozen=True, slots=True)
class PendingCommand:
    """A command as it came in.

    Attributes:
        verified_by: the ``x`` of a key that it was already seen to verify with.
        prices: the numbers that were computed for it beforehand; None if they are computed while it is decided.
    """

    command: Command
    body: Body
    raw: bytes
    signature: str
    verified_by: str = ""
    prices: ComputedPrices | None = None

    @classmethod
    def read(cls, raw: bytes, signature: str) -> PendingCommand:
        """Read a command from its bytes. Raises: Malformed."""
        command = Command.parse(raw)
        return cls(command, read_body(command), raw, signature)


@dataclass(frozen=True, slots=True)
class Decision:
    """An outcome before it is an entry; ``derived`` is what the entry's body adds to the request."""

    code: Code
    detail: str = ""
    field: str = ""
    derived: c.Object = dataclasses.field(default_factory=dict)


class Rejected(Exception):  # noqa: N818 - a refusal is a value; it travels up one ladder and ends in a Decision
    """One guard that did not hold."""

    def __init__(self, code: Code, detail: str, where: str = "", derived: c.Object | None = None) -> None:
        """The decision that this refusal gives."""
        super().__init__(detail)
        self.decided = Decision(code, detail, where, derived or {})


def require_role(facts: Facts, pending: PendingCommand, *roles: str) -> Organisation:
    """The organisation that asks, in one of these roles and by a key of its own. Raises: Rejected."""
    command = pending.command
    organisation = facts.organisations.get(command.actor)
    key = facts.keys.get(command.key_id)
    if organisation is None or (key is not None and key.charge is not None):
        raise Rejected(Code.NOT_AUTHORISED, f"{command.kind} is not for a clean room's key", "key_id")
    if not set(roles) & set(organisation.roles):
        raise Rejected(Code.NOT_AUTHORISED, f"{command.kind} is for the role {' or '.join(roles)}", "actor")
    return organisation


def require_permit(gate: Gate, request: Request, facts: Facts) -> Verdict:
    """The gate's verdict, if it permits. Raises: Rejected, with every check."""
    verdict = gate(request, facts)
    failed = [check for check in verdict.checks if not check.passed]
    if verdict.permit and not failed:
        return verdict
    detail = "; ".join(check.text for check in failed) or "the gate gave no reason"
    if any(check.code == "signature_missing" for check in failed):
        missing = "; ".join(check.text for check in failed if check.code == "signature_missing")
        raise Rejected(Code.SIGNATURE_MISSING, missing, "body.signatures", checks(verdict))
    if any(check.code == "document_malformed" for check in failed):
        raise Rejected(Code.MALFORMED, detail, "body.document", checks(verdict))
    raise Rejected(Code.POLICY_DENIED, detail, "", checks(verdict))


def checks(verdict: Verdict) -> c.Object:
    """Every check of a verdict, as a refusal records them; a permit's can be replayed from the facts."""
    return {"checks": [check.to_json() for check in verdict.checks]}
