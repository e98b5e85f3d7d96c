"""Routes over the lineage: the graph around an organisation, declared coalitions, and the smallest possible ones."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.auth.authentication import Calling
from api.auth.authorisation import Caller
from api.auth.visibility import not_found, visible_partition
from api.http.etags import tagged_response
from api.http.field_types import PLACE_PATTERN, PathDid, QueryRef
from api.http.snapshots import AsOf
from api.routes.registry import organisation_of
from api.wire.lineage_answers import Coalition, Exposure, Lineage, LineageNode
from api.wire.planning_answers import SmallestCoalitions, Standing
from api.wire.responses import json_response, shows, shows_tagged
from ledger.domain.facts import Facts, holder_of
from ledger.domain.lineage_graph import Node, NodeKind
from ledger.filters import NoRoom, read_rule
from ledger.lineage.coalitions import exposure_of
from ledger.wire.exact_numbers import ceil_decimal, parse_positive
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert
from policy.planning.account_caps import account_status, partition_bounds
from policy.planning.coalition_search import coalitions

if TYPE_CHECKING:
    from api.http.snapshots import SnapshotProvider
    from ledger.book.past_snapshot import PastSnapshot
    from ledger.store.snapshot import Snapshot

NODES_MAX: Final = 200
"""Nodes of one answer; the nearest come first."""
MEMBERS_MAX: Final = 16
_MISSING: Final = (401, 403, 404, 422)
NUMBER: Final = r"^(0|[1-9][0-9]{0,17})(\.[0-9]{0,17}[1-9])?$"
"""An ε as a decimal string, as :func:`ledger.wire.exact_numbers.parse_number` reads it."""


def lineage_router(snapshots: SnapshotProvider) -> APIRouter:
    """GET routes over the lineage."""
    router = APIRouter(tags=["lineage"])
    _add_graph(router, snapshots)
    _add_coalitions(router, snapshots)
    return router


def _add_graph(router: APIRouter, snapshots: SnapshotProvider) -> None:
    @router.get(
        "/v1/lineage/{did}",
        operation_id="read_lineage",
        responses=shows_tagged(Lineage, *_MISSING),
    )
    def read_lineage(request: Request, did: PathDid, caller: Calling, as_of: AsOf = None) -> Response:
        with snapshots.read(as_of) as facts:
            if not caller.sees_all and did != caller.organisation:
                raise not_found(f"organisation {did}")
            found = organisation_of(facts, did)
            nodes, complete = _around(facts, found.node)
            shown = tuple(map(LineageNode.of_node, nodes))
            return tagged_response(request, Lineage(complete=complete, node=found.node, nodes=shown, organisation=did))


def _around(facts: Facts, start: int) -> tuple[list[Node], bool]:
    """Breadth first along arrows both ways."""
    todo, seen = [start], {start}
    found: list[Node] = []
    for at in todo:
        if len(found) == NODES_MAX:
            return found, False
        node = facts.nodes[at]
        found.append(node)
        fresh = [one.node for one in (*node.parents, *node.children) if one.node not in seen]
        todo += dict.fromkeys(fresh)
        seen.update(fresh)
    return found, True


def _add_coalitions(router: APIRouter, snapshots: SnapshotProvider) -> None:
    @router.get(
        "/v1/coalitions/{index}",
        operation_id="read_coalition",
        responses=shows_tagged(Coalition, *_MISSING),
    )
    def read_coalition(
        request: Request, index: Annotated[str, _Index], caller: Calling, as_of: AsOf = None
    ) -> Response:
        with snapshots.read(as_of) as facts:
            node = facts.nodes.get(int(index))
            if node is None or node.kind is not NodeKind.COALITION:
                raise not_found(f"coalition {index}")
            accounts = _accounts(facts, node, snapshots.time(facts), caller)
            return tagged_response(request, Coalition.of_node(node, accounts=accounts))

    @router.get(
        "/v1/smallest-coalitions",
        operation_id="read_smallest_coalitions",
        responses=shows(SmallestCoalitions, *_MISSING),
    )
    def read_smallest(
        partition: QueryRef,
        caller: Calling,
        epsilon: Annotated[str | None, Query(pattern=NUMBER, description="the cap")] = None,
    ) -> Response:
        cap = None if epsilon is None else parse_positive(epsilon, "epsilon")
        with snapshots.read_long() as facts:
            ref = _watched(facts, partition, caller)
            found = coalitions(facts, snapshots.time(facts), [ref], cap)
            if not found:
                raise not_found(f"cap on {ref} that a coalition could exceed")
            return json_response(convert(SmallestCoalitions, found[0].to_json()))

    @router.get(
        "/v1/exposures",
        operation_id="read_exposure",
        responses=shows(Exposure, *_MISSING),
    )
    def read_exposure(
        partition: QueryRef,
        member: Annotated[list[str], Query(max_length=MEMBERS_MAX, description="an organisation; once for each")],
        caller: Calling,
    ) -> Response:
        with snapshots.read_long() as facts:
            ref = _watched(facts, partition, caller)
            members = tuple(organisation_of(facts, did).did for did in member)
            return json_response(_exposure(facts, ref, members))


_Index = Path(pattern=PLACE_PATTERN, description="the index of its entry")


def _watched(facts: Facts, ref: str, caller: Caller) -> str:
    """A partition whose consumers the caller may watch. Raises: Malformed, Problem."""
    found = visible_partition(facts, ref, "partition", caller)
    if not caller.sees_all and found.provider != caller.organisation:
        raise not_found(f"partition {ref}")
    return found.ref


def _accounts(facts: Snapshot | PastSnapshot, node: Node, now: int, caller: Caller) -> tuple[Standing, ...]:
    """Accounts of the coalition, pending counted in full: the share, and nothing about single members."""
    found: list[Standing] = []
    for account in facts.accounts_of(holder_of(node.index)):
        partition = facts.partitions[account.partition]
        if caller.organisation not in node.members and not caller.sees_account(partition, account.holder, facts):
            continue
        bounds = partition_bounds(facts, partition, now)
        if bounds is not None:
            found.append(convert(Standing, account_status(facts, account, bounds).to_json()))
    return tuple(found)


def _exposure(facts: Facts, ref: str, members: tuple[str, ...]) -> Exposure:
    partition = facts.partitions[ref]
    rule = read_rule(partition.terms)
    loss = exposure_of(facts, ref, members)
    share: Fraction | None
    try:
        share = rule.share(loss, rule.cap(partition.epsilon))
    except NoRoom:
        share = None
    if not members:
        raise Malformed("member", "is required at least once")
    rounded = None if share is None else ceil_decimal(share, 4)
    return Exposure(members=tuple(sorted(members)), partition=ref, share_of_budget=rounded)
