"""Who knows what, written another way: a Python set of runs for each place where organisations stand.

No graph, no cuts, no arrows: an event copies sets. Collusion found later is played by playing everything again from
the first event, with the colluders sharing what they know after every event from the date on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Sets:
    """What is known at each node, by the node's index; a node is where organisations stand, or once stood.

    Attributes:
        stands: each organisation's node.
        ancestry: per run, what its author knew when it asked, the run itself included.
        follows: per coalition, its members.
        family: per collusion not found yet, the nodes of those who take part in it, and of all who succeed them.
    """

    knows: dict[int, set[str]] = field(default_factory=dict)
    stands: dict[str, int] = field(default_factory=dict)
    ancestry: dict[str, set[str]] = field(default_factory=dict)
    public: set[str] = field(default_factory=set)
    follows: dict[int, tuple[str, ...]] = field(default_factory=dict)
    family: dict[int, set[int]] = field(default_factory=dict)

    def play(self, index: int, kind: str, *rest: Any) -> None:  # noqa: ANN401 - what the event names
        """One event."""
        getattr(self, f"_{kind}")(index, *rest)
        self.settle()

    def settle(self) -> None:
        """Whoever shares, shares: colluders among each other, members with their coalition."""
        for family in self.family.values():
            standing = family & set(self.stands.values())
            union = self._union(standing)
            for node in standing:
                self.knows[node] = set(union)
        for coalition, members in self.follows.items():
            self.knows[coalition] |= self._union(self.stands[did] for did in members)

    def _union(self, nodes: Any) -> set[str]:  # noqa: ANN401 - any iterable
        return set().union(*(self.knows[node] for node in nodes))

    def _register(self, index: int, did: str) -> None:
        self.knows[index], self.stands[did] = set(self.public), index

    def _charge(self, index: int, name: str, did: str) -> None:
        del index
        self.knows[self.stands[did]].add(name)
        self.ancestry[name] = set(self.knows[self.stands[did]])

    def _move(self, index: int, dids: list[str], nodes: set[int]) -> None:
        self.knows[index] = self._union(nodes)
        for family in self.family.values():
            if family & nodes:
                family.add(index)
        for did in dids:
            self.stands[did] = index

    def _merge(self, index: int, dids: tuple[str, ...]) -> None:
        nodes = {self.stands[did] for did in dids}
        self._move(index, [did for did, node in self.stands.items() if node in nodes], nodes)

    def _split(self, index: int, parent: str, child: str) -> None:
        one, other = self.stands[parent], self.stands[child]
        moving = [child] if one == other else [did for did, node in self.stands.items() if node == other]
        self._move(index, moving, {one, other})
        for coalition, members in self.follows.items():
            if parent in members:
                self.follows[coalition] = (*members, child)

    def _transfer(self, index: int, name: str, giver: str, recipient: str, planned: bool) -> None:  # noqa: FBT001
        given = self.ancestry[name] if planned else self.knows[self.stands[giver]]
        self.knows[index] = set(given)
        self.knows[self.stands[recipient]] |= given

    def _publication(self, index: int, giver: str, declared: str = "") -> None:
        self.public |= self.ancestry[declared] if declared else self.knows[self.stands[giver]]
        self.knows[index] = set(self.public)
        for node in set(self.stands.values()):
            self.knows[node] |= self.public

    def _coalition(self, index: int, members: tuple[str, ...]) -> None:
        self.follows[index], self.knows[index] = members, set()

    def _collusion(self, index: int, which: int) -> None:
        standing = self.family.pop(which) & set(self.stands.values())
        self._move(index, [did for did, node in self.stands.items() if node in standing], standing)


def replayed(log: list[tuple[int, int, tuple[Any, ...]]], suspects: list[tuple[int, tuple[str, ...]]]) -> Sets:
    """Everything again, with each group of suspects sharing what they know since their date.

    Args:
        log: per event its time, its index and what it was; the ``collusion`` events name a group by its place.
        suspects: per group since when, and who.
    """
    sets, begun = Sets(), set[int]()
    for time, index, event in log:
        for which, (since, dids) in enumerate(suspects):
            if which not in begun and (time > since or event == ("collusion", which)):
                begun.add(which)
                sets.family[which] = {sets.stands[did] for did in dids}
                sets.settle()
        sets.play(index, *event)
    return sets
