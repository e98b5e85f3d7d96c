"""A change to the lineage, drawn over the graph that stands: to be applied, or only to be asked about.

Nothing here changes what stands. A drawing holds the nodes that are new or changed, where organisations move to,
and at which nodes new knowledge comes in; from that follow the accounts that change, and what they become.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from ledger.domain.facts import Account, Facts, holder_of
from ledger.domain.lineage_graph import END, Arrow, Node, NodeKind, coalitions_of, descendants, forebears, knowers
from ledger.lineage.exposure import Sources, known


class Drawing:
    """What the entry at ``index`` does to the lineage.

    Attributes:
        nodes: the graph as it will stand.
        moves: the organisations that will stand at the new node.
    """

    def __init__(self, facts: Facts, index: int, time: int) -> None:
        """Begin with the graph as it stands."""
        self.facts, self.index, self._time = facts, index, time
        self.drawn: dict[int, Node] = {}
        self.nodes: ChainMap[int, Node] = ChainMap(self.drawn, facts.nodes)  # type: ignore[arg-type] # only read
        self.moves: tuple[str, ...] = ()
        self._gained: set[tuple[int, int]] = set()
        self._near: list[int] = []

    def node(self, kind: NodeKind, organisation: str, epsilon: Fraction | None = None) -> None:
        """The node of the entry, as yet without arrows."""
        self.drawn[self.index] = Node(self.index, self._time, kind, organisation, epsilon=epsilon)
        self._gained.add((self.index, self.index))

    def arrow(self, parent: int, child: int, before: int | None) -> None:
        """Let the child know what the parent knew at ``before``, or all it knows."""
        one, other = self.nodes[parent], self.nodes[child]
        arrows, back = (*one.children, Arrow(child, before)), (*other.parents, Arrow(parent, before))
        self.drawn[parent] = replace(one, children=arrows)
        self.drawn[child] = replace(self.nodes[child], parents=back)
        # Since when the child knows: an arrow between older nodes counts from the later of the two.
        self._gained.add((child, max(parent, child)))
        self._near.append(parent)

    def gather(self, organisations: Sequence[str], parents: Iterable[int]) -> None:
        """Organisations that stood at ``parents`` stand at the new node, which knows what those knew until now."""
        for parent in parents:
            self.arrow(parent, self.index, self.index)
        self._move(organisations)

    def _move(self, organisations: Sequence[str]) -> None:
        """Move organisations to the new node; the coalitions that follow them follow them there."""
        gone = set(organisations)
        self.moves = tuple(sorted(gone))
        left = dict.fromkeys(self.facts.organisations[did].node for did in self.moves)
        for node in left:
            stay = tuple(did for did in self.nodes[node].members if did not in gone)
            self.drawn[node] = replace(self.nodes[node], members=stay)
        self.drawn[self.index] = replace(self.nodes[self.index], members=self.moves)
        for coalition in dict.fromkeys(one for node in left for one in coalitions_of(self.nodes, node)):
            followed = set(self.nodes[coalition].members)
            if followed & gone:
                self.arrow(self.index, coalition, None)
            for node in left:
                if not followed & set(self.nodes[node].members):
                    self._unfollow(node, coalition)

    def follow(self, child: str, parent: str) -> None:
        """Let every coalition that follows an organisation follow the child too, which stands at the new node."""
        for coalition in coalitions_of(self.nodes, self.facts.organisations[parent].node):
            one = self.nodes[coalition]
            if parent not in one.members:
                continue
            self.drawn[coalition] = replace(one, members=tuple(sorted({*one.members, child})))
            if all(at.node != coalition for at in self.nodes[self.index].children):
                self.arrow(self.index, coalition, None)

    def _unfollow(self, node: int, coalition: int) -> None:
        """Nobody of the coalition stands there any more; what they knew there they took along."""
        one, other = self.nodes[node], self.nodes[coalition]
        self.drawn[node] = replace(one, children=tuple(at for at in one.children if at.node != coalition))
        self.drawn[coalition] = replace(other, parents=tuple(at for at in other.parents if at.node != node))

    def accounts(self) -> list[Account]:
        """Every account of a node that gains anything, as it will stand: the union of distinct runs."""
        changed = set[int]().union(*(knowers(self.nodes, node, since) for node, since in self._gained))
        sources, accounts = Sources(self.facts, self.index), []
        for node in sorted(changed):
            holder = holder_of(node)
            sums = sources.total(known(self.nodes, node, self.index), (node, *self._near))
            accounts += [
                Account(ref, holder, posted, pending)
                for ref, (posted, pending) in sorted(sums.items())
                if not (posted.empty and pending.empty) or (ref, holder) in self.facts.accounts
            ]
        return accounts


def joined(drawing: Drawing, organisation: str, parents: Sequence[int]) -> Drawing:
    """A merger or an acquisition: all that stand at ``parents`` are one body from now on."""
    drawing.node(NodeKind.ORGANISATION, organisation)
    drawing.gather(_members(drawing.facts, parents), parents)
    return drawing


def split(drawing: Drawing, organisation: str, child: str, nodes: tuple[int, int]) -> Drawing:
    """The child, at the second of ``nodes``, takes along all that the organisation, at the first, knows now.

    From the same node it goes alone: the group is divided. From another all that stand with it move. A coalition that
    follows the organisation follows the child too: else what its members know would be used outside of its cap.
    """
    drawing.node(NodeKind.ORGANISATION, child)
    parent, own = nodes
    drawing.gather((child,) if parent == own else drawing.facts.nodes[own].members, sorted({parent, own}))
    drawing.follow(child, organisation)
    return drawing


def handed(drawing: Drawing, giver: str, arrow: Arrow, recipient: int) -> Drawing:
    """A model handed over: a node that knows what the arrow brings, and the recipient's node knows it too."""
    drawing.node(NodeKind.MODEL, giver)
    drawing.arrow(arrow.node, drawing.index, arrow.before)
    drawing.arrow(drawing.index, recipient, None)
    return drawing


def published(drawing: Drawing, giver: str, node: int) -> Drawing:
    """A model made public: every lineage reaches it, and so does everyone registered later.

    Its giver knows what was published before, so that a new organisation needs an arrow from the newest alone.
    """
    drawing.node(NodeKind.PUBLIC, giver)
    drawing.arrow(node, drawing.index, drawing.index)
    for one in sorted({organisation.node for organisation in drawing.facts.organisations.values()}):
        drawing.arrow(drawing.index, one, None)
    return drawing


def registered(drawing: Drawing, did: str) -> Drawing:
    """A new organisation knows what is public."""
    drawing.node(NodeKind.ORGANISATION, did)
    drawing.drawn[drawing.index] = replace(drawing.drawn[drawing.index], members=(did,))
    if drawing.facts.publication is not None:
        drawing.arrow(drawing.facts.publication, drawing.index, None)
    return drawing


def declared(drawing: Drawing, actor: str, members: Sequence[str], epsilon: Fraction) -> Drawing:
    """A coalition that follows its members wherever they move."""
    drawing.node(NodeKind.COALITION, actor, epsilon)
    drawing.drawn[drawing.index] = replace(drawing.drawn[drawing.index], members=tuple(sorted(members)))
    for node in sorted({drawing.facts.organisations[did].node for did in members}):
        drawing.arrow(node, drawing.index, None)
    return drawing


def colluded(drawing: Drawing, organisations: Sequence[str], effective: int) -> Drawing:
    """Organisations that have known what each of them knew after ``effective``; from now on they are one lineage.

    Where they stood stays as it was. But a model that any of them handed over or made public since then carried what
    all of them knew at that moment, and so do copies of what its recipients knew: those arrows are added. Whoever
    was found to collude with one of them before is taken in with all its past: too much rather than too little.
    """
    facts = drawing.facts
    stood = {facts.organisations[did].stood(effective) for did in organisations}
    family = descendants(facts.nodes, stood, effective)
    parents = standing(facts, family)
    found = (node for node in family if facts.nodes[node].kind is NodeKind.COLLUSION)
    family |= forebears(facts.nodes, found)
    drawing.node(NodeKind.COLLUSION, organisations[0])
    drawing.gather(_members(facts, parents), parents)
    for model in _given_since(facts, family, effective):
        # The cut of what the giver gave: the moment of giving, or the charge whose ancestry alone was given.
        cut = max(arrow.cut for arrow in facts.nodes[model].parents if arrow.node in family)
        had = {arrow.node for arrow in facts.nodes[model].parents if arrow.cut >= cut}
        for node in sorted(family - had):
            if node < cut:
                drawing.arrow(node, model, cut)
    return drawing


def _given_since(facts: Facts, family: frozenset[int], effective: int) -> list[int]:
    given = {arrow.node for node in family for arrow in facts.nodes[node].children}
    kinds = (NodeKind.MODEL, NodeKind.PUBLIC)
    found = (facts.nodes[node] for node in given)
    return sorted(one.index for one in found if one.kind in kinds and one.time > effective)


def standing(facts: Facts, family: Iterable[int]) -> tuple[int, ...]:
    """Those nodes of a family at which somebody stands now."""
    return tuple(sorted(node for node in family if facts.nodes[node].members))


def _members(facts: Facts, nodes: Iterable[int]) -> tuple[str, ...]:
    return tuple(did for node in nodes for did in facts.nodes[node].members)


def would_be(facts: Facts, parents: Sequence[int]) -> list[Account]:
    """The accounts that a merger of those at ``parents`` would change: the union's and of coalitions that follow."""
    return joined(Drawing(facts, END - 1, 0), "", parents).accounts()
