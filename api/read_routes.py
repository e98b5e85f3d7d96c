"""Routes that read: what stands, on one snapshot per request, as far as the caller may see it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response

from api import views
from api.access import Caller, sees_entry
from api.command_routes import json_response
from api.identity import Calling
from api.problems import Problem, declared
from client.paths import JSON_TYPE
from ledger import canonical as c
from ledger.commands import parse_ref
from ledger.entries import Entry
from ledger.malformed import Malformed
from ledger.outcomes import Code
from ledger.registry import Facts, Partition

if TYPE_CHECKING:
    from ledger.book import Book
    from ledger.verifier import LogKey

T = TypeVar("T")

_INDEX: Final = re.compile(r"(0|[1-9][0-9]{0,15})\Z")
_MISSING: Final = declared(401, 403, 404, 422)


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
    def read_entry(index: str, caller: Calling) -> Response:
        if not _INDEX.match(index):
            raise Malformed("index", "must be an integer without leading zeros")
        with book.read() as facts:
            data = facts.entry(int(index)) if int(index) < facts.size else None
            if data is None or not sees_entry(caller, Entry.parse(data), facts):
                raise Problem(Code.NOT_FOUND, f"the log has no entry {index}", field="index")
        # These very bytes are hashed into the tree, so they are sent as they are stored.
        return Response(data, media_type=JSON_TYPE, headers={"cache-control": "public, immutable, max-age=31536000"})

    @router.get("/v1/receipts/{id}", operation_id="read_receipt", responses=_MISSING, response_class=PlainTextResponse)
    def read_receipt(id: str, caller: Calling) -> Response:  # noqa: A002 - the wire's name
        with book.read() as facts:
            index = facts.entry_index(c.name(id, "id"))
            if index is None or not sees_entry(caller, Entry.parse(facts.entry(index)), facts):
                raise Problem(Code.NOT_FOUND, f"no entry has the id {id}", field="id", id=id)
            return _text(facts.receipt(index))


def _add_accounts(router: APIRouter, book: Book) -> None:
    @router.get("/v1/partitions", operation_id="list_partitions", responses=declared(401, 403))
    def list_partitions(caller: Calling) -> Response:
        with book.read() as facts:
            seen = [one.ref for one in facts.partitions.values() if caller.sees_partition(one, facts)]
            return json_response({"partitions": [*sorted(seen)]})

    @router.get("/v1/partitions/{ref:path}", operation_id="read_partition", responses=_MISSING)
    def read_partition(ref: str, caller: Calling) -> Response:
        with book.read() as facts:
            return json_response(views.partition(_partition(facts, ref, "ref", caller)))

    @router.get("/v1/accounts", operation_id="read_accounts", responses=_MISSING)
    def read_accounts(partition: str, caller: Calling) -> Response:
        with book.read() as facts:
            found = _partition(facts, partition, "partition", caller)
            return json_response(views.accounts(facts, found, caller))


def _add_charges(router: APIRouter, book: Book) -> None:
    @router.get("/v1/charges/{id}", operation_id="read_charge", responses=_MISSING)
    def read_charge(id: str, caller: Calling) -> Response:  # noqa: A002 - the wire's name
        with book.read() as facts:
            found = facts.charges.get(c.name(id, "id"))
            return json_response(views.charge(_seen(found, caller.sees_charge, facts, f"charge {id}")))

    @router.get("/v1/contracts/{sha256}", operation_id="read_contract", responses=_MISSING)
    def read_contract(sha256: str, caller: Calling) -> Response:
        with book.read() as facts:
            found = facts.contracts.get(c.sha256(sha256, "sha256"))
            return json_response(views.contract(_seen(found, caller.sees_contract, facts, f"contract {sha256}")))


def _partition(facts: Facts, ref: str, field: str, caller: Caller) -> Partition:
    found = facts.partitions.get(parse_ref(ref, field))
    return _seen(found, caller.sees_partition, facts, f"partition {ref}")


def _seen(found: T | None, sees: Callable[[T, Facts], bool], facts: Facts, what: str) -> T:
    """What the caller may see; else it does not exist. Raises: Problem."""
    if found is None or not sees(found, facts):
        raise Problem(Code.NOT_FOUND, f"there is no {what}")
    return found


def _text(content: str) -> Response:
    return PlainTextResponse(content, headers={"cache-control": "no-store"})
