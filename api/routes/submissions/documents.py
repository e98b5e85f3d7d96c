"""PUT /v1/documents/{sha256}: documents and signatures, stored beside the log."""

from __future__ import annotations

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
from api.routes.submissions.if_match import VERSIONED, tag_replaced
from api.wire.registry_answers import Stored
from api.wire.responses import BINARY, json_response, shows, takes
from client.http.endpoints import BYTES_TYPE, DOCUMENTS
from ledger.book.book import Book
from ledger.domain.gate import DOCUMENT_BYTES_MAX
from ledger.domain.roles import SRO
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed


def document_router(book: Book, binding: Binding, limits: CallerLimits) -> APIRouter:
    """PUT /v1/documents/{sha256}: bytes stored beside the log, signed by a registered key."""
    router = APIRouter()

    @router.put(
        f"{DOCUMENTS}/{{sha256}}",
        operation_id="put_document",
        tags=["documents"],
        responses=shows(Stored, 401, 403, 408, 413, 422, 429, description="Stored, now or before"),
        openapi_extra=takes(BINARY, BYTES_TYPE, [SIGNATURE_PARAMETER]),
    )
    @limits.quotas.in_turn
    def put(sha256: PathDigest, raw: Document, jws: Signature, caller: Calling) -> Response:
        if c.sha256(sha256, "sha256") != c.digest(raw):
            raise Malformed("sha256", "is not the SHA-256 digest of the body")
        _check_length(raw, caller)
        binding.check(jws, "PUT", f"{DOCUMENTS}/{sha256}", sha256)
        if not caller.charge:
            limits.quotas.check_pricing(caller)
        with limits.signatures.counted(caller), book.read() as facts:
            binding.registered_key(facts, jws, raw)
            storer = storer_of(caller, facts)
        document, signature = (book.put_document(data, storer) for data in (raw, jws.encode("ascii")))
        replaces = None if caller.charge else _replaced(book, limits, raw, caller)
        return json_response(Stored(document=document, replaces=replaces, signature=signature))

    return router


def _replaced(book: Book, limits: CallerLimits, document: bytes, caller: Caller) -> str | None:
    """The tag of what a policy or contract would replace. It is as slow to read as its sender makes it."""
    with limits.quotas.metered(caller), book.read() as facts:
        tags = (tag_replaced(facts, kind, document, caller) for kind in VERSIONED)
        return next((tag for tag in tags if tag is not None), None)


def _check_length(document: bytes, caller: Caller) -> None:
    """Only policies are longer than other documents, and only SROs make them. Raises: Problem."""
    if len(document) > DOCUMENT_BYTES_MAX and SRO not in caller.roles:
        detail = f"the body has more than the {DOCUMENT_BYTES_MAX} bytes allowed to organisations that are no SRO"
        raise Problem(ServiceCode.TOO_LARGE, detail)
