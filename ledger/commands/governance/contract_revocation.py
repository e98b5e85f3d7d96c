"""Any TDP of a contract ends its newest version; pending charges settle as usual."""

from __future__ import annotations

from typing import Final

from ledger.commands.command_kind import Change, CommandKind
from ledger.commands.context import Context
from ledger.domain.decision import Decision, Rejected
from ledger.domain.outcomes import Code
from ledger.domain.roles import TDP
from ledger.wire.field_types import Sha256
from ledger.wire.records import Record


class Revoke(Record, frozen=True):
    """A TDP ends a contract, known by its document's digest: nothing new is admitted or released under it."""

    contract: Sha256


def decide(context: Context[Revoke]) -> Decision:
    """Decide a revocation."""
    contract = context.contract(context.body.contract)
    if contract.revoked:
        detail = f"version {contract.version} of {contract.id} is revoked already"
        raise Rejected(Code.CONFLICT, detail, "body.contract")
    return context.permit()


def apply(change: Change[Revoke]) -> None:
    """Mark the contract as revoked."""
    document = change.body.contract
    change.state.contracts[document] = change.state.contracts[document]._replace(revoked=True)


REVOCATION: Final = CommandKind("revocation", Revoke, decide, (TDP,), "/v1/revocations", apply, changes_prices=True)
