"""POST /v1/charges/batch: many charges in one request and one commit, each with its own signature and outcome.

    {"charges":[{"command":{...},"signature":"eyJh..."},...]}

They are decided in the order given, each after those before it. A signature is over the canonical bytes of its
command and is made for this very path, with the command's id.

With ``?dry_run=true``, which signatures name too, nothing is recorded, and each is decided as if it were alone.

Before each price is computed the quota of pricing is looked at again: once it is used up, that charge and all after it
get the problem ``quota_exceeded``, and nothing of them is recorded.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request
from fastapi.responses import Response

from api.auth.authentication import Calling
from api.auth.authorisation import Caller
from api.auth.caller_quotas import CallerLimits
from api.auth.signed_request import Binding
from api.auth.visibility import require_visible, views_of
from api.http.body import Batch
from api.http.grouped_reads import GroupedReads
from api.http.problems import Problem, ServiceCode, pricing_refused
from api.http.query_parameters import DryRun
from api.http.wanted_answers import is_wanted
from api.routes.submissions.quote_warnings import quote_warnings
from api.wire.command_answers import batch_schema
from api.wire.command_requests import batch_request_schema
from api.wire.responses import json_response, recorded_answer, shows, status_of, takes, warned, with_headroom
from client.http.endpoints import BATCH, BATCH_MAX
from ledger.book.book import Book, Outcome, Submission
from ledger.book.submitted_command import PricingRefused
from ledger.domain.command import COMMAND_BYTES_MAX
from ledger.domain.outcomes import Code
from ledger.store.snapshot import Snapshot
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed

_SIGNATURE_MAX: Final = 4_096


def batch_router(book: Book, reads: GroupedReads, binding: Binding, limits: CallerLimits) -> APIRouter:
    """The one route."""
    router = APIRouter(tags=["commands"])

    @router.post(
        BATCH,
        operation_id="charge_batch",
        responses=shows(
            batch_schema(), 401, 403, 404, 408, 413, 415, 422, 429, description="An outcome for each, in order"
        ),
        openapi_extra=takes(batch_request_schema()),
    )
    async def submit(request: Request, raw: Batch, caller: Calling, *, dry_run: DryRun = False) -> Response:
        path = f"{BATCH}?dry_run=true" if dry_run else BATCH
        signatures, quotas = limits
        signatures.check(caller)
        quotas.check_pricing(caller)
        charges = await reads.run(lambda facts: _prepare_all(raw, _BatchContext(facts, binding, caller, path)))
        ready = [charge for charge in charges if isinstance(charge, Submission)]
        if dry_run:
            quotas.admit_questions(caller, len(ready))
            outcomes, refusal = await _quote(book, ready, caller, request)
        else:
            quotas.check_refusals(caller)
            # The request itself was counted as one.
            quotas.admit_commands(caller, max(0, len(ready) - 1))
            outcomes, refusal = await _submit(book, ready)
            refused = (
                outcome
                for outcome in outcomes
                if outcome.code.refused and outcome.index is not None and not outcome.repeated
            )
            quotas.count_refusals(caller, sum(1 for _ in refused))
        signatures.add(caller, sum(outcome.code is Code.SIGNATURE_INVALID for outcome in outcomes))
        return await run_sync(_render, _Decided(book, caller, dry_run, refusal), charges, outcomes)

    return router


async def _submit(book: Book, charges: list[Submission]) -> tuple[list[Outcome], PricingRefused | None]:
    """The outcomes of the first charges, or of all, and why the rest has none. Raises: as :meth:`Book.submit`."""
    try:
        return await book.submit_async(charges), None
    except PricingRefused as refusal:
        # Without an outcome the whole request is refused, with a header that says when to send it again.
        if not refusal.decided:
            raise
        return refusal.decided, refusal


async def _quote(
    book: Book, charges: list[Submission], caller: Caller, request: Request
) -> tuple[list[Outcome], PricingRefused | None]:
    """The same of a dry run, which ends when its caller does not wait for it any more.

    Raises:
        BookBusy, BookStopped: as :meth:`Book.quote`.
        Problem: if no caller waits for the answer.
    """
    outcomes = list[Outcome]()
    for charge in charges:
        if not await is_wanted(request):
            raise Problem(ServiceCode.UNANSWERED, "no caller waits for the answer")
        try:
            outcomes.append(await book.quote_async(charge, views_of(caller)))
        except PricingRefused as refusal:
            if not outcomes:
                raise
            return outcomes, refusal
    return outcomes, None


class _Decided(NamedTuple):
    """What every outcome of a batch is rendered with.

    Attributes:
        refusal: why the charges after those that have an outcome have none.
    """

    book: Book
    caller: Caller
    dry: bool
    refusal: PricingRefused | None


def _render(context: _Decided, charges: list[Submission | Problem], outcomes: list[Outcome]) -> Response:
    left = iter(outcomes)

    def outcome_of(charge: Submission) -> c.Object:
        outcome = next(left, None)
        if outcome is None:
            assert context.refusal is not None
            return _problem(pricing_refused(context.refusal, charge.command.id))
        if outcome.code.refused:
            return _problem(with_headroom(context.book, outcome, charge.command, context.caller))
        if not context.dry:
            return {**recorded_answer(outcome), **warned(outcome), "status": status_of(outcome)}
        return {**recorded_answer(outcome), **warned(outcome, quote_warnings(context.book, charge)), "status": 200}

    return json_response(
        {"outcomes": [outcome_of(charge) if isinstance(charge, Submission) else _problem(charge) for charge in charges]}
    )


class _BatchContext(NamedTuple):
    """What every charge of a batch is checked with."""

    facts: Snapshot
    binding: Binding
    caller: Caller
    path: str


def _prepare_all(raw: bytes, context: _BatchContext) -> list[Submission | Problem]:
    """Every charge of a batch, or why it is not sent. Raises: Malformed."""
    members = c.fields(c.parse(raw, len(raw)), "", ("charges",))
    listed = members["charges"]
    if not isinstance(listed, list) or not 1 <= len(listed) <= BATCH_MAX:
        raise Malformed("charges", f"must have 1 to {BATCH_MAX} items")
    return [_prepare(item, f"charges[{place}]", context) for place, item in enumerate(listed)]


def _prepare(value: object, where: str, context: _BatchContext) -> Submission | Problem:
    """One charge ready to be sent, or why it is not: by itself, so that the others are. Raises: Malformed."""
    members = c.fields(value, where, ("command", "signature"))
    raw, signature = c.dump(members["command"]), c.string(members["signature"], f"{where}.signature", _SIGNATURE_MAX)
    if len(raw) > COMMAND_BYTES_MAX:
        raise Malformed(f"{where}.command", f"has more than the {COMMAND_BYTES_MAX} bytes allowed")
    submission = Submission(raw, signature)
    try:
        command = submission.command
    except Malformed as error:
        raise error.under(f"{where}.command") from None
    if command.kind != "charge":
        raise Malformed(f"{where}.command.kind", f"must be 'charge' at this path, not '{command.kind}'")
    try:
        context.caller.check_actor(command.actor)
        context.binding.check(signature, "POST", context.path, command.id)
        require_visible(context.facts, context.caller, submission)
    except Problem as problem:
        return problem
    return submission


def _problem(problem: Problem) -> c.Object:
    return {"problem": problem.details.to_json(), "status": problem.status}
