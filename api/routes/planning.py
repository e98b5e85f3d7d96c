"""Routes that answer what-if questions: what a run would get, what a policy or a merger would change."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter
from fastapi.responses import Response
from msgspec import structs

from api.auth.authentication import Calling
from api.auth.visibility import get_visible, not_found, visible_partition
from api.http.answers import Page
from api.http.body import Document, Raw
from api.http.field_types import EntityTag
from api.http.problems import Problem
from api.http.snapshots import SnapshotProvider
from api.routes.if_match import tag_replaced
from api.wire import command_requests
from api.wire.responses import BINARY, BYTES_TYPE, json_response, shows, takes
from ledger.domain.command import COMMAND_BYTES_MAX
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, distinct
from ledger.wire.records import Record, convert
from policy.planning.merger_impact import MergedAccount, merged_accounts
from policy.planning.plan_report import PlanReport, first_since, report
from policy.planning.policy_impact import Impact, impact
from policy.planning.what_if import PlannedRun, WhatIf

RATE_MS: Final = 30 * 86_400_000
"""How far back charges count for the present rate."""
PENDING_MAX: Final = 10_000
_EVER: Final = 2**62
_ERRORS: Final = (401, 403, 404, 408, 413, 415, 422)


class MergerQuestion(Record, frozen=True):
    """Organisations that might merge."""

    organisations: Annotated[tuple[Did, ...], distinct(16)]


class PolicyImpact(Impact, frozen=True):
    """What a policy would change; what stays the same is not listed."""

    replaces: EntityTag | None


def planning_router(snapshots: SnapshotProvider) -> APIRouter:
    """POST routes that record nothing."""
    router = APIRouter(tags=["planning"])
    _add_plans(router, snapshots)
    _add_impacts(router, snapshots)
    return router


def _add_plans(router: APIRouter, snapshots: SnapshotProvider) -> None:
    @router.post(
        "/v1/plans",
        operation_id="plan_run",
        responses=shows(PlanReport, *_ERRORS),
        openapi_extra=takes(command_requests.PlannedRun),
    )
    def plan(raw: Raw, caller: Calling) -> Response:
        run = PlannedRun.parse(c.parse(raw, COMMAND_BYTES_MAX), caller.organisation)
        with snapshots.read_long() as facts:
            for ref in run.partitions:
                visible_partition(facts, ref, "partitions", caller)
            get_visible(facts.contracts.get(run.contract), caller.sees_contract, facts, f"contract {run.contract}")
            now = snapshots.time(facts)
            since = now - RATE_MS
            first = first_since(facts.size, facts.entry, since)
            return json_response(report(WhatIf(facts, run, now), first, since))


def _add_impacts(router: APIRouter, snapshots: SnapshotProvider) -> None:
    @router.post(
        "/v1/policy-impacts",
        operation_id="ask_policy_impact",
        responses=shows(PolicyImpact, *_ERRORS),
        openapi_extra=takes(BINARY, BYTES_TYPE),
    )
    def policy_impact(raw: Document, caller: Calling) -> Response:
        with snapshots.read_long() as facts:
            pending = facts.due(_EVER, PENDING_MAX + 1)
            if len(pending) > PENDING_MAX:
                raise Problem(
                    Code.CONFLICT,
                    f"more than {PENDING_MAX} charges are pending: use 'epsilon policy impact' on the book itself",
                )
            found = impact(facts, raw, snapshots.time(facts), pending)
            replaces = tag_replaced(facts, "policy", raw, caller)
            return json_response(PolicyImpact(**structs.asdict(found), replaces=replaces))

    @router.post(
        "/v1/merger-impacts",
        operation_id="ask_merger_impact",
        responses=shows(Page[MergedAccount], *_ERRORS),
        openapi_extra=takes(MergerQuestion),
    )
    def merger_impact(raw: Raw, _caller: Calling) -> Response:
        named = convert(MergerQuestion, c.parse(raw, COMMAND_BYTES_MAX)).organisations
        with snapshots.read_long() as facts:
            for did in named:
                if did not in facts.organisations:
                    raise not_found(f"organisation {did}")
            merged = merged_accounts(facts, named, snapshots.time(facts))
            return json_response(Page(items=merged, next_cursor=None))
