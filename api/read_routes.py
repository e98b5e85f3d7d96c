"""Routes that read: what stands, on one snapshot per request. Whoever reaches the port may read it all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response

from api import views
from api.command_routes import json_response
from api.problems import Problem, declared
from client.paths import JSON_TYPE
from ledger import canonical as c
from ledger.commands import parse_ref
from ledger.malformed import Malformed
from ledger.outcomes import Code

if TYPE_CHECKING:
    from ledger.book import Book
    from ledger.verifier import LogKey

T = TypeVar("T")

_INDEX: Final = re.compile(r"(0|[1-9][0-9]{0,15})\Z")
_MISSING: Final = declared(404, 422)


def read_router(book: Book, log: LogKey) -> APIRouter:
    """GET routes."""
    router = APIRouter(tags=["reads"])
    _add_log(router, book, log)
    _add_accounts(router, book)
    _add_charges(router, book)
    return router


def _add_log(router: APIRouter, book: Book, log: LogKey) -> None:
    @router.get("/v1/log", operation_id="read_log", responses=declared())
    def read_log() -> Response:
        return json_response({"origin": log.origin, "vkey": log.vkey})

    @router.get(
        "/v1/checkpoint",
        operation_id="read_checkpoint",
        responses=declared(),
        response_class=PlainTextResponse,
    )
    def read_checkpoint() -> Response:
        with book.read() as facts:
            if not facts.size:
                raise Problem(Code.NOT_FOUND, "the log is empty")
            return _text(facts.checkpoint)

    @router.get("/v1/entries/{index}", operation_id="read_entry", responses=_MISSING)
    def read_entry(index: str) -> Response:
        if not _INDEX.match(index):
            raise Malformed("index", "must be an integer without leading zeros")
        with book.read() as facts:
            if int(index) >= facts.size:
                raise Problem(Code.NOT_FOUND, f"the log has no entry {index}", field="index")
            data = facts.entry(int(index))
        # These very bytes are hashed into the tree, so they are sent as they are stored.
        return Response(data, media_type=JSON_TYPE, headers={"cache-control": "public, immutable, max-age=31536000"})

    @router.get("/v1/receipts/{id}", operation_id="read_receipt", responses=_MISSING, response_class=PlainTextResponse)
    def read_receipt(id: str) -> Response:  # noqa: A002 - the wire's name
        with book.read() as facts:
            index = facts.entry_index(c.name(id, "id"))
            if index is None:
                raise Problem(Code.NOT_FOUND, f"no entry has the id {id}", field="id", id=id)
            return _text(facts.receipt(index))


def _add_accounts(router: APIRouter, book: Book) -> None:
    @router.get("/v1/partitions", operation_id="list_partitions", responses=declared())
    def list_partitions() -> Response:
        with book.read() as facts:
            return json_response({"partitions": [*sorted(facts.partitions)]})

    @router.get("/v1/partitions/{ref:path}", operation_id="read_partition", responses=_MISSING)
    def read_partition(ref: str) -> Response:
        with book.read() as facts:
            return json_response(views.partition(_found(facts.partitions, parse_ref(ref, "ref"), "partition")))

    @router.get("/v1/accounts", operation_id="read_accounts", responses=_MISSING)
    def read_accounts(partition: str) -> Response:
        with book.read() as facts:
            found = _found(facts.partitions, parse_ref(partition, "partition"), "partition")
            return json_response(views.accounts(facts, found))


def _add_charges(router: APIRouter, book: Book) -> None:
    @router.get("/v1/charges/{id}", operation_id="read_charge", responses=_MISSING)
    def read_charge(id: str) -> Response:  # noqa: A002 - the wire's name
        with book.read() as facts:
            return json_response(views.charge(_found(facts.charges, c.name(id, "id"), "charge")))

    @router.get("/v1/contracts/{sha256}", operation_id="read_contract", responses=_MISSING)
    def read_contract(sha256: str) -> Response:
        with book.read() as facts:
            return json_response(views.contract(_found(facts.contracts, c.sha256(sha256, "sha256"), "contract")))


def _found(things: Mapping[str, T], name: str, what: str) -> T:
    thing = things.get(name)
    if thing is None:
        raise Problem(Code.NOT_FOUND, f"there is no {what} {name}")
    return thing


def _text(content: str) -> Response:
    return PlainTextResponse(content, headers={"cache-control": "no-store"})
