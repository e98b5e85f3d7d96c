"""Coalition analysis: the exposure of a set of organisations, and the smallest coalitions over a cap.

It reads the current state and records nothing. Runs fall into *atoms*, the groups of runs that the same lineages know,
so the union of any coalition is a sum of atoms and each run counts once. A union is at most the sum of its parts at
every coordinate, and every rule's test is monotone. So if the k greatest losses, taken at each coordinate separately
and added, are still admitted, no coalition of k is over the cap: branch and bound prunes with that upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from typing import Final

from ledger.domain.facts import Facts, Span
from ledger.domain.organisation_graph import END
from ledger.filters import Cap, Rule, read_rule
from ledger.mechanisms.loss import Loss
from ledger.organisation_lineage.exposure import ExposureSums, known_spans

WORK_MAX: Final = 100_000
"""Nodes of the search tree (coalitions and their prefixes) that one search visits before it reports as incomplete."""
LISTED_MAX: Final = 100


_Atoms = tuple[tuple[int, Loss], ...]


def exposure_of(facts: Facts, partition: str, organisations: Iterable[str]) -> Loss:
    """The loss of a partition that these organisations may know together: pending in full, each run once."""
    cuts: dict[int, int] = {}
    nodes = sorted({facts.organisations[did].node for did in organisations})
    for span in (span for node in nodes for span in known_spans(facts.nodes, node, END)):
        cuts[span.author] = max(cuts.get(span.author, 0), span.before)
    return _sum(facts, partition, [Span(author, 0, cut) for author, cut in sorted(cuts.items())], nodes)


@dataclass(slots=True)
class _CoalitionSearch:
    """Lineages as bits of a mask, and atoms by the mask of the lineages that know them.

    Attributes:
        work: how many nodes of the search tree may still be visited.
    """

    rule: Rule
    cap: Cap
    names: tuple[str, ...]
    atoms: dict[int, Loss]
    work: int

    @classmethod
    def of(cls, facts: Facts, partition: str, cap: Cap, organisations: Iterable[str], work: int) -> _CoalitionSearch:
        """Gather the atoms."""
        at: dict[int, str] = {}
        for did in sorted(organisations):
            at.setdefault(facts.organisations[did].node, did)
        nodes = tuple(at)
        sources = ExposureSums(facts, END)
        atoms = {}
        for mask, spans in _spans_by_knowers(facts, nodes).items():
            near = (node for place, node in enumerate(nodes) if mask >> place & 1)
            posted_pending = sources.total(spans, near).get(partition)
            if posted_pending and not (loss := posted_pending[0] + posted_pending[1]).empty:
                atoms[mask] = loss
        rule = read_rule(facts.partitions[partition].terms)
        return cls(rule, cap, tuple(at.values()), atoms, work)

    def union(self, members: int) -> Loss:
        """The loss that a coalition knows, each run once."""
        zero = Loss.zero(len(self.rule.coordinates))
        return sum((loss for mask, loss in self.atoms.items() if mask & members), zero)

    def is_over(self, loss: Loss) -> bool:
        """Whether a loss is more than the cap allows."""
        return not self.rule.admits(loss, self.cap)

    def share(self, members: int) -> Fraction:
        """The share of capacity that a coalition uses."""
        return self.rule.share(self.union(members), self.cap)

    def bound(self) -> int:
        """The least k for which the k greatest losses at each coordinate, added, are over.

        A lineage that knows nothing beyond what another knows is of no use in a smallest coalition.
        """
        knows = {1 << place: {mask for mask in self.atoms if mask >> place & 1} for place in range(len(self.names))}
        alone = [
            self.union(bit)
            for bit, mine in knows.items()
            if mine and not any(mine < other or (mine == other and one < bit) for one, other in knows.items())
        ]
        return next(k for k in range(1, len(alone) + 1) if self.is_over(_greatest(alone, k)))

    def members(self, coalition: int) -> tuple[str, ...]:
        """One organisation for each of its lineages."""
        return tuple(name for place, name in enumerate(self.names) if coalition >> place & 1)

    def every(self, size: int) -> Iterator[int]:
        """Every coalition of a size that is over, until the work runs out; those of most use first."""
        bits = [1 << place for place in range(len(self.names))]
        knowing = [bit for bit in bits if any(mask & bit for mask in self.atoms)]
        ordered = tuple(sorted(knowing, key=lambda bit: (-self.share(bit), bit)))
        zero = Loss.zero(len(self.rule.coordinates))
        yield from self._every(ordered, (0, zero), tuple(self.atoms.items()), size)

    def _every(self, left: tuple[int, ...], so_far: tuple[int, Loss], rest: _Atoms, more: int) -> Iterator[int]:
        """Branch and bound: coalitions of the members so far, of this loss, and ``more`` of the lineages left."""
        members, has = so_far
        if not more:
            if self.is_over(has):
                yield members
            return
        zero = Loss.zero(len(has.finite))
        rest = tuple(member for member in rest if member[0] & sum(left))
        gains = [sum((loss for mask, loss in rest if mask & bit), zero) for bit in left]
        most = _lesser(_greatest(gains, more), sum((loss for _, loss in rest), zero))
        if len(left) < more or not self.is_over(has + most):
            return
        for place, bit in enumerate(left[: len(left) - more + 1]):
            self.work -= 1
            if self.work <= 0:
                return
            still = tuple(member for member in rest if not member[0] & bit)
            yield from self._every(left[place + 1 :], (members | bit, has + gains[place]), still, more - 1)


@dataclass(frozen=True, slots=True)
class SmallestCoalitions:
    """The smallest coalitions that are over a cap together.

    Attributes:
        coalitions: the members of each (one organisation for each lineage) and the share of capacity they use.
        searched: the search covered every coalition of at most this many lineages.
        complete: whether all of the smallest size are listed, or none is over.
    """

    coalitions: tuple[tuple[tuple[str, ...], Fraction], ...]
    searched: int
    complete: bool


def smallest_coalitions(  # noqa: PLR0913, PLR0917 - the question, and how much work it may be
    facts: Facts, partition: str, cap: Cap, organisations: Iterable[str], work: int = WORK_MAX, most: int = LISTED_MAX
) -> SmallestCoalitions:
    """The coalitions of the smallest size that is over a cap, among any number of organisations.

    The search takes one size after the other, from the least that is possible.

    Args:
        work: how many nodes of the search tree may be visited.
        most: how many coalitions are listed.
    """
    search = _CoalitionSearch.of(facts, partition, cap, organisations, work)
    everyone = (1 << len(search.names)) - 1
    if not search.is_over(search.union(everyone)):
        return SmallestCoalitions((), len(search.names), complete=True)
    for size in range(search.bound(), len(search.names) + 1):
        coalitions = list(islice(search.every(size), most + 1))
        complete = search.work > 0 and len(coalitions) <= most
        if coalitions or not complete:
            listed = sorted((search.members(mask), search.share(mask)) for mask in coalitions[:most])
            return SmallestCoalitions(tuple(listed), size if complete else size - 1, complete)
    raise AssertionError("all together are over, and so some coalition is")


def _spans_by_knowers(facts: Facts, nodes: Sequence[int]) -> dict[int, list[Span]]:
    """Which charges each set of lineages, and no other among them, knows."""
    cuts: dict[int, list[tuple[int, int]]] = {}
    for place, node in enumerate(nodes):
        for span in known_spans(facts.nodes, node, END):
            cuts.setdefault(span.author, []).append((span.before, 1 << place))
    spans: dict[int, list[Span]] = {}
    for author, ends in sorted(cuts.items()):
        first = 0
        for before in sorted({before for before, _ in ends}):
            mask = sum(bit for end, bit in ends if end >= before)
            spans.setdefault(mask, []).append(Span(author, first, before))
            first = before
    return spans


def _sum(facts: Facts, partition: str, spans: list[Span], near: Iterable[int]) -> Loss:
    total = ExposureSums(facts, END).total(spans, near).get(partition)
    coordinates = read_rule(facts.partitions[partition].terms).coordinates
    return total[0] + total[1] if total else Loss.zero(len(coordinates))


def _greatest(losses: Sequence[Loss], most: int) -> Loss:
    """At each coordinate apart, the sum of the ``most`` greatest."""

    def added(rows: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
        return tuple(sum(sorted(column, reverse=True)[:most]) for column in zip(*rows, strict=True))

    return Loss(added(loss.finite for loss in losses), added(loss.infinite for loss in losses))


def _lesser(loss: Loss, other: Loss) -> Loss:
    """The lesser at each coordinate apart."""
    return Loss(
        tuple(map(min, loss.finite, other.finite)),
        tuple(map(min, loss.infinite, other.infinite)),
    )
