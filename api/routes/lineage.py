"""Routes over who knows what: the graph around an organisation, declared coalitions, and the smallest ones possible."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import Response

from api.auth.authentication import Calling
from api.auth.authorisation import Caller
from api.auth.visibility import not_found, visible_partition
from api.http.etags import versioned
from api.http.json_schema import (
    DID,
    FLAG,
    NODE,
    PLACE_PATTERN,
    REF,
    ROUNDED,
    TIME,
    TOLD,
    integer,
    nullable,
    one_of,
    record,
    several,
)
from api.http.snapshots import AsOf
from api.routes.registry import organisation_of
from api.wire.path_parameters import AskedRef, Did
from api.wire.planning_schemas import SMALLEST, STANDING
from api.wire.responses import json_response, shows, shows_version
from ledger.domain.facts import Facts, holder_of
from ledger.domain.lineage_graph import Arrow, Node, NodeKind
from ledger.filters import NoRoom, read_rule
from ledger.lineage.coalitions import exposure_of
from ledger.wire.exact_numbers import ceil_decimal, format_number, parse_positive
from ledger.wire.malformed import Malformed
from policy.planning.account_caps import account_status, partition_bounds
from policy.planning.coalition_search import coalitions

if TYPE_CHECKING:
    from api.http.snapshots import Moments
    from ledger.store.snapshot import Past, Snapshot
    from ledger.wire import canonical_json as c

NODES_MAX: Final = 200
"""Nodes of one answer; the nearest come first."""
MEMBERS_MAX: Final = 16
_MISSING: Final = (401, 403, 404, 422)
NUMBER: Final = r"^(0|[1-9][0-9]{0,17})(\.[0-9]{0,17}[1-9])?$"
"""An ε as a decimal string, as :func:`ledger.wire.exact_numbers.parse_number` reads it."""

_ARROW: Final = record(
    {"before": nullable(integer("of what was known before this entry; null for all, for ever")), "node": NODE},
    title="Arrow",
    description="one node knows what another knew",
)
_NODE: Final = {
    "children": several(_ARROW),
    "epsilon": nullable(TOLD),
    "index": NODE,
    "kind": one_of(*NodeKind),
    "members": several(DID),
    "organisation": nullable(DID),
    "parents": several(_ARROW),
    "time": TIME,
}
_LINEAGE: Final = record(
    {
        "complete": {**FLAG, "description": "whether all within reach are told"},
        "node": NODE,
        "nodes": several(record(_NODE, title="LineageNode")),
        "organisation": DID,
    },
    title="Lineage",
)
_COALITION: Final = record({**_NODE, "accounts": several(STANDING)}, title="Coalition")
_EXPOSURE: Final = record(
    {"members": several(DID), "partition": REF, "share_of_budget": nullable(ROUNDED)},
    title="Exposure",
    description="null where the partition's rule has no room at all",
)


def lineage_router(moments: Moments) -> APIRouter:
    """GET routes over the lineage."""
    router = APIRouter(tags=["lineage"])
    _add_graph(router, moments)
    _add_coalitions(router, moments)
    return router


def _add_graph(router: APIRouter, moments: Moments) -> None:
    @router.get(
        "/v1/lineage/{did}",
        operation_id="read_lineage",
        responses=shows_version(_LINEAGE, *_MISSING),
    )
    def read_lineage(request: Request, did: Did, caller: Calling, as_of: AsOf = None) -> Response:
        with moments.read(as_of) as facts:
            if not caller.sees_all and did != caller.organisation:
                raise not_found(f"organisation {did}")
            found = organisation_of(facts, did)
            nodes, complete = _around(facts, found.node)
            told: list[c.Json] = [_node(one) for one in nodes]
            return versioned(request, {"complete": complete, "node": found.node, "nodes": told, "organisation": did})


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


def _node(node: Node) -> c.Object:
    return {
        "children": [_arrow(one) for one in node.children],
        "epsilon": None if node.epsilon is None else format_number(node.epsilon),
        "index": node.index,
        "kind": node.kind.value,
        "members": list(node.members),
        "organisation": node.organisation,
        "parents": [_arrow(one) for one in node.parents],
        "time": node.time,
    }


def _arrow(arrow: Arrow) -> c.Json:
    return {"before": arrow.before, "node": arrow.node}


def _add_coalitions(router: APIRouter, moments: Moments) -> None:
    @router.get(
        "/v1/coalitions/{index}",
        operation_id="read_coalition",
        responses=shows_version(_COALITION, *_MISSING),
    )
    def read_coalition(
        request: Request, index: Annotated[str, _Index], caller: Calling, as_of: AsOf = None
    ) -> Response:
        with moments.read(as_of) as facts:
            node = facts.nodes.get(int(index))
            if node is None or node.kind is not NodeKind.COALITION:
                raise not_found(f"coalition {index}")
            return versioned(request, {**_node(node), "accounts": _accounts(facts, node, moments.time(facts), caller)})

    @router.get(
        "/v1/smallest-coalitions",
        operation_id="read_smallest_coalitions",
        responses=shows(SMALLEST, *_MISSING),
    )
    def read_smallest(
        partition: AskedRef,
        caller: Calling,
        epsilon: Annotated[str | None, Query(pattern=NUMBER, description="the cap")] = None,
    ) -> Response:
        cap = None if epsilon is None else parse_positive(epsilon, "epsilon")
        with moments.long() as facts:
            ref = _watched(facts, partition, caller)
            found = coalitions(facts, moments.time(facts), [ref], cap)
            if not found:
                raise not_found(f"cap on {ref} that a coalition could exceed")
            return json_response(found[0].to_json())

    @router.get(
        "/v1/exposures",
        operation_id="read_exposure",
        responses=shows(_EXPOSURE, *_MISSING),
    )
    def read_exposure(
        partition: AskedRef,
        member: Annotated[list[str], Query(max_length=MEMBERS_MAX, description="an organisation; once for each")],
        caller: Calling,
    ) -> Response:
        with moments.long() as facts:
            ref = _watched(facts, partition, caller)
            members = tuple(organisation_of(facts, did).did for did in member)
            return json_response(_exposure(facts, ref, members))


_Index = Path(pattern=PLACE_PATTERN, description="the index of its entry")


def _watched(facts: Facts, ref: str, caller: Caller) -> str:
    """A partition whose consumers are the caller's to watch. Raises: Malformed, Problem."""
    found = visible_partition(facts, ref, "partition", caller)
    if not caller.sees_all and found.provider != caller.organisation:
        raise not_found(f"partition {ref}")
    return found.ref


def _accounts(facts: Snapshot | Past, node: Node, now: int, caller: Caller) -> list[c.Json]:
    """Accounts of the coalition, pending counted in full: the share, and nothing of who did what."""
    found: list[c.Json] = []
    for account in facts.accounts_of(holder_of(node.index)):
        partition = facts.partitions[account.partition]
        if caller.organisation not in node.members and not caller.sees_account(partition, account.holder, facts):
            continue
        bounds = partition_bounds(facts, partition, now)
        if bounds is not None:
            found.append(account_status(facts, account, bounds).to_json())
    return found


def _exposure(facts: Facts, ref: str, members: tuple[str, ...]) -> c.Object:
    partition = facts.partitions[ref]
    rule = read_rule(partition.terms)
    loss = exposure_of(facts, ref, members)
    share: Fraction | None
    try:
        share = rule.share(loss, rule.cap(partition.epsilon))
    except NoRoom:
        share = None
    if not members:
        raise Malformed("member", "must be given at least once")
    told = None if share is None else ceil_decimal(share, 4)
    return {"members": [*sorted(members)], "partition": ref, "share_of_budget": told}
