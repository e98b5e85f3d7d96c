"""Marks in models: a clean room gets the key of its own, and weights are searched for every mark that was entered."""

from __future__ import annotations

import logging
import math
from typing import Annotated, Final

from fastapi import APIRouter
from fastapi.responses import Response
from msgspec import Meta

from api.auth.authentication import Calling
from api.auth.authorisation import Caller
from api.auth.caller_quotas import CallerQuotas
from api.auth.visibility import get_visible
from api.http.body import Fingerprint
from api.http.field_types import PathName
from api.http.problems import Problem, ServiceCode
from api.keys.data_key_store import KeyUnavailable
from api.keys.watermark_keys import WatermarkKey, WatermarkKeys
from api.wire.responses import BINARY, json_response, shows, takes
from client.http.endpoints import BYTES_TYPE, WATERMARK_SEARCHES
from client.watermarks.fingerprint_file import read_fingerprint
from client.watermarks.spread_spectrum import search, threshold
from ledger.book.book import Book
from ledger.commands.entry import Entry
from ledger.commands.runs.model_release import MODEL_RELEASE, ReleaseModel
from ledger.domain.outcomes import ChargeState, Code
from ledger.store.merkle_tables import entries_of_kind
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Name
from ledger.wire.records import Record

SEARCHED_MAX: Final = 4_096
"""Marks that one search looks for: the newest."""
_LOG: Final = logging.getLogger("api.watermarks")
_NONE: Final = "this service keeps no keys of watermarks: it has no key store"


class FoundMark(Record, frozen=True):
    """A run whose mark is in the weights."""

    bits: Annotated[int, Meta(description="by chance such a score comes with probability at most 2 to the minus this")]
    charge: Name
    score: Annotated[str, Meta(description="a decimal: how well the weights agree with the mark")]


class MarksFound(Record, frozen=True):
    """What a search found, the greatest score first."""

    found: tuple[FoundMark, ...]
    searched: Annotated[int, Meta(description="marks that were looked for")]
    threshold: Annotated[str, Meta(description="a decimal: the score from which on a mark counts as found")]


def watermark_router(book: Book, keys: WatermarkKeys, quotas: CallerQuotas) -> APIRouter:
    """GET /v1/charges/{id}/watermark and POST /v1/watermark-searches."""
    router = APIRouter(tags=["watermarks"])

    @router.get(
        "/v1/charges/{id}/watermark",
        operation_id="read_watermark_key",
        responses=shows(WatermarkKey, 401, 403, 404, 409, 422, 503, description="Sealed to the clean room"),
    )
    @quotas.in_turn
    def read(id: PathName, caller: Calling) -> Response:  # noqa: A002 - the wire's name
        with book.read() as facts:
            charge = get_visible(facts.charges.get(c.name(id, "id")), caller.sees_charge, facts, f"charge {id}")
        if charge.state is not ChargeState.PENDING:
            raise Problem(Code.CONFLICT, f"charge {id} is {charge.state}, not pending", field="id", id=id)
        try:
            sealed = keys.sealed(charge)
        except KeyUnavailable as error:
            raise _failed(error) from None
        if sealed is None:
            raise Problem(Code.NOT_FOUND, _NONE)
        return json_response(sealed)

    @router.post(
        WATERMARK_SEARCHES,
        operation_id="search_watermarks",
        responses=shows(MarksFound, 401, 403, 404, 408, 413, 415, 422, 429, 503, description="The marks found"),
        openapi_extra=takes(BINARY, BYTES_TYPE),
    )
    @quotas.in_turn
    def find(raw: Fingerprint, caller: Calling) -> Response:
        quotas.admit_questions(caller)
        quotas.check_pricing(caller)
        weights = read_fingerprint(raw)
        with quotas.metered(caller):
            with book.read() as facts:
                charges = _marked_runs(facts)
            runs = {charge: key for charge in charges if (key := _key(keys, charge)) is not None}
            reached = sorted(search(weights, runs), key=lambda mark: -mark[1])
        with book.read() as facts:
            shown = tuple(_found_mark(*mark) for mark in reached if _may_see(caller, facts, mark[0]))
        return json_response(
            MarksFound(found=shown, searched=len(runs), threshold=f"{threshold(len(runs), len(weights)):.2f}")
        )

    return router


def check_watermark(keys: WatermarkKeys, body: ReleaseModel) -> None:
    """Hold the mark that a release names to the charge's own. Raises: Problem."""
    if body.watermark is None:
        return
    try:
        own = keys.commitment(body.charge)
    except KeyUnavailable as error:
        raise _failed(error) from None
    if own is None or own != body.watermark:
        detail = _NONE if own is None else f"it is not the commitment to the mark of charge {body.charge}"
        raise Problem(Code.CONFLICT, f"body.watermark: {detail}", field="body.watermark")


def _marked_runs(facts: Snapshot) -> list[str]:
    """The charges whose models were released with a mark, of the newest releases."""
    runs: dict[str, None] = {}
    for _, data in reversed(entries_of_kind(facts.connection, MODEL_RELEASE.name)):
        entry = Entry.parse(data)
        body = entry.command_body
        if not entry.code.refused and isinstance(body, ReleaseModel) and body.watermark is not None:
            runs[body.charge] = None
            if len(runs) == SEARCHED_MAX:
                break
    return [*runs]


def _key(keys: WatermarkKeys, charge: str) -> bytes | None:
    try:
        return keys.key(charge)
    except KeyUnavailable as error:
        raise _failed(error) from None


def _may_see(caller: Caller, facts: Snapshot, charge: str) -> bool:
    """A clean room sees every mark: it declares what its run starts from, or ends."""
    charged = facts.charges.get(charge)
    return bool(caller.charge) or (charged is not None and caller.sees_charge(charged, facts))


def _found_mark(charge: str, score: float) -> FoundMark:
    return FoundMark(bits=math.floor(score * score / 2 / math.log(2)), charge=charge, score=f"{score:.2f}")


def _failed(error: KeyUnavailable) -> Problem:
    _LOG.warning("the key store failed", extra={"reason": str(error)})
    return Problem(ServiceCode.KEY_STORE, str(error))
