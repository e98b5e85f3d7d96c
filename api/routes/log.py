"""Routes that read the log: entries and their receipts, decisions, checkpoints, tiles and proofs."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from fastapi import Query
from fastapi.responses import PlainTextResponse, Response

from api.auth.authorisation import sees_entry
from api.auth.visibility import not_found, visible_entry
from api.http.field_types import Count, KeyBytes, PathBundle, PathName, PathTile
from api.http.pagination import Page, scope_of
from api.http.problems import Problem
from api.http.query_parameters import PathPlace, Place, Since, Switch
from api.routes.overviews.newest_entries import newest_entries
from api.routes.read_routes import LISTED, PROBLEMS, ReadRoutes, View
from api.wire.command_answers import Decision, LoggedEntry
from api.wire.responses import BINARY, json_response, shows, shows_text
from client.http.endpoints import BYTES_TYPE, JSON_TYPE
from ledger.book.past_snapshot import PastSnapshot
from ledger.commands.entry import Entry
from ledger.commands.registry import KINDS
from ledger.domain.outcomes import Code
from ledger.log.tiles import Tile
from ledger.store.cosignatures import cosigned_checkpoint, cosigned_receipt
from ledger.store.log_key.rotation_proofs import rotation_places, rotations_of
from ledger.store.snapshot import Log as LogAtSize
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.field_types import constant
from ledger.wire.records import Record

ROUTES: Final = ReadRoutes("log")
_FOREVER: Final = "immutable, max-age=31536000"
PUBLIC: Final = f"public, {_FOREVER}"
PRIVATE: Final = f"private, {_FOREVER}"
"""Of what needs a token: ``public`` would let a shared cache give it to the next caller (RFC 9111, section 3.5)."""
_DESCRIBED: Final = {"link": '</v1/openapi.json>; rel="service-desc", </docs>; rel="service-doc"'}
"""Where the API is described, for programs and for people (RFC 8631, section 4)."""
_KIND: Final[Any] = Query(
    pattern=f"^({'|'.join(KINDS)})$",
    description="those on one kind of command",
    json_schema_extra={"enum": [*KINDS]},
)
_TILE: Final = "C2SP tlog-tiles"


class Log(Record, frozen=True):
    """The log's name and public key; vkey is as C2SP signed-note writes it."""

    origin: str
    vkey: str


class LogKeyRotation(Record, frozen=True):
    """The entry of one rotation (base64), and its receipt under the checkpoint that the old and the new key sign."""

    entry: str
    receipt: str


class LogKeyRotations(Record, frozen=True):
    """Every rotation of the log's key, in order: ``verifier.py --rotations`` reads it as it is."""

    rotations: tuple[LogKeyRotation, ...]
    v: Literal[1] = constant(1)


class ConsistencyProof(Record, frozen=True):
    """A proof of RFC 9162, section 2.1.4, under the checkpoint of the requested size."""

    checkpoint: str
    new: Count
    old: Count
    proof: tuple[KeyBytes, ...]


@ROUTES.route("/v1/log", content=shows(Log))
def read_log(view: View) -> Response:
    """The log's name and public key."""
    return json_response(Log.project(view.context.log), headers=_DESCRIBED)


@ROUTES.route("/v1/log-key-rotations", content=shows(LogKeyRotations))
def read_log_key_rotations(view: View) -> Response:
    """The rotations of the log's key, for a client that kept an earlier one; empty if there was none."""
    rotations = rotations_of(view.facts.connection, rotation_places(view.facts))
    return Response(rotations, media_type=JSON_TYPE, headers={"cache-control": "no-store"})


@ROUTES.route("/v1/checkpoint", content=shows_text(404, description="A signed note (C2SP tlog-checkpoint)"))
def read_checkpoint(view: View) -> Response:
    """The newest checkpoint. Raises: Problem."""
    if not view.facts.size:
        raise Problem(Code.NOT_FOUND, "the log is empty")
    return _text(cosigned_checkpoint(view.facts.connection, view.facts.size))


@ROUTES.route("/v1/consistency/{old}", content=shows(ConsistencyProof, 404, 422))
def read_consistency(
    view: View,
    old: PathPlace,
    new: Annotated[Place | None, Query(description="the size to prove; the newest if it is not given")] = None,
) -> Response:
    """The proof that the log only grew. Raises: Malformed, Problem."""
    connection, newest = view.facts.connection, view.facts.size
    after = newest if new is None else new
    missing = not_found(f"checkpoint of {after} entries to be consistent with {old}")
    if not 0 < old <= after <= newest:
        raise missing
    try:
        note = cosigned_checkpoint(connection, after)
    except KeyError:
        raise missing from None
    proof = tuple(map(c.base64url, LogAtSize(connection, after).consistency(old)))
    return json_response(ConsistencyProof(checkpoint=note, new=after, old=old, proof=proof))


@ROUTES.route("/tile/entries/{path:path}", content=shows(BINARY, *PROBLEMS, media_type=BYTES_TYPE, description=_TILE))
def read_entry_bundle(view: View, path: PathBundle) -> Response:
    """A tile of entries. Raises: Malformed, Problem."""
    return _tile(view.facts, f"tile/entries/{path}", PRIVATE)


# After the tiles of entries, which need a caller: this path would match theirs.
@ROUTES.route("/tile/{path:path}", content=shows(BINARY, 404, 422, media_type=BYTES_TYPE, description=_TILE))
def read_tile(view: View, path: PathTile) -> Response:
    """A tile of hashes. Raises: Malformed, Problem."""
    return _tile(view.facts, f"tile/{path}", PUBLIC)


def _tile(facts: Snapshot | PastSnapshot, path: str, cache: str) -> Response:
    try:
        data = facts.tile(Tile.parse(path))
    except KeyError:
        raise Problem(Code.NOT_FOUND, f"the log has nothing at {path}", field="path") from None
    return Response(data, media_type=BYTES_TYPE, headers={"cache-control": cache})


@ROUTES.route("/v1/entries/{index}", content=shows(LoggedEntry, *PROBLEMS))
def read_entry(view: View, index: PathPlace) -> Response:
    """The very bytes that are hashed into the tree, as they are stored. Raises: Malformed, Problem."""
    data = view.facts.entry(index) if index < view.facts.size else None
    if data is None or not sees_entry(view.caller, Entry.parse(data), view.facts):
        raise Problem(Code.NOT_FOUND, f"the log has no entry {index}", field="index")
    return Response(data, media_type=JSON_TYPE, headers={"cache-control": PRIVATE})


@ROUTES.route("/v1/receipts/{id}", content=shows_text(*PROBLEMS, description="A receipt (C2SP tlog-proof)"))
def read_receipt(
    view: View,
    id: PathName,  # noqa: A002 - the wire's name
    *,
    cosigned: Annotated[Switch, Query(description="under the checkpoint that most witnesses cosigned")] = False,
) -> Response:
    """The receipt of an entry. Raises: Malformed, Problem."""
    index, _ = visible_entry(view.facts, id, view.caller)
    return _text(cosigned_receipt(view.facts, index) if cosigned else view.facts.receipt(index))


@ROUTES.route("/v1/decisions", LISTED, paged=True)
def list_decisions(  # noqa: PLR0913 - each narrows the list
    view: View,
    kind: Annotated[str | None, _KIND] = None,
    *,
    refused: Annotated[Switch | None, Query(description="refusals alone, or none")] = None,
    signer: Annotated[str | None, Query(description="those signed by a key that this organisation has or had")] = None,
    actor: Annotated[str | None, Query(description="those that this organisation requested")] = None,
    since: Since = None,
    newest: Annotated[Switch, Query(description="the newest first")] = False,
) -> Page[Decision]:
    """The decisions that the caller may see. Raises: Malformed."""
    facts = view.facts
    keys = None if signer is None else {one.key_id for one in facts.keys_of(c.did(signer, "signer"))}
    actor = None if actor is None else c.did(actor, "actor")

    def sees(entry: Entry) -> bool:
        wanted = kind in {None, entry.kind} and refused in {None, entry.code.refused} and actor in {None, entry.actor}
        return wanted and (keys is None or entry.key_id in keys) and sees_entry(view.caller, entry, facts)

    def show(entry: Entry, index: int) -> Decision | None:
        return Decision.of_entry(entry, index) if sees(entry) else None

    given = {"actor": actor, "kind": kind, "refused": refused, "signer": signer, "since": since}
    first = 0 if since is None else facts.first_since(since)
    if newest:
        return newest_entries(view, scope_of("newest-decisions", **given), [kind] if kind else [], show, first)

    def fetch(after: int | None, most: int) -> list[tuple[int, tuple[Entry, int]]]:
        start = first if after is None else after + 1
        stored = facts.entries(start, start + most)
        return [(index, (Entry.parse(data), index)) for index, data in enumerate(stored, start)]

    return view.page(scope_of("decisions", **given), fetch, lambda found: show(*found))


@ROUTES.route("/v1/decisions/{id}")
def read_decision(view: View, id: PathName) -> Decision:  # noqa: A002 - the wire's name
    """The decision on one command. Raises: Malformed, Problem."""
    index, entry = visible_entry(view.facts, id, view.caller)
    return Decision.of_entry(entry, index)


@ROUTES.route("/v1/key-releases/{id}")
def read_key_release(view: View, id: PathName) -> Decision:  # noqa: A002 - the wire's name
    """The decision on a key release. Raises: Malformed, Problem."""
    return _of_kind("key_release", view, id)


@ROUTES.route("/v1/model-releases/{id}")
def read_model_release(view: View, id: PathName) -> Decision:  # noqa: A002 - the wire's name
    """The decision on a model release. Raises: Malformed, Problem."""
    return _of_kind("model_release", view, id)


def _of_kind(kind: str, view: View, name: str) -> Decision:
    decision = read_decision(view, name)
    if decision.kind != kind:
        raise Problem(Code.NOT_FOUND, f"no {kind.replace('_', ' ')} has the id {name}", field="id", id=name)
    return decision


def _text(content: str) -> Response:
    return PlainTextResponse(content, headers={"cache-control": "no-store"})
