"""Contracts that a party has proposed and not all have signed: what waits for whose signature.

They decide nothing: until an entry records the contract, no run is charged under it.
"""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from api.auth.authorisation import Caller
from api.http.field_types import Count, Digest, Time
from api.routes.proposal_search import Proposed
from api.routes.proposed_contracts import OPEN_MS
from api.routes.read_routes import ReadRoutes, View
from client.http.endpoints import PROPOSALS
from ledger.domain.facts import Contract
from ledger.store.snapshot import Snapshot
from ledger.wire.field_types import Did, Name
from ledger.wire.records import Record

ROUTES: Final = ReadRoutes("documents")
LISTED_MAX: Final = 100
"""Proposals of one answer."""


class ProposalSignature(Record, frozen=True):
    """A party's signature, stored as a document."""

    organisation: Did
    signature: Digest
    time: Time


class ContractProposal(Record, frozen=True):
    """A contract that is not entered: a party has proposed it, and others are to sign.

    Attributes:
        expires: when its last signature leaves the list.
        unsigned: the organisations that must sign and have not.
    """

    consumer: Did
    document: Digest
    ends: Time
    expires: Time
    id: Name
    providers: tuple[Did, ...]
    signed: tuple[ProposalSignature, ...]
    starts: Time
    unsigned: tuple[Did, ...]
    version: Count


class ContractProposals(Record, frozen=True):
    """The open proposals of the contracts that name the caller, the newest signature first."""

    complete: Annotated[bool, Meta(description="whether there are no more than these")]
    items: tuple[ContractProposal, ...]


@ROUTES.route(PROPOSALS, (401, 403))
def list_contract_proposals(view: View) -> ContractProposals:
    """The contracts that name the caller, are proposed, and are not entered."""
    facts = view.facts
    assert isinstance(facts, Snapshot)
    found = open_proposals(facts, view.caller, view.context.proposals.all(facts), view.time)
    return ContractProposals(complete=len(found) <= LISTED_MAX, items=tuple(found[:LISTED_MAX]))


def open_proposals(facts: Snapshot, caller: Caller, proposed: tuple[Proposed, ...], now: int) -> list[ContractProposal]:
    """The proposals that a caller may see: those that it must sign, or has signed."""
    by_document: dict[str, list[Proposed]] = {}
    for one in proposed:
        if caller.organisation in one.terms.signers and not caller.charge:
            by_document.setdefault(one.document, []).append(one)
    facts.contracts.fetch_keys([*by_document])
    facts.contract_heads.fetch_keys([*{signed[0].terms.id for signed in by_document.values()}])
    shown = (_shown(facts, caller, signed, now) for signed in by_document.values())
    return [one for one in shown if one is not None]


def _shown(facts: Snapshot, caller: Caller, signed: list[Proposed], now: int) -> ContractProposal | None:
    """One proposal; None once it is entered, over, or not the next version of what the caller sees."""
    name, terms = signed[0].document, signed[0].terms
    head = _head(facts, caller, terms.id)
    if name in facts.contracts or now >= terms.ends or (head is not None and head.version >= terms.version):
        return None
    # All parties of a version sign the next one. Who sees no earlier version learns of no party of it.
    earlier = () if head is None else (*head.providers, head.consumer)
    signers = dict.fromkeys((*terms.signers, *earlier))
    have = {one.organisation for one in signed}
    return ContractProposal(
        consumer=terms.consumer,
        document=name,
        ends=terms.ends,
        expires=min(terms.ends, max(one.time for one in signed) + OPEN_MS),
        id=terms.id,
        providers=terms.providers,
        signed=tuple(
            ProposalSignature(organisation=one.organisation, signature=one.signature, time=one.time) for one in signed
        ),
        starts=terms.starts,
        unsigned=tuple(did for did in signers if did not in have),
        version=terms.version,
    )


def _head(facts: Snapshot, caller: Caller, name: str) -> Contract | None:
    """The newest version of a contract, if the caller may see it."""
    found = facts.contracts.get(facts.contract_heads.get(name, ""))
    return found if found is not None and caller.sees_contract(found, facts) else None
