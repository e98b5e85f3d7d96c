"""PUT /v1/contract-proposals/{sha256}: a contract that a party signs, for the other parties to see and sign."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from api.auth.authentication import Calling
from api.auth.authorisation import Caller
from api.auth.caller_quotas import CallerLimits
from api.auth.signed_request import Binding
from api.auth.stored_documents import storer_of
from api.http.body import SIGNATURE_PARAMETER, Document, Signature
from api.http.field_types import PathDigest
from api.http.problems import Problem, ServiceCode
from api.routes.overviews.contract_proposals import ContractProposal, open_proposals
from api.routes.proposal_search import OPEN_MAX, Proposed, Terms
from api.routes.proposed_contracts import next_notice, notice
from api.routes.read_routes import ReadContext
from api.wire.responses import BINARY, json_response, shows, takes
from client.http.endpoints import BYTES_TYPE, PROPOSALS
from ledger.crypto import detached_jws
from ledger.domain.gate import DOCUMENT_BYTES_MAX
from ledger.domain.outcomes import Code
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.documents import ContractDocument

_PROBLEMS: Final = (401, 403, 408, 409, 413, 422, 429)


def proposal_router(context: ReadContext, binding: Binding, limits: CallerLimits) -> APIRouter:
    """PUT /v1/contract-proposals/{sha256}: contract and signature are stored as documents; nothing is decided."""
    router, book = APIRouter(), context.snapshots.book

    @router.put(
        f"{PROPOSALS}/{{sha256}}",
        operation_id="propose_contract",
        tags=["documents"],
        responses=shows(ContractProposal, *_PROBLEMS, description="Proposed, now or before"),
        openapi_extra=takes(BINARY, BYTES_TYPE, [SIGNATURE_PARAMETER]),
    )
    @limits.quotas.in_turn
    def put(sha256: PathDigest, raw: Document, jws: Signature, caller: Calling) -> Response:
        if c.sha256(sha256, "sha256") != c.digest(raw):
            raise Malformed("sha256", "is not the SHA-256 digest of the body")
        if len(raw) > DOCUMENT_BYTES_MAX:
            raise Problem(ServiceCode.TOO_LARGE, f"the body has more than the {DOCUMENT_BYTES_MAX} bytes allowed")
        binding.check(jws, "PUT", f"{PROPOSALS}/{sha256}", sha256)
        limits.quotas.check_pricing(caller)
        with limits.signatures.counted(caller), book.read() as facts:
            caller.check_actor(binding.registered_key(facts, jws, raw).owner)
        # A document is as slow to read as its sender makes it.
        with limits.quotas.metered(caller):
            contract = ContractDocument.parse(raw)
        if caller.organisation not in contract.signers:
            raise Problem(Code.NOT_AUTHORISED, f"{caller.organisation} is none of those who sign this contract")
        with book.read() as facts:
            known = _own(context, facts, caller)
            if sha256 not in known:
                _check_open(context.snapshots.time(facts), contract, known)
        if sha256 not in known:
            _store(context, caller, raw, jws, Terms.of(contract))
        with book.read() as facts:
            answer = _own(context, facts, caller).get(sha256)
        if answer is None:
            raise Problem(Code.CONFLICT, "this version of the contract, or a later one, is entered")
        return json_response(answer)

    return router


def _own(context: ReadContext, facts: Snapshot, caller: Caller) -> dict[str, ContractProposal]:
    """The open proposals that the caller has signed, by the contract's digest."""
    found = open_proposals(facts, caller, context.proposals.all(facts), context.snapshots.time(facts))
    return {one.document: one for one in found if caller.organisation in {each.organisation for each in one.signed}}


def _check_open(now: int, contract: ContractDocument, known: dict[str, ContractProposal]) -> None:
    """Hold a new proposal to its own end and to the number of open ones. Raises: Malformed, Problem."""
    if contract.ends <= now:
        raise Malformed("ends", "is past")
    if len(known) >= OPEN_MAX:
        raise Problem(ServiceCode.TOO_MANY, f"{OPEN_MAX} contracts are proposed, and neither entered nor expired")


def _store(context: ReadContext, caller: Caller, raw: bytes, jws: str, terms: Terms) -> None:
    """Store the contract and the verified signature, and the notice by which other processes find them."""
    call = detached_jws.call_of(jws)
    assert call is not None
    book = context.snapshots.book
    with book.read() as facts:
        storer = storer_of(caller, facts)
    document, signature = (book.put_document(data, storer) for data in (raw, jws.encode("ascii")))
    with book.read() as facts:
        number = next_notice(facts)
    book.put_document(notice(number), storer)
    context.proposals.add(Proposed(document, caller.organisation, signature, call.time_s * 1000, terms))
