"""The numbers of a charge as its entry records them: each checked by itself, none searched for again.

A price must cover its run and a capacity keep its (ε, δ), by the evidence of the partition's rule
(:class:`ledger.filters.Rule`). If it does, it is as sound as a number computed here, and decides everything else.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final

from ledger.accounts.pricing import Bound, ComputedPrices, PricedRun, covered
from ledger.commands.entry import Entry
from ledger.domain.facts import GLOBAL, Partition
from ledger.filters import Cap, read_rule
from ledger.mechanisms.loss import Segment, read_segments
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number, parse_number
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert

FOUND_PART: Final = Fraction(1, 1_000)
"""The relative difference that another machine may find in a capacity: searches end within a twenty-thousandth."""


class RecordedPrices(ComputedPrices):
    """The numbers of one permitted charge; the ε of a run is computed here, since no entry records it."""

    def __init__(
        self, entry: Entry, elsewhere: int = 0, groups: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    ) -> None:
        """The numbers of this entry.

        Args:
            elsewhere: moves the capacities that it does not record, which are computed here, up (1) or down (-1).
            groups: the partitions of each group that it records, by the first one, which alone has a price. A first
                charge may choose the rule that others of its group have already, so before it they are no group.
        """
        limits: Any = entry.body["limits"]
        self._prices: Any = entry.body["prices"]
        self._caps = {(limit["partition"], limit["holder"], limit.get("share")): limit["cap"] for limit in limits}
        self._elsewhere = elsewhere
        self._first = {ref: first for first, refs in groups.items() for ref in refs}

    def price(self, partition: Partition, run: PricedRun) -> tuple[Segment, ...]:
        """The recorded price, if it covers the run. Raises: Malformed, Rejected."""
        first = self._first.get(partition.ref, partition.ref)
        if first not in self._prices:
            raise Malformed("body.prices", "names other partitions than the charge")
        segments = read_segments(self._prices[first])
        if not covered(partition, run, segments):
            raise Malformed("body.prices", f"of {partition.ref} is below what the plan costs")
        return segments

    def cap(self, bound: Bound) -> Cap:
        """The recorded capacity, if it is sound. Raises: Malformed."""
        share = None if bound.share is None else format_number(bound.share)
        recorded = self._caps.get((bound.partition.ref, bound.holder, share))
        if recorded is None:
            raise Malformed("body.limits", "name other accounts than the charge touches")
        if parse_number(recorded["epsilon"], "body.limits.cap.epsilon") != bound.epsilon:
            raise Malformed("body.limits.cap.epsilon", "is not what follows from the entries before")
        cap = _sound_cap(bound.partition.terms, c.spelled(recorded), share)
        if cap is None:
            raise Malformed("body.limits.cap", "allows more than the budget does")
        return cap

    def watched(self, bound: Bound) -> Cap:
        """The recorded capacity if the account is capped too; computed here if it is only watched."""
        if (bound.partition.ref, bound.holder, None) in self._caps or bound.holder != GLOBAL:
            return self.cap(bound)
        rule = read_rule(bound.partition.terms)
        cap = rule.cap(bound.epsilon)
        return _move_cap(cap, self._elsewhere) if rule.searched else cap


class FoundElsewhere(ComputedPrices):
    """Computes the numbers of a command that was permitted, and whose capacities no entry records."""

    def cap(self, bound: Bound) -> Cap:
        """The greatest capacity that another machine may have found. Raises: Malformed, NoRoom."""
        cap = super().cap(bound)
        return _move_cap(cap, 1) if read_rule(bound.partition.terms).searched else cap


FOUND_ELSEWHERE: Final = FoundElsewhere()


def _move_cap(cap: Cap, sign: int) -> Cap:
    """Moved up or down as far as a search may end on another machine, by a unit at least."""
    moved = (None if bound is None else bound + sign * math.ceil(bound * FOUND_PART) for bound in cap.capacity)
    return Cap(cap.epsilon, tuple(moved))


def keeps(terms: str, recorded: Any) -> bool:  # noqa: ANN401 - JSON as recorded
    """Whether a recorded cap allows no more than its (ε, δ) under a rule. Raises: Malformed."""
    return _sound_cap(terms, c.spelled(recorded), None) is not None


@lru_cache(maxsize=4_096)
def _sound_cap(terms: str, capacity: bytes, share: str | None) -> Cap | None:
    """The recorded cap, if it, or the cap of which it is that share, allows no more than its (ε, δ)."""
    cap, rule = _cap(capacity), read_rule(terms)
    if len(cap.capacity) != len(rule.coordinates):
        return None
    if share is None:
        return cap if rule.keeps(cap) else None
    part = parse_number(share, "body.limits.share")
    return cap if part > 0 and rule.keeps(cap.behind(part)) else None


def read_cap(recorded: Any) -> Cap:  # noqa: ANN401 - JSON as recorded
    """A cap as it is recorded. Raises: Malformed."""
    return _cap(c.spelled(recorded))


@lru_cache(maxsize=4_096)
def _cap(capacity: bytes) -> Cap:
    return convert(Cap, c.parse(capacity, len(capacity)), "body.limits.cap")
