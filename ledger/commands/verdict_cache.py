"""A cache of the policy's verdicts on equal requests, valid until the verdict or the state it depends on may change.

Most charges of a contract differ only in their id, their clean room and their deadline, so the verdict and the price of
one hold for the next. They are cached under everything that the gate reads, until the time and the number of runs that
the verdict states; every entry that is not a run's empties the cache. By the cache a charge is only ever admitted: one
that does not fit is decided in full, and so is one in a thousand of those that fit, which must get the same decision.

For equal runs in a row the cache also counts how many more certainly fit in their accounts: a settlement between them
leaves no less room, and anything else that could ends the count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
KEPT_MAX: Final = 4_096
"""Verdicts in the cache; when it is full, it is emptied."""
COUNTED_MAX: Final = 8_192
"""Runs that are counted before it is looked again whether one fits."""
SAMPLE: Final = 1_000
"""One in this many decisions by a cached verdict is also made in full, and compared."""


class VerdictCache(Generic[T]):
    """Cached decisions, by the parts that equal requests share. For one thread."""

    def __init__(self) -> None:
        """Begin empty."""
        self._kept: dict[Hashable, T] = {}
        self._used = 0
        self._last: T | None = None
        self._fitting = 0

    def get(self, key: Hashable) -> T | None:
        """The cached decision on an equal request."""
        return self._kept.get(key)

    def keep(self, key: Hashable, decision: T) -> None:
        """Cache the decision on a request."""
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[key] = decision

    def drop(self) -> None:
        """Empty the cache: an entry changed state that verdicts depend on."""
        self._kept.clear()
        self.forget_room()

    def forget_room(self) -> None:
        """Forget the count of runs that fit: a different run may follow."""
        self._last, self._fitting = None, 0

    def takes_room(self, decision: T) -> bool:
        """Whether one more run of the cached decision certainly fits; if so, count it."""
        if self._last is not decision or not self._fitting:
            return False
        self._fitting -= 1
        return True

    def note_room(self, decision: T, count: Callable[[], int]) -> None:
        """Record a run of the cached decision; from the second in a row on, ``count`` gives how many fit."""
        # Counting takes longer than checking whether one fits.
        self._fitting = min(COUNTED_MAX, max(0, count() - 1)) if self._last is decision else 0
        self._last = decision

    def is_sampled(self) -> bool:
        """Whether this decision by the cache is to be made in full too."""
        self._used += 1
        return self._used % SAMPLE == 0
