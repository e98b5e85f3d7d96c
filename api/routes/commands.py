"""Routes that take commands: one for each kind, and those for challenges, quotes and documents."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Header
from fastapi.responses import Response
from msgspec import Meta

from api.auth.authentication import Calling, DeferredCaller, UnauthenticatedRequest
from api.auth.signed_request import Binding, verify_registered_key
from api.auth.visibility import require_visible
from api.http.body import SIGNATURE_PARAMETER, Document, Raw, Signature
from api.http.field_types import DryRun, KeyBytes, PathDigest, schema_of
from api.http.problems import Problem, ServiceCode, declared
from api.keys.key_release import KeyReleases, log_withheld
from api.keys.nonces import LIFE_S, Challenges, NoRoom
from api.routes.if_match import VERSIONED, check_version, tag_replaced
from api.wire.command_answers import answer_to
from api.wire.command_requests import command_schema
from api.wire.registry_answers import Stored
from api.wire.responses import BINARY, BYTES_TYPE, answer, json_response, shows, takes, with_headroom
from client.http.endpoints import DOCUMENTS, JSON_TYPE, PATHS, QUOTES
from ledger.book.book import Book, Submission
from ledger.domain.command import COMMAND_BYTES_MAX
from ledger.domain.outcomes import ChargeState, Code
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Name
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record, convert

IfMatch = Annotated[str | None, Header(description="the tag of the version that a document replaces")]

_RELEASES: Final = frozenset({"key_release", "model_opening"})
"""Kinds of command that are answered with an envelope."""
_LINKS: Final[dict[str, Any]] = {
    what: {"operationId": f"read_{what}", "parameters": {name: f"$response.body#/{name}"}}
    for what, name in (("decision", "id"), ("receipt", "id"), ("entry", "index"))
}
"""Links to the decision, the receipt and the entry."""


class ChallengeRequest(Record, frozen=True):
    """The charge that the nonce is for."""

    charge: Name


class Challenge(Record, frozen=True):
    """A one-time nonce, and how long it lives."""

    expires_s: Annotated[int, Meta(extra_json_schema={"const": LIFE_S})]
    nonce: KeyBytes


class _Decider(NamedTuple):
    """Takes commands for one service."""

    book: Book
    releases: KeyReleases
    binding: Binding

    def decide(  # noqa: PLR0913 - what a request consists of
        self,
        kind: str,
        path: str,
        raw: bytes,
        jws: str,
        unknown: UnauthenticatedRequest,
        *,
        dry: bool,
        if_match: str | None = None,
    ) -> Response:
        """Decide a command, or say what it would get now; its signature names ``path``. Raises: Malformed, Problem."""
        book, released = self.book, kind in _RELEASES and not dry
        with book.read() as facts:
            caller = unknown.authenticate(facts)
            submission = Submission(raw, jws)
            command = submission.command
            if command.kind != kind:
                raise Malformed("kind", f"must be '{kind}' at this path, not '{command.kind}'")
            caller.check_actor(command.actor)
            with log_withheld(command) if released else nullcontext():
                self.binding.check(jws, "POST", path, command.id)
                require_visible(facts, caller, submission)
            if kind in VERSIONED:
                check_version(facts, command, if_match, caller)
        if released:
            with log_withheld(command):
                outcome, envelope = self.releases.release(command, submission)
                return answer(outcome, {"envelope": envelope})
        # A dry run does not use up the nonce of a key release.
        outcome = book.quote(submission) if dry else book.submit([submission])[0]
        if outcome.code.refused:
            raise with_headroom(book, outcome, command, caller)
        return answer(outcome, status=200 if dry else None)


def command_router(book: Book, releases: KeyReleases, binding: Binding) -> APIRouter:
    """POST routes of :data:`client.http.endpoints.PATHS`, and /v1/quotes: what a charge would get now."""
    router, decider = APIRouter(tags=["commands"]), _Decider(book, releases, binding)
    for kind, path in PATHS.items():
        answered = {JSON_TYPE: {"schema": schema_of(answer_to(kind))}}
        router.add_api_route(
            path,
            _route(decider, kind, path),
            methods=["POST"],
            operation_id=f"submit_{kind}",
            status_code=201,
            responses={
                **declared(401, 403, 404, 408, 409, 413, 415, 422, *((412, 428) if kind in VERSIONED else ())),
                201: {"description": "Recorded now", "content": answered, "links": _LINKS},
                200: {"description": "Recorded before: the same answer; or a dry run's", "content": answered},
            },
            openapi_extra=takes(command_schema(kind), parameters=[SIGNATURE_PARAMETER]),
        )

    @router.post(
        QUOTES,
        operation_id="quote_charge",
        responses=shows(answer_to("charge"), 401, 403, 404, 408, 409, 413, 415, 422, description="It would be charged"),
        openapi_extra=takes(command_schema("charge"), parameters=[SIGNATURE_PARAMETER]),
    )
    def quote(raw: Raw, jws: Signature, unknown: DeferredCaller) -> Response:
        return decider.decide("charge", QUOTES, raw, jws, unknown, dry=True)

    return router


def _route(decider: _Decider, kind: str, path: str) -> Callable[..., Response]:
    def submit_version(
        raw: Raw, jws: Signature, unknown: DeferredCaller, dry_run: DryRun = "false", if_match: IfMatch = None
    ) -> Response:
        dry = dry_run == "true"
        signed = f"{path}?dry_run=true" if dry else path
        return decider.decide(kind, signed, raw, jws, unknown, dry=dry, if_match=if_match)

    def submit(raw: Raw, jws: Signature, unknown: DeferredCaller, dry_run: DryRun = "false") -> Response:
        return submit_version(raw, jws, unknown, dry_run)

    return submit_version if kind in VERSIONED else submit


def challenge_router(book: Book, challenges: Challenges) -> APIRouter:
    """POST /v1/challenges: a nonce for the key release of a pending charge, or for opening a sealed model."""
    router = APIRouter()

    @router.post(
        "/v1/challenges",
        operation_id="issue_challenge",
        tags=["key release"],
        responses=shows(Challenge, 401, 403, 404, 408, 409, 413, 415, 422, description="A nonce"),
        openapi_extra=takes(ChallengeRequest),
    )
    def issue(raw: Raw, caller: Calling) -> Response:
        charge = convert(ChallengeRequest, c.parse(raw, COMMAND_BYTES_MAX)).charge
        with book.read() as facts:
            found = facts.charges.get(charge)
            if found is None or not caller.sees_charge(found, facts):
                raise Problem(Code.NOT_FOUND, f"there is no charge {charge}", field="charge")
        # A clean room requests its own data keys; a party that continues its contract, the key of its sealed model.
        wanted = ChargeState.PENDING if caller.charge else ChargeState.POSTED
        if found.state is not wanted:
            raise Problem(Code.CONFLICT, f"charge {charge} is {found.state}, not {wanted}", field="charge")
        try:
            nonce = challenges.issue(charge)
        except NoRoom:
            raise Problem(ServiceCode.BUSY, "too many challenges are open; one expires soon") from None
        return json_response(Challenge(expires_s=LIFE_S, nonce=nonce))

    return router


def document_router(book: Book, binding: Binding) -> APIRouter:
    """PUT /v1/documents/{sha256}: bytes stored beside the log, signed by a registered key."""
    router = APIRouter()

    @router.put(
        f"{DOCUMENTS}/{{sha256}}",
        operation_id="put_document",
        tags=["documents"],
        responses=shows(Stored, 401, 403, 408, 413, 422, description="Stored, now or before"),
        openapi_extra=takes(BINARY, BYTES_TYPE, [SIGNATURE_PARAMETER]),
    )
    def put(sha256: PathDigest, raw: Document, jws: Signature, caller: Calling) -> Response:
        if c.sha256(sha256, "sha256") != c.digest(raw):
            raise Malformed("sha256", "is not the SHA-256 digest of the body")
        binding.check(jws, "PUT", f"{DOCUMENTS}/{sha256}", sha256)
        with book.read() as facts:
            verify_registered_key(facts, jws, raw)
        document, signature = book.put_document(raw), book.put_document(jws.encode("ascii"))
        with book.read() as facts:
            tags = (tag_replaced(facts, kind, raw, caller) for kind in VERSIONED)
            replaces = next((tag for tag in tags if tag is not None), None)
        return json_response(Stored(document=document, replaces=replaces, signature=signature))

    return router
