"""Answers about the lineage: its nodes and arrows, coalitions, and exposures."""

from __future__ import annotations

from typing import Annotated, Self

from msgspec import Meta

from api.http.field_types import Node, Ref, ReportedNumber, RoundedUp, Time, one_of
from ledger.domain import organisation_graph as graph
from ledger.domain.facts import Facts, holder_of
from ledger.organisation_lineage.holder_names import holder_name
from ledger.wire.exact_numbers import format_number
from ledger.wire.field_types import Did
from ledger.wire.records import Record
from policy.planning.account_caps import AccountStatus


class Arrow(Record, frozen=True):
    """One node knows what another knew."""

    before: (
        Annotated[
            int,
            Meta(ge=0, le=2**53 - 1, description="of what was known before this entry; null for all, for ever"),
        ]
        | None
    )
    node: Node


class LineageNode(Record, frozen=True):
    """A node of the lineage, with its arrows."""

    children: tuple[Arrow, ...]
    epsilon: ReportedNumber | None
    index: Node
    kind: Annotated[str, one_of(*graph.NodeKind)]
    members: tuple[Did, ...]
    name: Annotated[str, Meta(description="who it is, in words")]
    organisation: Did | None
    parents: tuple[Arrow, ...]
    time: Time

    @classmethod
    def of_node(cls, facts: Facts, node: graph.Node, **fields: object) -> Self:
        """A node of the graph with its name; ``fields`` are those that only a class made from this one has."""
        return cls.project(
            node,
            children=tuple(map(Arrow.project, node.children)),
            epsilon=None if node.epsilon is None else format_number(node.epsilon),
            name=holder_name(facts, holder_of(node.index)),
            parents=tuple(map(Arrow.project, node.parents)),
            **fields,
        )


class Lineage(Record, frozen=True):
    """The lineage around an organisation, nearest nodes first."""

    complete: Annotated[bool, Meta(description="whether every node within reach is listed")]
    node: Node
    nodes: tuple[LineageNode, ...]
    organisation: Did


class Coalition(LineageNode, frozen=True):
    """A declared coalition, and its accounts that the caller may see."""

    accounts: tuple[AccountStatus, ...]


class Exposure(Record, frozen=True):
    """Null where the partition's rule admits nothing at all."""

    members: tuple[Did, ...]
    partition: Ref
    share_of_budget: RoundedUp | None
