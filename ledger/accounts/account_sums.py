"""Changes of accounts by runs, batched: sums of losses that are written to the state together.

Nearly all entries of a book are of runs, and many runs in a row cost the same on the same accounts: equal losses are
counted, and added once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from ledger.domain.charge_record import Charge
from ledger.domain.facts import GLOBAL, Account, holder_of
from ledger.domain.memory_state import MemoryState
from ledger.domain.organisation_graph import knowers
from ledger.mechanisms.loss import Loss, Segment, loss_of

Prices = tuple[tuple[str, tuple[Segment, ...]], ...]
"""Each partition of a charge with the pieces it is charged by."""
Places = tuple[tuple[str, str], ...]
"""Accounts, by partition and holder."""


class AccountSums:
    """A batch of changes of accounts, as counts of equal losses.

    Attributes:
        entry: the index and the secret of the entry that is being applied, where :meth:`last` is needed.
    """

    def __init__(self, state: MemoryState) -> None:
        """Nothing yet."""
        self._state = state
        self._counts: dict[tuple[int, int, int], _Count] = {}
        self.entry: tuple[int, bytes] = -1, b""

    def add(self, places: Places, segments: tuple[Segment, ...], steps: int, posted: int, pending: int) -> None:
        """So many losses of the first ``steps`` steps more, at each place."""
        # Keyed by identity, since hashing their values takes long; the count holds them, so their ids are not reused.
        key = id(places), id(segments), steps
        count = self._counts.get(key)
        if count is None:
            self._counts[key] = _Count(places, segments, steps, posted, pending, self.entry)
        else:
            count.posted += posted
            count.pending += pending
            count.entry = self.entry

    def __bool__(self) -> bool:
        """Whether a change is not written yet."""
        return bool(self._counts)

    def last(self) -> dict[tuple[str, str], bytes]:
        """The secret of the last entry that touched each account since the last write."""
        in_order = sorted(self._counts.values(), key=lambda total: total.entry)
        return {place: count.entry[1] for count in in_order for place in count.places}

    def put(self) -> None:
        """Write the batch to the state. Raises: AssertionError, if a sum would fall below zero."""
        if not self._counts:
            return
        # Emptied before the state is read: a state that flushes this batch on a read then finds nothing to do.
        counts, self._counts = self._counts, {}
        accounts, changed = self._state.accounts, dict[tuple[str, str], Account]()
        # Additions first, so that no sum is below its final value on the way.
        for count in sorted(counts.values(), key=lambda one: -one.pending):
            loss = loss_of(count.segments, count.steps)
            zero = _zero(len(loss.finite))
            # Many partitions usually have equal accounts, and equal accounts share their sums.
            moved: dict[tuple[Loss, Loss], tuple[Loss, Loss]] = {}
            for place in count.places:
                had = changed.get(place) or accounts.get(place)
                before = (zero, zero) if had is None else had[2:]
                after = moved.get(before)
                if after is None:
                    posted, pending = before
                    after = _add_times(posted, loss, count.posted), _add_times(pending, loss, count.pending)
                    moved[before] = after
                changed[place] = Account(*place, *after)
        for place, account in changed.items():
            accounts[place] = account


@dataclass(slots=True)
class _Count:
    places: Places
    segments: tuple[Segment, ...]
    steps: int
    posted: int
    pending: int
    entry: tuple[int, bytes]


def _add_times(total: Loss, loss: Loss, count: int) -> Loss:
    if count == 0:
        return total
    many = loss if count in {1, -1} else loss.times(abs(count))
    return total + many if count > 0 else total - many


def touched(state: MemoryState, charge: Charge) -> list[tuple[tuple[str, ...], Places, tuple[Segment, ...]]]:
    """Partitions of one price, the accounts of everyone and of all who may know this charge on these, and the price."""
    nodes = knowers(state.nodes, charge.author, charge.index)
    return [(refs, _places(refs, nodes), segments) for refs, segments in charge.price_groups]


@lru_cache(maxsize=4_096)
def _places(refs: tuple[str, ...], nodes: frozenset[int]) -> Places:
    holders = GLOBAL, *map(holder_of, sorted(nodes))
    return tuple((ref, holder) for holder in holders for ref in refs)


@lru_cache(maxsize=64)
def _zero(coordinates: int) -> Loss:
    return Loss.zero(coordinates)
