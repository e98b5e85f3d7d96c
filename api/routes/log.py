"""Routes that read the log: entries and their receipts, decisions, checkpoints, tiles and proofs."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import PlainTextResponse, Response

from api.auth.authentication import Calling
from api.auth.authorisation import Caller, sees_entry
from api.auth.visibility import not_found, visible_entry
from api.http.answers import Answer, Page
from api.http.etags import tagged_response
from api.http.field_types import Count, KeyBytes, PathBundle, PathName, PathPlace, PathTile
from api.http.pagination import Paging, scope_of
from api.http.problems import Problem
from api.wire.command_answers import LoggedEntry
from api.wire.decision_answers import Decision
from api.wire.responses import BINARY, BYTES_TYPE, json_response, shows, shows_tagged, shows_text
from client.http.endpoints import JSON_TYPE
from ledger.domain.commands import KINDS
from ledger.domain.entries import Entry
from ledger.domain.facts import Facts
from ledger.domain.outcomes import Code
from ledger.log.tiles import Tile
from ledger.store.cosignatures import cosigned_checkpoint, cosigned_receipt
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

if TYPE_CHECKING:
    from api.http.pagination import Cursors
    from api.http.snapshots import SnapshotProvider
    from ledger.verifier import LogKey

FOREVER: Final = "public, immutable, max-age=31536000"
_INDEX: Final = re.compile(r"(0|[1-9][0-9]{0,15})\Z")
_MISSING: Final = (401, 403, 404, 422)
_KINDS: Final = f"^({'|'.join(KINDS)})$"
_TILE: Final = "C2SP tlog-tiles"


class Log(Answer, frozen=True):
    """The log's name and public key; vkey is as C2SP signed-note writes it."""

    origin: str
    vkey: str


class ConsistencyProof(Answer, frozen=True):
    """A proof of RFC 9162, section 2.1.4, under the newest checkpoint."""

    checkpoint: str
    new: Count
    old: Count
    proof: tuple[KeyBytes, ...]


def log_router(snapshots: SnapshotProvider, cursors: Cursors, log: LogKey) -> APIRouter:
    """GET routes over the log."""
    router = APIRouter(tags=["log"])
    _add_checkpoints(router, snapshots, log)
    _add_tiles(router, snapshots)
    _add_entries(router, snapshots)
    _add_decisions(router, snapshots, cursors)
    return router


def _add_checkpoints(router: APIRouter, snapshots: SnapshotProvider, log: LogKey) -> None:
    @router.get("/v1/log", operation_id="read_log", responses=shows(Log))
    def read_log() -> Response:
        return json_response(Log.of(log))

    @router.get(
        "/v1/checkpoint",
        operation_id="read_checkpoint",
        responses=shows_text(404, description="A signed note (C2SP tlog-checkpoint)"),
        response_class=PlainTextResponse,
    )
    def read_checkpoint() -> Response:
        with snapshots.read() as facts:
            if not facts.size:
                raise Problem(Code.NOT_FOUND, "the log is empty")
            return _text(cosigned_checkpoint(facts.connection, facts.size))

    @router.get(
        "/v1/consistency/{old}",
        operation_id="read_consistency",
        responses=shows(ConsistencyProof, 404, 422),
    )
    def read_consistency(old: PathPlace) -> Response:
        size = _index(old, "old")
        with snapshots.read() as facts:
            if not 0 < size <= facts.size:
                raise not_found(f"checkpoint of {size} entries to be consistent with")
            proof = tuple(map(c.base64url, facts.consistency(size)))
            note = cosigned_checkpoint(facts.connection, facts.size)
            return json_response(ConsistencyProof(checkpoint=note, new=facts.size, old=size, proof=proof))


def _add_tiles(router: APIRouter, snapshots: SnapshotProvider) -> None:
    @router.get(
        "/tile/entries/{path:path}",
        operation_id="read_entry_bundle",
        response_class=Response,
        responses=shows(BINARY, *_MISSING, media_type=BYTES_TYPE, description=_TILE),
    )
    def read_entry_bundle(path: PathBundle) -> Response:
        return _tile(snapshots, f"tile/entries/{path}")

    @router.get(
        "/tile/{path:path}",
        operation_id="read_tile",
        response_class=Response,
        responses=shows(BINARY, 404, 422, media_type=BYTES_TYPE, description=_TILE),
    )
    def read_tile(path: PathTile) -> Response:
        return _tile(snapshots, f"tile/{path}")


def _tile(snapshots: SnapshotProvider, path: str) -> Response:
    tile = Tile.parse(path)
    with snapshots.read() as facts:
        try:
            data = facts.tile(tile)
        except KeyError:
            raise Problem(Code.NOT_FOUND, f"the log has nothing at {path}", field="path") from None
    return Response(data, media_type="application/octet-stream", headers={"cache-control": FOREVER})


def _add_entries(router: APIRouter, snapshots: SnapshotProvider) -> None:
    @router.get("/v1/entries/{index}", operation_id="read_entry", responses=shows(LoggedEntry, *_MISSING))
    def read_entry(index: PathPlace, caller: Calling) -> Response:
        place = _index(index, "index")
        with snapshots.read() as facts:
            data = facts.entry(place) if place < facts.size else None
            if data is None or not sees_entry(caller, Entry.parse(data), facts):
                raise Problem(Code.NOT_FOUND, f"the log has no entry {index}", field="index")
        # These very bytes are hashed into the tree, so they are sent as they are stored.
        return Response(data, media_type=JSON_TYPE, headers={"cache-control": FOREVER})

    @router.get(
        "/v1/receipts/{id}",
        operation_id="read_receipt",
        responses=shows_text(*_MISSING, description="A receipt (C2SP tlog-proof)"),
        response_class=PlainTextResponse,
    )
    def read_receipt(
        id: PathName,  # noqa: A002 - the wire's name
        caller: Calling,
        cosigned: Annotated[
            str, Query(pattern="^(true|false)$", description="under the checkpoint that most witnesses cosigned")
        ] = "false",
    ) -> Response:
        with snapshots.read() as facts:
            index, _ = visible_entry(facts, id, caller)
            return _text(cosigned_receipt(facts, index) if cosigned == "true" else facts.receipt(index))


def _add_decisions(router: APIRouter, snapshots: SnapshotProvider, cursors: Cursors) -> None:
    @router.get("/v1/decisions", operation_id="list_decisions", responses=shows(Page[Decision], 401, 403, 422))
    def list_decisions(
        caller: Calling,
        paging: Paging,
        kind: Annotated[str | None, Query(pattern=_KINDS, description="those on one kind of command")] = None,
        refused: Annotated[str | None, Query(pattern="^(true|false)$", description="refusals alone, or none")] = None,
    ) -> Response:
        with snapshots.read() as facts:

            def fetch(after: int | None, most: int) -> list[tuple[int, Entry]]:
                start = 0 if after is None else after + 1
                return list(enumerate(map(Entry.parse, facts.entries(start, start + most)), start))

            show = partial(_decision, facts=facts, caller=caller, kind=kind, refused=refused)
            scope = scope_of("decisions", kind=kind, refused=refused)
            return json_response(cursors.page(scope, paging, lambda *of: [(i, (i, e)) for i, e in fetch(*of)], show))

    @router.get("/v1/decisions/{id}", operation_id="read_decision", responses=shows_tagged(Decision, *_MISSING))
    def read_decision(request: Request, id: PathName, caller: Calling) -> Response:  # noqa: A002 - the wire's name
        with snapshots.read() as facts:
            index, entry = visible_entry(facts, id, caller)
            return tagged_response(request, Decision.of_entry(entry, index))

    for kind, path in (("key_release", "key-releases"), ("model_release", "model-releases")):
        _add_releases(router, snapshots, kind, path)


def _add_releases(router: APIRouter, snapshots: SnapshotProvider, kind: str, path: str) -> None:
    @router.get(f"/v1/{path}/{{id}}", operation_id=f"read_{kind}", responses=shows_tagged(Decision, *_MISSING))
    def read_release(request: Request, id: PathName, caller: Calling) -> Response:  # noqa: A002 - the wire's name
        with snapshots.read() as facts:
            index, entry = visible_entry(facts, id, caller)
            if entry.kind != kind:
                raise Problem(Code.NOT_FOUND, f"no {kind.replace('_', ' ')} has the id {id}", field="id", id=id)
            return tagged_response(request, Decision.of_entry(entry, index))


def _decision(
    found: tuple[int, Entry], *, facts: Facts, caller: Caller, kind: str | None, refused: str | None
) -> Decision | None:
    index, entry = found
    wanted = kind in {None, entry.kind} and refused in {None, str(entry.code.refused).lower()}
    return Decision.of_entry(entry, index) if wanted and sees_entry(caller, entry, facts) else None


def _index(text: str, field: str) -> int:
    if not _INDEX.match(text):
        raise Malformed(field, "must be an integer without leading zeros")
    return int(text)


def _text(content: str) -> Response:
    return PlainTextResponse(content, headers={"cache-control": "no-store"})
