"""Exact sums over the charges of an author between any two cuts of the lineage graph, without holding the charges.

A caller that requests a span of charges (:func:`ledger.organisation_lineage.exposure.known_spans` and what is
intersected with it) bounds it by 0, by the end of the log, or by the cut of an arrow. The cut of an arrow is, when it
is made, one of three: the index of the entry that makes it; one after the index of a charge that names recipients (a
transfer that its charge had planned); the cut of an older arrow (collusion). So each cut that will ever be requested is
known before the next charge is entered: each entry that makes a node of the graph is a cut, and each charge that names
recipients makes one behind it. A bucket holds the charges of one author from one cut to the next. So it lies wholly in
a span, or wholly outside it, and the sum over a span is the sum of its buckets: the same integers as over its charges,
whatever their order. A span that ends between cuts is refused.

Memory grows with the cuts between which an author has charges, not with charges: with entries of lineage, and charges
that name recipients. Equal runs are counted, and added up when a sum is requested.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ledger.domain.charge_record import Charge
from ledger.domain.facts import Span
from ledger.mechanisms.loss import Loss, loss_of

_Sums = tuple[tuple[str, Loss, Loss], ...]
"""By partition: posted and pending."""


class SpanSums:
    """Charges by author and cut: their number, their posted and their pending loss."""

    def __init__(self) -> None:
        """No charge, and no cut but 0."""
        self._cuts = array("Q", (0,))
        self._newest = -1
        self._authors: dict[int, _Author] = {}
        self._counts: dict[tuple[int, int, int, int, int], _Count] = {}

    def resume(self, size: int, cuts: Iterable[int], buckets: Iterable[tuple[int, int, int, _Sums]]) -> None:
        """Go on from a log of ``size`` entries, with its cuts and each bucket's author, start, count and sums."""
        self._cuts = array("Q", sorted({0, *cuts}))
        # At most: a span ends at a cut or at the end of the log, so which entry was the newest charge does not matter.
        self._newest = size - 1
        self._authors, self._counts = {}, {}
        for author, start, runs, sums in sorted(buckets):
            author_sums = self._authors.setdefault(author, _Author())
            author_sums.open_bucket(start)
            author_sums.counts[-1], author_sums.sums[-1] = runs, sums

    def cut(self, index: int) -> None:
        """A span may end before ``index``, or begin there. Called before a charge of that index or a later one is."""
        if index > self._cuts[-1]:
            self._cuts.append(index)

    def add(self, charge: Charge) -> None:
        """Add a pending charge, the newest."""
        author = self._authors.get(charge.author)
        if author is None:
            author = self._authors[charge.author] = _Author()
        author.open_bucket(self._cuts[-1])
        author.counts[-1] += 1
        self._count(author, len(author.starts) - 1, charge, charge.steps, 0, 1)
        self._newest = charge.index
        if charge.recipients:
            self.cut(charge.index + 1)

    def settle(self, settled: Charge) -> None:
        """A charge that was pending is now posted or voided."""
        author = self._authors[settled.author]
        at = bisect_right(author.starts, settled.index) - 1
        steps, posted = settled.steps, settled.steps_posted
        self._count(author, at, settled, steps, int(posted == steps), -1)
        if posted and posted != steps:
            self._count(author, at, settled, posted, 1, 0)

    def start(self, charge: Charge) -> int:
        """The start of the bucket that a charge was added to."""
        starts = self._authors[charge.author].starts
        return starts[bisect_right(starts, charge.index) - 1]

    def bucket(self, author: int, start: int) -> tuple[int, _Sums]:
        """The bucket of an author that begins at ``start``: how many charges it has, and its sums."""
        self._add_up()
        sums = self._authors[author]
        at = bisect_left(sums.starts, start)
        return sums.counts[at], sums.sums[at]

    def runs(self, spans: Iterable[Span]) -> int:
        """How many charges there are in these spans."""
        return sum(sum(author.counts[part]) for author, part in self._parts(spans))

    def exposures(self, spans: Iterable[Span]) -> Iterator[tuple[str, Loss, Loss]]:
        """Per partition: posted and pending loss of the charges in these spans."""
        self._add_up()
        total: dict[str, tuple[Loss, Loss]] = {}
        for author, part in self._parts(spans):
            for sums in author.sums[part]:
                for ref, posted, pending in sums:
                    had = total.get(ref)
                    total[ref] = (had[0] + posted, had[1] + pending) if had else (posted, pending)
        return ((ref, posted, pending) for ref, (posted, pending) in sorted(total.items()))

    def _count(self, author: _Author, at: int, charge: Charge, steps: int, posted: int, pending: int) -> None:  # noqa: PLR0913, PLR0917 - whose, where, and what
        """Add to the count of losses of the first ``steps`` steps."""
        # Keyed by identity, since hashing prices takes long; the count holds them, so their ids are not reused.
        several = 0 if charge.groups is None else id(charge.partitions)
        key = id(author), at, id(charge.prices), several, steps
        count = self._counts.get(key)
        if count is None:
            self._counts[key] = _Count(author, at, charge, steps, posted, pending)
        else:
            count.posted += posted
            count.pending += pending

    def _add_up(self) -> None:
        """Add the counted losses to the sums."""
        if not self._counts:
            return
        counts, self._counts = [*self._counts.values()], {}
        for count in counts:
            # Partitions are in the order in which they were added.
            count.author.sums[count.at] = _with_all(count.author.sums[count.at], count.charge)
        # Additions first, so that no sum is below its final value on the way.
        for count in sorted(counts, key=lambda count: -count.pending):
            count.author.sums[count.at] = _add_count(count.author.sums[count.at], count)

    def _parts(self, spans: Iterable[Span]) -> Iterator[tuple[_Author, slice]]:
        for span in spans:
            self._check_cut(span.first)
            self._check_cut(span.before)
            author = self._authors.get(span.author)
            if author is not None:
                first, before = (bisect_left(author.starts, end) for end in (span.first, span.before))
                yield author, slice(first, before)

    def _check_cut(self, index: int) -> None:
        """Raises: AssertionError, if a span would cut a bucket."""
        at = bisect_left(self._cuts, index)
        valid = index > self._newest or self._cuts[at : at + 1] == array("Q", (index,))
        assert valid, f"no span of charges begins or ends at {index}"


class _Author:
    """The buckets of one author: where each begins, its number of charges, its sums."""

    __slots__ = ("counts", "starts", "sums")

    def __init__(self) -> None:
        self.starts = array("Q")
        self.counts = array("Q")
        self.sums: list[_Sums] = []

    def open_bucket(self, start: int) -> None:
        """Begin the bucket that starts at a cut, if it is not the newest already."""
        if not self.starts or self.starts[-1] < start:
            self.starts.append(start)
            self.counts.append(0)
            self.sums.append(())


@dataclass(slots=True)
class _Count:
    """How many losses of the first ``steps`` steps a bucket gains."""

    author: _Author
    at: int
    charge: Charge
    steps: int
    posted: int
    pending: int


def _with_all(sums: _Sums, charge: Charge) -> _Sums:
    """Sums with a place for every partition."""
    partitions = {row[0] for row in sums}
    new = [
        (ref, zero := _zero(len(segments[0].price)), zero)
        for refs, segments in charge.price_groups
        for ref in refs
        if ref not in partitions
    ]
    return (*sums, *new) if new else sums


def _add_count(sums: _Sums, count: _Count) -> _Sums:
    """Sums with the counted losses added."""
    by_partition = {row[0]: row for row in sums}
    for refs, segments in count.charge.price_groups:
        loss = loss_of(segments, count.steps)
        # Many partitions usually have equal sums.
        moved: dict[tuple[Loss, Loss], tuple[Loss, Loss]] = {}
        for ref in refs:
            _, had, waits = by_partition[ref]
            after = moved.get((had, waits))
            if after is None:
                after = _sum(had, loss, count.posted), _sum(waits, loss, count.pending)
                moved[had, waits] = after
            by_partition[ref] = ref, *after
    return tuple(by_partition.values())


# Many buckets hold one charge: values are shared with the price list, and zero is one object.
def _sum(had: Loss, loss: Loss, count: int) -> Loss:
    if not count:
        return had
    many = loss if count in {1, -1} else loss.times(abs(count))
    if count > 0:
        return many if had is _zero(len(loss.finite)) else had + many
    return _zero(len(loss.finite)) if had == many else had - many


@lru_cache(maxsize=64)
def _zero(coordinates: int) -> Loss:
    return Loss.zero(coordinates)
