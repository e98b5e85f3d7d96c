"""Routes that read what is charged: partitions, accounts, those that are frozen, and charges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from api.auth.authentication import Calling
from api.auth.visibility import get_visible, visible_partition
from api.http.answers import Page
from api.http.etags import tagged_response
from api.http.field_types import PathName, PathRef, QueryRef
from api.http.pagination import Paging, fetch_from, scope_of
from api.http.snapshots import AsOf
from api.wire import account_answers as answers
from api.wire.responses import json_response, shows, shows_tagged
from ledger.domain import facts as domain
from ledger.wire import canonical_json as c

if TYPE_CHECKING:
    from api.http.pagination import Cursors
    from api.http.snapshots import SnapshotProvider
    from api.keys.key_store import KeyStore
    from api.routes.progress import Progress

_MISSING = (401, 403, 404, 422)
_OneState = Annotated[str | None, Query(pattern="^(pending|posted|voided)$", description="those in one state")]


def account_router(snapshots: SnapshotProvider, cursors: Cursors, progress: Progress, key_store: KeyStore) -> APIRouter:
    """GET routes over accounts and charges."""
    router = APIRouter(tags=["accounts"])
    _add_partitions(router, snapshots, cursors, key_store)
    _add_accounts(router, snapshots, cursors)
    _add_charges(router, snapshots, cursors, progress)
    return router


def _add_partitions(router: APIRouter, snapshots: SnapshotProvider, cursors: Cursors, key_store: KeyStore) -> None:
    def answer(found: domain.Partition) -> answers.Partition:
        return answers.Partition.of_record(found, key_given=key_store.gives(found.provider))

    @router.get(
        "/v1/partitions", operation_id="list_partitions", responses=shows(Page[answers.Partition], 401, 403, 422)
    )
    def list_partitions(caller: Calling, paging: Paging) -> Response:
        with snapshots.read() as facts:

            def show(found: domain.Partition) -> answers.Partition | None:
                return answer(found) if caller.sees_partition(found, facts) else None

            return json_response(cursors.page("partitions", paging, fetch_from(facts.partitions), show))

    @router.get(
        "/v1/partitions/{ref:path}",
        operation_id="read_partition",
        responses=shows_tagged(answers.Partition, *_MISSING),
    )
    def read_partition(request: Request, ref: PathRef, caller: Calling, as_of: AsOf = None) -> Response:
        with snapshots.read(as_of) as facts:
            return tagged_response(request, answer(visible_partition(facts, ref, "ref", caller)))


def _add_accounts(router: APIRouter, snapshots: SnapshotProvider, cursors: Cursors) -> None:
    @router.get("/v1/accounts", operation_id="read_accounts", responses=shows(answers.AccountPage, *_MISSING))
    def read_accounts(partition: QueryRef, caller: Calling, paging: Paging, as_of: AsOf = None) -> Response:
        with snapshots.read(as_of) as facts:
            found = visible_partition(facts, partition, "partition", caller)
            accounts = answers.AccountBook.at(facts, found, snapshots.time(facts))

            def show(account: domain.Account) -> answers.Account | None:
                return accounts.account(account) if caller.sees_account(found, account.holder, facts) else None

            fetch = fetch_from(facts.accounts, partition=found.ref)
            scope = scope_of("accounts", partition=found.ref, as_of=as_of)
            return json_response(accounts.page(cursors.page(scope, paging, fetch, show)))

    @router.get(
        "/v1/frozen-accounts",
        operation_id="list_frozen_accounts",
        responses=shows(Page[answers.FrozenAccount], *_MISSING),
    )
    def list_frozen(partition: QueryRef, caller: Calling, paging: Paging, as_of: AsOf = None) -> Response:
        with snapshots.read(as_of) as facts:
            found = visible_partition(facts, partition, "partition", caller)
            accounts = answers.AccountBook.at(facts, found, snapshots.time(facts))

            def show(account: domain.Account) -> answers.FrozenAccount | None:
                return accounts.frozen(account) if caller.sees_account(found, account.holder, facts) else None

            fetch = fetch_from(facts.accounts, partition=found.ref)
            scope = scope_of("frozen-accounts", partition=found.ref, as_of=as_of)
            return json_response(cursors.page(scope, paging, fetch, show))


def _add_charges(router: APIRouter, snapshots: SnapshotProvider, cursors: Cursors, progress: Progress) -> None:
    @router.get("/v1/charges", operation_id="list_charges", responses=shows(Page[answers.Charge], *_MISSING))
    def list_charges(
        caller: Calling,
        paging: Paging,
        partition: Annotated[str | None, Query(max_length=600, description="those on one partition")] = None,
        state: _OneState = None,
        as_of: AsOf = None,
    ) -> Response:
        with snapshots.read(as_of) as facts:
            if partition is not None:
                visible_partition(facts, partition, "partition", caller)

            def show(found: domain.Charge) -> answers.Charge | None:
                wanted = partition in {None, *found.partitions} and state in {None, found.state.value}
                return answers.Charge.of(found) if wanted and caller.sees_charge(found, facts) else None

            scope = scope_of("charges", partition=partition, state=state, as_of=as_of)
            return json_response(cursors.page(scope, paging, fetch_from(facts.charges), show))

    @router.get(
        "/v1/charges/{id}", operation_id="read_charge", responses=shows_tagged(answers.ChargeWithProgress, *_MISSING)
    )
    def read_charge(request: Request, id: PathName, caller: Calling, as_of: AsOf = None) -> Response:  # noqa: A002 - the wire's name
        with snapshots.read(as_of) as facts:
            found = get_visible(facts.charges.get(c.name(id, "id")), caller.sees_charge, facts, f"charge {id}")
            reported = None if as_of is not None else progress.of(found.id)
            return tagged_response(request, answers.ChargeWithProgress.of(found, progress=reported))
