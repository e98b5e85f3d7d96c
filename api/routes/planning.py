"""Routes that answer what-if questions: what a run would get, what a policy or a merger would change."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter
from fastapi.responses import Response

from api.auth.authentication import Calling
from api.auth.visibility import get_visible, not_found, visible_partition
from api.http.answers import Page
from api.http.body import Document, Raw
from api.http.problems import Problem
from api.routes.if_match import tag_replaced
from api.wire import command_requests
from api.wire.planning_answers import JoinedAccount, PlanReport, PolicyImpact
from api.wire.responses import BINARY, BYTES_TYPE, json_response, shows, takes
from ledger.domain.commands import COMMAND_BYTES_MAX
from ledger.domain.entries import Entry
from ledger.domain.outcomes import Code
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, distinct
from ledger.wire.records import Record, convert
from policy.planning.merger_impact import merged_accounts
from policy.planning.plan_report import report
from policy.planning.policy_impact import impact
from policy.planning.what_if import PlannedRun, WhatIf

if TYPE_CHECKING:
    from api.http.snapshots import SnapshotProvider
    from ledger.store.snapshot import Snapshot

RATE_MS: Final = 30 * 86_400_000
"""How far back charges count for the present rate."""
PENDING_MAX: Final = 10_000
_EVER: Final = 2**62
_ERRORS: Final = (401, 403, 404, 408, 413, 415, 422)


class MergerQuestion(Record, frozen=True):
    """Organisations that might merge."""

    organisations: Annotated[tuple[Did, ...], distinct(16)]


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
            return json_response(convert(PlanReport, report(WhatIf(facts, run, now), _first(facts, since), since)))


def _first(facts: Snapshot, since: int) -> int:
    """The index of the first entry at or after a time; entries are in order of time."""
    return bisect_left(range(facts.size), since, key=lambda index: Entry.parse(facts.entry(index)).time)


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
            found = impact(facts, raw, snapshots.time(facts), pending).to_json()
            replaces = tag_replaced(facts, "policy", raw, caller)
            return json_response(convert(PolicyImpact, {**found, "replaces": replaces}))

    @router.post(
        "/v1/merger-impacts",
        operation_id="ask_merger_impact",
        responses=shows(Page[JoinedAccount], *_ERRORS),
        openapi_extra=takes(MergerQuestion),
    )
    def merger_impact(raw: Raw, _caller: Calling) -> Response:
        named = convert(MergerQuestion, c.parse(raw, COMMAND_BYTES_MAX)).organisations
        with snapshots.read_long() as facts:
            for did in named:
                if did not in facts.organisations:
                    raise not_found(f"organisation {did}")
            merged = merged_accounts(facts, named, snapshots.time(facts))
            return json_response(
                Page(items=tuple(convert(JoinedAccount, one.to_json()) for one in merged), next_cursor=None)
            )
