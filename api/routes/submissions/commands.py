"""Routes that take commands: one for each kind, and one that quotes a charge."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header
from fastapi.responses import Response
from msgspec import structs

from api.auth.authentication import DeferredCaller, UnauthenticatedRequest
from api.auth.authorisation import Caller
from api.auth.caller_quotas import CallerLimits
from api.auth.signed_request import Binding
from api.auth.visibility import require_visible, views_of
from api.http.body import SIGNATURE_PARAMETER, Raw, Signature
from api.http.field_types import schema_of
from api.http.grouped_reads import GroupedReads
from api.http.problems import declared
from api.http.query_parameters import DryRun
from api.keys.key_release import KeyReleases, log_withheld
from api.keys.watermark_keys import WatermarkKeys
from api.routes.models.watermarks import check_watermark
from api.routes.submissions.if_match import VERSIONED, check_version
from api.routes.submissions.quote_warnings import quote_warnings
from api.wire.command_answers import WARNED, answer_to
from api.wire.command_requests import command_schema
from api.wire.responses import answer, shows, takes, warned, with_headroom
from client.http.endpoints import JSON_TYPE, QUOTES
from ledger.accounts.run_epsilon import run_epsilon
from ledger.book.book import Book, Outcome, Submission
from ledger.commands.registry import PATHS
from ledger.commands.runs.charge import CHARGE
from ledger.commands.runs.charge_entry import MakeCharge, reported_partitions
from ledger.commands.runs.model_release import MODEL_RELEASE
from ledger.commands.runs.run_generation import RUN_GENERATION
from ledger.commands.runs.settlement import POST
from ledger.domain.facts import Partition
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from policy.planning.usable_caps import command_caps, declared_load

IfMatch = Annotated[str | None, Header(description="the tag of the version that a document replaces")]

WARNINGS_MAX: Final = 16
"""Warnings in one answer."""
_LOG: Final = logging.getLogger("api.commands")
_RELEASES: Final = frozenset({"key_release", "model_opening"})
"""Kinds of command that are answered with an envelope."""
_PRICED: Final = frozenset({"charge", "partition"})
"""Kinds of command whose decision may take seconds of a processor."""
_ATTESTED: Final = frozenset({RUN_GENERATION.name, POST.name})
"""Kinds of command that may answer a challenge, and release no key."""
_LINKS: Final[dict[str, Any]] = {
    what: {"operationId": f"read_{what}", "parameters": {name: f"$response.body#/{name}"}}
    for what, name in (("decision", "id"), ("receipt", "id"), ("entry", "index"))
}
"""Links to the decision, the receipt and the entry."""


class _CommandRequest(NamedTuple):
    """One request for a command, as it came in.

    Attributes:
        path: what its signature names.
        dry: nothing is to be recorded.
    """

    kind: str
    path: str
    raw: bytes
    jws: str
    unknown: UnauthenticatedRequest
    dry: bool
    if_match: str | None = None

    @property
    def is_release(self) -> bool:
        """Whether an envelope with keys answers it."""
        return self.kind in _RELEASES and not self.dry


class _Decider(NamedTuple):
    """Takes commands for one service."""

    book: Book
    reads: GroupedReads
    releases: KeyReleases
    binding: Binding
    limits: CallerLimits
    marks: WatermarkKeys

    async def decide(self, request: _CommandRequest) -> Response:
        """Decide a command, or say what it would get now. Raises: BookBusy, BookStopped, Malformed, Problem."""
        caller, submission = await self.reads.run(partial(self._let_in, request))
        with self.limits.signatures.counted(caller):
            if request.is_release:
                return await run_sync(self._release, caller, submission)
            # A dry run does not use up the nonce of a key release.
            if request.dry:
                outcome = await self.book.quote_async(submission, views_of(caller))
            elif request.kind in _ATTESTED and "nonce" in submission.command.body:
                outcome = await run_sync(self.releases.answer_challenge, submission.command, submission)
            else:
                (outcome,) = await self.book.submit_async([submission])
            self._count(caller, outcome)
            if outcome.code.refused:
                raise await run_sync(with_headroom, self.book, outcome, submission.command, caller)
            if request.kind == CHARGE.name and outcome.repeated:
                outcome = await self._with_epsilon(caller, outcome, CHARGE.read_body(submission.command))
            elif outcome.answered:
                outcome = structs.replace(outcome, body={**outcome.body, **outcome.answered})
            warnings = list[str]()
            if request.kind in WARNED:
                warnings = await run_sync(self._warnings, caller, submission)
            elif request.dry and request.kind == CHARGE.name:
                warnings = await run_sync(quote_warnings, self.book, submission)
            return answer(outcome, warned(outcome, warnings), 200 if request.dry else None)

    async def _with_epsilon(self, caller: Caller, outcome: Outcome, run: MakeCharge) -> Outcome:
        """A charge of before with the ε of its run, or without: what is recorded is answered whatever fails here.

        That of a new one comes with the book's own answer.
        """
        try:
            partitions = await self.reads.run(partial(reported_partitions, body=run))
            return await run_sync(_with_epsilon, self.limits.quotas.metered(caller), outcome, partitions, run)
        except Exception:  # noqa: BLE001 - whatever it was, the charge is recorded
            _LOG.exception("the answer to a charge does not have its epsilon")
            return outcome

    def _warnings(self, caller: Caller, submission: Submission) -> list[str]:
        """The caps under which nothing could run, or none: what is recorded is answered whatever fails here."""
        pending = submission.pending
        try:
            with self.limits.quotas.metered(caller), self.book.read() as facts:
                caps = command_caps(facts, pending.command, pending.body, facts.time, declared_load(facts.entry))
                return [*islice((cap.text for cap in caps if not cap.fits), WARNINGS_MAX)]
        except Exception:  # noqa: BLE001 - whatever it was, the document is recorded
            _LOG.exception("the answer to a command does not have its warnings")
            return []

    def _let_in(self, request: _CommandRequest, facts: Snapshot) -> tuple[Caller, Submission]:
        """The caller and the submission of a command that may go to the book. Raises: Malformed, Problem."""
        caller = request.unknown.authenticate(facts)
        submission = Submission(request.raw, request.jws)
        command = submission.command
        if command.kind != request.kind:
            raise Malformed("kind", f"must be '{request.kind}' at this path, not '{command.kind}'")
        caller.check_actor(command.actor)
        with log_withheld(command) if request.is_release else nullcontext():
            self.binding.check(request.jws, "POST", request.path, command.id)
            require_visible(facts, caller, submission)
        if request.kind in VERSIONED:
            # The document is as slow to read as its author made it, and nothing of this need be recorded.
            self.limits.quotas.check_pricing(caller)
            with self.limits.quotas.metered(caller):
                check_version(facts, command, request.if_match, caller)
        if request.kind == MODEL_RELEASE.name:
            check_watermark(self.marks, MODEL_RELEASE.read_body(command))
        self._check_quotas(request, caller)
        return caller, submission

    def _check_quotas(self, request: _CommandRequest, caller: Caller) -> None:
        """Raises: Problem (429)."""
        if request.kind in _PRICED:
            self.limits.quotas.check_pricing(caller)
        if request.dry:
            self.limits.quotas.admit_questions(caller)
        else:
            self.limits.quotas.check_refusals(caller)

    def _count(self, caller: Caller, outcome: Outcome) -> None:
        if outcome.code.refused and outcome.index is not None and not outcome.repeated:
            self.limits.quotas.count_refusals(caller, 1)

    def _release(self, caller: Caller, submission: Submission) -> Response:
        with log_withheld(submission.command):
            outcome, envelope = self.releases.release(submission.command, submission)
            self._count(caller, outcome)
            return answer(outcome, {"envelope": envelope})


def _with_epsilon(
    meter: AbstractContextManager[None], outcome: Outcome, partitions: list[Partition], run: MakeCharge
) -> Outcome:
    with meter:
        lines: list[c.Json] = [run_epsilon(partition, run).to_json() for partition in partitions]
    return structs.replace(outcome, body={**outcome.body, "run_epsilon": lines})


def command_router(  # noqa: PLR0913, PLR0917 - the parts of a service that commands need
    book: Book,
    reads: GroupedReads,
    releases: KeyReleases,
    binding: Binding,
    limits: CallerLimits,
    marks: WatermarkKeys,
) -> APIRouter:
    """POST routes of :data:`ledger.commands.registry.PATHS`, and /v1/quotes: what a charge would get now."""
    router, decider = APIRouter(tags=["commands"]), _Decider(book, reads, releases, binding, limits, marks)
    for kind, path in PATHS.items():
        answered = {JSON_TYPE: {"schema": schema_of(answer_to(kind))}}
        router.add_api_route(
            path,
            _route(decider, kind, path),
            methods=["POST"],
            operation_id=f"submit_{kind}",
            status_code=201,
            responses={
                **declared(401, 403, 404, 408, 409, 413, 415, 422, 429, *((412, 428) if kind in VERSIONED else ())),
                201: {"description": "Recorded now", "content": answered, "links": _LINKS},
                200: {"description": "Recorded before: the same answer; or a dry run's", "content": answered},
            },
            openapi_extra=takes(command_schema(kind), parameters=[SIGNATURE_PARAMETER]),
        )

    @router.post(
        QUOTES,
        operation_id="quote_charge",
        responses=shows(
            answer_to("charge"), 401, 403, 404, 408, 409, 413, 415, 422, 429, description="It would be charged"
        ),
        openapi_extra=takes(command_schema("charge"), parameters=[SIGNATURE_PARAMETER]),
    )
    async def quote(raw: Raw, jws: Signature, unknown: DeferredCaller) -> Response:
        return await decider.decide(_CommandRequest("charge", QUOTES, raw, jws, unknown, dry=True))

    return router


def _route(decider: _Decider, kind: str, path: str) -> Callable[..., Awaitable[Response]]:
    async def submit_version(
        raw: Raw, jws: Signature, unknown: DeferredCaller, *, dry_run: DryRun = False, if_match: IfMatch = None
    ) -> Response:
        signed = f"{path}?dry_run=true" if dry_run else path
        return await decider.decide(_CommandRequest(kind, signed, raw, jws, unknown, dry_run, if_match))

    async def submit(raw: Raw, jws: Signature, unknown: DeferredCaller, *, dry_run: DryRun = False) -> Response:
        return await submit_version(raw, jws, unknown, dry_run=dry_run)

    return submit_version if kind in VERSIONED else submit
