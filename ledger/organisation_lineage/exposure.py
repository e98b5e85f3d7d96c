"""Exposure: the privacy loss of a partition that a holder can know, summed over the *distinct* runs its node reaches.

It is a sum over a set: two parents that share a run count it once, merging twice changes nothing, and the order of
mergers does not matter. Accounts store one sum per node and partition. A new sum is composed from stored ones and
corrected by the runs in their overlap alone, so merging two organisations with 10^5 runs each and none in common
reads no run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

from ledger.domain.facts import Facts, Span, holder_of
from ledger.domain.organisation_graph import Arrow, Node, reach
from ledger.mechanisms.loss import Loss

Sums = dict[str, tuple[Loss, Loss]]
"""By partition: posted and pending."""


def known_spans(nodes: Mapping[int, Node], node: int, size: int, before: int | None = None) -> list[Span]:
    """The spans of charges that a node knows, or knew at ``before``, in a log of ``size`` entries."""
    cuts = ((at, min(Arrow(at, cut).cut, size)) for at, cut in reach(nodes, node, before).items())
    return sorted(Span(at, 0, cut) for at, cut in cuts if at < cut)


def intersect(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """The intersection of two lists of spans, each without overlaps."""
    by_author: dict[int, list[Span]] = {}
    for one in others:
        by_author.setdefault(one.author, []).append(one)
    met = (
        Span(span.author, max(span.first, other.first), min(span.before, other.before))
        for span in spans
        for other in by_author.get(span.author, ())
    )
    return [span for span in met if span.first < span.before]


def subtract(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """The spans of the first list without those of the second."""
    by_author: dict[int, list[Span]] = {}
    for one in sorted(others):
        by_author.setdefault(one.author, []).append(one)
    rest = []
    for one in spans:
        first = one.first
        for other in by_author.get(one.author, ()):
            if first < min(other.first, one.before):
                rest.append(Span(one.author, first, min(other.first, one.before)))
            first = max(first, other.before)
        if first < one.before:
            rest.append(Span(one.author, first, one.before))
    return rest


EMPTY_SINCE_MS: Final = 1_797_292_800_000
"""From this time on (15 December 2026) lineage that brings no run is recorded too: collusion that is reported later may
make it bring some, and coalitions follow it. Before it such a report is a conflict, as entries of before have it."""


def count_missing(facts: Facts, receiver: int, arrow: Arrow, size: int) -> int:
    """How many charges an edge would bring to a node that does not know them."""
    brought = known_spans(facts.nodes, arrow.node, size, arrow.before)
    return facts.runs(subtract(brought, known_spans(facts.nodes, receiver, size)))


def count_brought(facts: Facts, arrow: Arrow, size: int) -> int:
    """How many charges an edge would bring in all, to a node that knows none."""
    return facts.runs(known_spans(facts.nodes, arrow.node, size, arrow.before))


class ExposureSums:
    """Composes exposure sums from the stored accounts, before a change is applied."""

    def __init__(self, facts: Facts, size: int) -> None:
        """``size`` is that of the log."""
        self._facts = facts
        self._spans = cache(lambda node: known_spans(facts.nodes, node, size))
        self._accounts = cache(lambda node: facts.accounts_of(holder_of(node)))

    def total(self, spans: list[Span], near: Iterable[int]) -> Sums:
        """The sum over the charges in ``wanted``, from the accounts of nodes near by if that reads fewer runs."""
        sums: Sums = {}
        for node in dict.fromkeys(near):
            if not spans:
                break
            if node not in self._facts.nodes:
                continue
            mine = self._spans(node)
            also, rest = intersect(spans, mine), subtract(mine, spans)
            if self._facts.runs(rest) >= self._facts.runs(also):
                continue
            for account in self._accounts(node):
                _add(sums, account.partition, account.posted, account.pending)
            for ref, posted, pending in self._facts.exposures(rest):
                had = sums.get(ref, (Loss.zero(len(posted.finite)),) * 2)
                sums[ref] = (had[0] - posted, had[1] - pending)
            spans = subtract(spans, mine)
        for ref, posted, pending in self._facts.exposures(spans):
            _add(sums, ref, posted, pending)
        return sums


def _add(sums: Sums, ref: str, posted: Loss, pending: Loss) -> None:
    had = sums.get(ref)
    sums[ref] = (had[0] + posted, had[1] + pending) if had else (posted, pending)
