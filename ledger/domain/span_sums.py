"""Exact sums over the charges of an author between any two cuts of the lineage graph, without holding the charges.

A caller that asks for a span of charges (:func:`ledger.organisation_lineage.exposure.known_spans` and what is
intersected with it) bounds it by 0, by the end of the log, or by the cut of an arrow. The cut of an arrow is, when it
is made, one of three: the index of the entry that makes it; one after the index of a charge that names recipients (a
transfer that its charge had planned); the cut of an older arrow (collusion). So each cut that will ever be asked for is
known before the next charge is entered: each entry that makes a node of the graph is a cut, and each charge that names
recipients makes one behind it. A bucket holds the charges of one author from one cut to the next. So it lies in a span
whole, or outside it whole, and the sum over a span is the sum of its buckets: the same integers as over its charges,
whatever their order. A span that ends between cuts is refused.

Memory grows with the cuts between which an author has charges, not with charges: with entries of lineage, and charges
that name recipients. Runs alike are counted, and added up when a sum is asked for.
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
    """Charges by author and cut: how many, what they have posted and what they have pending."""

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
            found = self._authors.setdefault(author, _Author())
            found.open_bucket(start)
            found.counts[-1], found.sums[-1] = runs, sums

    def cut(self, index: int) -> None:
        """A span may end before ``index``, or begin there. Called before a charge of that index or a later one is."""
        if index > self._cuts[-1]:
            self._cuts.append(index)

    def add(self, charge: Charge) -> None:
        """Add a pending charge, the newest."""
        author = self._authors.setdefault(charge.author, _Author())
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
        self._count(author, at, settled, settled.steps, 0, -1)
        if settled.steps_posted:
            self._count(author, at, settled, settled.steps_posted, 1, 0)

    def start(self, charge: Charge) -> int:
        """Where the bucket begins that a charge was added to."""
        starts = self._authors[charge.author].starts
        return starts[bisect_right(starts, charge.index) - 1]

    def bucket(self, author: int, start: int) -> tuple[int, _Sums]:
        """The bucket of an author that begins there: how many charges it has, and its sums."""
        self._add_up()
        found = self._authors[author]
        at = bisect_left(found.starts, start)
        return found.counts[at], found.sums[at]

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
        """Count so many losses of the first ``steps`` steps more."""
        # By what prices are and not by what they say, which is long; the count holds them, so no other gets their id.
        several = 0 if charge.groups is None else id(charge.partitions)
        key = id(author), at, id(charge.prices), several, steps
        found = self._counts.get(key)
        if found is None:
            self._counts[key] = _Count(author, at, charge, steps, posted, pending)
        else:
            found.posted += posted
            found.pending += pending

    def _add_up(self) -> None:
        """Add up what was counted."""
        if not self._counts:
            return
        counts, self._counts = [*self._counts.values()], {}
        for one in counts:
            # Partitions stand in the order in which they came.
            one.author.sums[one.at] = _with_all(one.author.sums[one.at], one.charge)
        # What is added first: on the way no sum is less than what it holds in the end.
        for one in sorted(counts, key=lambda one: -one.pending):
            one.author.sums[one.at] = _moved(one.author.sums[one.at], one)

    def _parts(self, spans: Iterable[Span]) -> Iterator[tuple[_Author, slice]]:
        for span in spans:
            self._check_cut(span.first)
            self._check_cut(span.before)
            author = self._authors.get(span.author)
            if author is not None:
                first, before = (bisect_left(author.starts, end) for end in (span.first, span.before))
                yield author, slice(first, before)

    def _check_cut(self, index: int) -> None:
        """Raises: AssertionError, where a bucket would be in a span in part."""
        at = bisect_left(self._cuts, index)
        known = index > self._newest or self._cuts[at : at + 1] == array("Q", (index,))
        assert known, f"no span of charges begins or ends at {index}"


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
    known = {row[0] for row in sums}
    new = [
        (ref, zero := _zero(len(segments[0].price)), zero)
        for refs, segments in charge.price_groups
        for ref in refs
        if ref not in known
    ]
    return (*sums, *new) if new else sums


def _moved(sums: _Sums, count: _Count) -> _Sums:
    """Sums with the losses that were counted."""
    found = {row[0]: row for row in sums}
    for refs, segments in count.charge.price_groups:
        loss = loss_of(segments, count.steps)
        # Of many partitions most have equal sums.
        moved: dict[tuple[Loss, Loss], tuple[Loss, Loss]] = {}
        for ref in refs:
            _, had, waits = found[ref]
            after = moved.get((had, waits))
            if after is None:
                after = _sum(had, loss, count.posted), _sum(waits, loss, count.pending)
                moved[had, waits] = after
            found[ref] = ref, *after
    return tuple(found.values())


# Many a bucket holds one charge: values are shared with the price list, and zero is one value.
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
