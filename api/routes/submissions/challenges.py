"""POST /v1/challenges: a one-time nonce for one charge."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import Response
from msgspec import Meta

from api.auth.authentication import Calling
from api.http.body import Raw
from api.http.field_types import KeyBytes
from api.http.problems import Problem
from api.keys.nonces import LIFE_S, Challenges
from api.wire.responses import json_response, shows, takes
from ledger.book.book import Book
from ledger.domain.command import COMMAND_BYTES_MAX
from ledger.domain.outcomes import ChargeState, Code
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Name
from ledger.wire.records import Record, convert


class ChallengeRequest(Record, frozen=True):
    """The charge that the nonce is for."""

    charge: Name


class Challenge(Record, frozen=True):
    """A one-time nonce, and how long it lives."""

    expires_s: Annotated[int, Meta(extra_json_schema={"const": LIFE_S})]
    nonce: KeyBytes


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
            charged, size = facts.charges.get(charge), facts.size
            if charged is None or not caller.sees_charge(charged, facts):
                raise Problem(Code.NOT_FOUND, f"there is no charge {charge}", field="charge")
        # A clean room requests its own data keys; a party that continues its contract, the key of its sealed model.
        wanted = ChargeState.PENDING if caller.charge else ChargeState.POSTED
        if charged.state is not wanted:
            raise Problem(Code.CONFLICT, f"charge {charge} is {charged.state}, not {wanted}", field="charge")
        return json_response(Challenge(expires_s=LIFE_S, nonce=challenges.issue(charge, size)))

    return router
