"""Routes over the lineage: the graph around an organisation, declared coalitions, and the smallest possible ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated, Final

from fastapi import Path, Query

from api.auth.visibility import not_found, visible_partition
from api.http.field_types import PathDid, QueryRef
from api.http.query_parameters import At, Place
from api.routes.read_routes import ReadRoutes, View
from api.routes.registry import organisation_of
from api.wire.lineage_answers import Coalition, Exposure, Lineage, LineageNode
from ledger.domain.facts import Facts, Partition, holder_of
from ledger.domain.organisation_graph import Arrow, Node, NodeKind, forebears
from ledger.filters import NoRoom, read_rule
from ledger.organisation_lineage.coalitions import exposure_of
from ledger.store.snapshot import Snapshot
from ledger.wire.exact_numbers import ceil_decimal, parse_positive
from ledger.wire.malformed import Malformed
from policy.planning.account_caps import AccountStatus, account_status, partition_bounds
from policy.planning.coalition_search import SmallestCoalitions, coalitions
from policy.planning.shared_account import coalition_as_shown

ROUTES: Final = ReadRoutes("lineage")
NODES_MAX: Final = 200
"""Nodes of one answer; the nearest come first."""
MEMBERS_MAX: Final = 16
NUMBER: Final = r"^(0|[1-9][0-9]{0,17})(\.[0-9]{0,17}[1-9])?$"
"""An ε as a decimal string, as :func:`ledger.wire.exact_numbers.parse_number` reads it."""


@ROUTES.route("/v1/lineage/{did}", as_of=True)
def read_lineage(view: View, did: PathDid) -> Lineage:
    """The nodes around an organisation. Raises: Malformed, Problem."""
    caller, facts = view.caller, view.facts
    registered = facts.organisations.get(did)
    own = caller.sees_all or did == caller.organisation
    if not own and (registered is None or not _knows_own(facts, registered.node, caller.organisation)):
        raise not_found(f"organisation {did}")
    organisation = organisation_of(facts, did)
    nodes, complete = nodes_around(facts, organisation.node, every=caller.sees_all or not own)
    if not own:
        nodes = [node for node in nodes if _knows_own(facts, node.index, caller.organisation)]
        kept = {node.index for node in nodes}
        nodes = [shown_among(node, kept) for node in nodes]
    fetch_names(facts, nodes)
    shown = tuple(LineageNode.of_node(facts, node) for node in nodes)
    return Lineage(complete=complete, node=organisation.node, nodes=shown, organisation=did)


def _knows_own(facts: Facts, node: int, provider: str) -> bool:
    """Whether a node has an account on a partition of this provider."""
    return any(
        facts.partitions[account.partition].provider == provider for account in facts.accounts_of(holder_of(node))
    )


def fetch_names(facts: Facts, nodes: Iterable[Node]) -> None:
    """Read the organisations that name these nodes, in one statement."""
    if isinstance(facts, Snapshot):
        facts.organisations.fetch_keys([*{did for node in nodes for did in (*node.members, node.organisation)}])


def shown_among(node: Node, nodes: set[int]) -> Node:
    """A node with its arrows to these nodes alone."""
    return replace(node, parents=_among(node.parents, nodes), children=_among(node.children, nodes))


def _among(arrows: tuple[Arrow, ...], nodes: set[int]) -> tuple[Arrow, ...]:
    return tuple(arrow for arrow in arrows if arrow.node in nodes)


def nodes_around(facts: Facts, start: int, *, every: bool) -> tuple[list[Node], bool]:
    """The nodes around an organisation's, the nearest first, and whether these are all.

    Args:
        every: along all arrows, both ways. Else what the organisation itself sees: where it is and was, what it gave
            and got there, and who is at the other end; whom else those gave a model is theirs. Arrows lead to these
            nodes alone.
    """
    own = None if every else forebears(facts.nodes, [start])
    queue, reached = [start], {start}
    nodes: list[Node] = []
    for at in queue:
        if len(nodes) == NODES_MAX:
            break
        node = facts.nodes[at]
        nodes.append(node)
        follows = _followed(node, is_own=own is None or at in own)
        fresh = [arrow.node for arrow in follows if arrow.node not in reached]
        queue += dict.fromkeys(fresh)
        reached.update(fresh)
    kept = {node.index for node in nodes}
    return nodes if every else [shown_among(node, kept) for node in nodes], len(queue) == len(nodes)


def _followed(node: Node, *, is_own: bool) -> tuple[Arrow, ...]:
    """The arrows behind which an organisation sees more."""
    if is_own or node.kind in {NodeKind.MODEL, NodeKind.COALITION}:
        return *node.parents, *node.children
    return node.parents if node.kind is NodeKind.PUBLIC else ()


@ROUTES.route("/v1/coalitions/{index}", as_of=True)
def read_coalition(view: View, index: Annotated[Place, Path(description="the index of its entry")]) -> Coalition:
    """A declared coalition. Raises: Problem."""
    node = view.facts.nodes.get(index)
    if node is None or node.kind is not NodeKind.COALITION:
        raise not_found(f"coalition {index}")
    return Coalition.of_node(view.facts, node, accounts=_accounts(view, node))


@ROUTES.route("/v1/smallest-coalitions", slow=True)
def read_smallest_coalitions(
    view: View,
    partition: QueryRef,
    epsilon: Annotated[str | None, Query(pattern=NUMBER, description="the cap")] = None,
    at: At = None,
) -> SmallestCoalitions:
    """The smallest sets of organisations that could exceed a cap. Raises: Malformed, Problem."""
    cap = None if epsilon is None else parse_positive(epsilon, "epsilon")
    ref = _watched(view, partition).ref
    smallest = coalitions(view.facts, view.time if at is None else at, [ref], cap)
    if not smallest:
        raise not_found(f"cap on {ref} that a coalition could exceed")
    return smallest[0]


@ROUTES.route("/v1/exposures", slow=True)
def read_exposure(
    view: View,
    partition: QueryRef,
    member: Annotated[list[str], Query(max_length=MEMBERS_MAX, description="an organisation; once for each")],
) -> Exposure:
    """What a set of organisations can know of a partition. Raises: Malformed, Problem."""
    watched = _watched(view, partition)
    members = tuple(organisation_of(view.facts, did).did for did in member)
    rule = read_rule(watched.terms)
    loss = exposure_of(view.facts, watched.ref, members)
    try:
        share = ceil_decimal(rule.share(loss, rule.cap(watched.epsilon)), 4)
    except NoRoom:
        share = None
    if not members:
        raise Malformed("member", "is required at least once")
    return Exposure(members=tuple(sorted(members)), partition=watched.ref, share_of_budget=share)


def _watched(view: View, ref: str) -> Partition:
    """A partition whose consumers the caller may watch. Raises: Malformed, Problem."""
    partition = visible_partition(view.facts, ref, "partition", view.caller)
    if not view.caller.sees_all and partition.provider != view.caller.organisation:
        raise not_found(f"partition {ref}")
    return partition


def _accounts(view: View, node: Node) -> tuple[AccountStatus, ...]:
    """Accounts of the coalition, pending counted in full: the share, and nothing about single members.

    A member sees those of partitions that it may see, with the part of the other members rounded up.
    """
    accounts, now, caller = list[AccountStatus](), view.time, view.caller
    member = view.facts.organisations.get(caller.organisation) if caller.organisation in node.members else None
    for account in view.facts.accounts_of(holder_of(node.index)):
        partition = view.facts.partitions[account.partition]
        bounds = partition_bounds(view.facts, partition, now)
        if bounds is None or not caller.sees_partition(partition, view.facts):
            continue
        facts: Facts | None = view.facts if caller.watches(partition) else None
        if facts is None and member is not None:
            facts = coalition_as_shown(view.facts, partition, account.holder, now, holder_of(member.node))
        if facts is not None:
            accounts.append(account_status(facts, facts.accounts[partition.ref, account.holder], bounds))
    return tuple(accounts)
