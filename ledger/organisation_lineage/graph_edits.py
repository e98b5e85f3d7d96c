"""Edits of the lineage graph, prepared over the current graph: to be applied, or only to be previewed.

An edit holds the nodes that are new or changed, where organisations move to, and the nodes that gain exposure; the
accounts that change, and their new sums, follow from that. Only :meth:`LineageEdit.apply_to` changes the state.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from ledger.domain.facts import Account, Facts, holder_of
from ledger.domain.memory_state import MemoryState
from ledger.domain.organisation_graph import END, Arrow, Node, NodeKind, coalitions_of, knowers
from ledger.organisation_lineage.exposure import ExposureSums, known_spans


class LineageEdit:
    """The change that the entry at ``index`` makes to the lineage graph.

    Attributes:
        nodes: the graph after the edit.
        changed: the nodes that are new or replaced, by index.
        moves: the organisations that move to the new node.
    """

    def __init__(self, facts: Facts, index: int, time: int) -> None:
        """Start from the current graph."""
        self.facts, self.index, self._time = facts, index, time
        self.changed: dict[int, Node] = {}
        self.nodes: ChainMap[int, Node] = ChainMap(self.changed, facts.nodes)  # type: ignore[arg-type] # only read
        self.moves: tuple[str, ...] = ()
        self._gained: set[tuple[int, int]] = set()
        self._near: list[int] = []

    def add_node(
        self, kind: NodeKind, organisation: str, epsilon: Fraction | None = None, members: tuple[str, ...] = ()
    ) -> None:
        """Add the entry's node, without edges."""
        self.changed[self.index] = Node(self.index, self._time, kind, organisation, (), (), members, epsilon)
        self._gained.add((self.index, self.index))

    def add_edge(self, parent: int, child: int, before: int | None) -> None:
        """Add an edge: the child knows what the parent knew at ``before``, or everything it knows if that is None."""
        source, target = self.nodes[parent], self.nodes[child]
        arrows, back = (*source.children, Arrow(child, before)), (*target.parents, Arrow(parent, before))
        self.changed[parent] = replace(source, children=arrows)
        self.changed[child] = replace(self.nodes[child], parents=back)
        # An edge between older nodes counts from the later of the two.
        self._gained.add((child, max(parent, child)))
        self._near.append(parent)

    def merge_into(self, organisations: Sequence[str], parents: Iterable[int]) -> None:
        """Move organisations from ``parents`` to the new node, which knows all that the parents knew until now."""
        for parent in parents:
            self.add_edge(parent, self.index, self.index)
        self._move(organisations)

    def _move(self, organisations: Sequence[str]) -> None:
        """Move organisations to the new node, and with them the coalitions that follow them."""
        gone = set(organisations)
        self.moves = tuple(sorted(gone))
        former = dict.fromkeys(self.facts.organisations[did].node for did in self.moves)
        for node in former:
            stay = tuple(did for did in self.nodes[node].members if did not in gone)
            self.changed[node] = replace(self.nodes[node], members=stay)
        self.changed[self.index] = replace(self.nodes[self.index], members=self.moves)
        for coalition in dict.fromkeys(name for node in former for name in coalitions_of(self.nodes, node)):
            followed = set(self.nodes[coalition].members)
            if followed & gone:
                self.add_edge(self.index, coalition, None)
            for node in former:
                if not followed & set(self.nodes[node].members):
                    self._unfollow(node, coalition)

    def extend_coalitions(self, child: str, parent: str) -> None:
        """Add the child, at the new node, to every coalition that follows the parent organisation."""
        for coalition in coalitions_of(self.nodes, self.facts.organisations[parent].node):
            edited = self.nodes[coalition]
            if parent not in edited.members:
                continue
            self.changed[coalition] = replace(edited, members=tuple(sorted({*edited.members, child})))
            if all(at.node != coalition for at in self.nodes[self.index].children):
                self.add_edge(self.index, coalition, None)

    def _unfollow(self, node: int, coalition: int) -> None:
        """Remove the edge from a node that no member of the coalition is at: they took their exposure along."""
        member, followed = self.nodes[node], self.nodes[coalition]
        self.changed[node] = replace(member, children=tuple(at for at in member.children if at.node != coalition))
        self.changed[coalition] = replace(followed, parents=tuple(at for at in followed.parents if at.node != node))

    def accounts(self) -> list[Account]:
        """Every account that gains exposure, after the edit: the sum over the union of distinct runs."""
        changed = set[int]().union(*(knowers(self.nodes, node, since) for node, since in self._gained))
        sources, accounts = ExposureSums(self.facts, self.index), []
        for node in sorted(changed):
            holder = holder_of(node)
            sums = sources.total(known_spans(self.nodes, node, self.index), (node, *self._near))
            accounts += [
                Account(ref, holder, posted, pending)
                for ref, (posted, pending) in sorted(sums.items())
                if not (posted.empty and pending.empty) or (ref, holder) in self.facts.accounts
            ]
        return accounts

    def apply_to(self, state: MemoryState) -> None:
        """Apply the edit: the graph, each moved organisation's node, and the accounts that gain."""
        # Sums are put together from the accounts and the graph before the change.
        accounts = self.accounts()
        for index, node in self.changed.items():
            state.nodes[index] = node
        for did in self.moves:
            organisation = state.organisations[did]
            state.organisations[did] = replace(
                organisation, node=self.index, moves=(*organisation.moves, (self._time, self.index))
            )
        for account in accounts:
            state.accounts[account.partition, account.holder] = account


def merge(edit: LineageEdit, organisation: str, parents: Sequence[int]) -> LineageEdit:
    """A merger or an acquisition: all organisations at ``parents`` are one lineage from now on."""
    edit.add_node(NodeKind.ORGANISATION, organisation)
    edit.merge_into(members_at(edit.facts, parents), parents)
    return edit


def members_at(facts: Facts, nodes: Iterable[int]) -> tuple[str, ...]:
    """The organisations that are at these nodes now."""
    return tuple(did for node in nodes for did in facts.nodes[node].members)


def preview_merge(facts: Facts, parents: Sequence[int]) -> list[Account]:
    """The accounts that a merger of ``parents`` would change: the union's, and those of coalitions that follow."""
    return merge(LineageEdit(facts, END - 1, 0), "", parents).accounts()
