"""Verdicts of the policy that are kept for requests alike: until they may change, or the state that they rest on does.

Most charges of a contract differ in their id, their clean room and their deadline alone. What the gate said of one, and
what it costs, is then true of the next. So it is kept under everything that the gate looks at, until the moment and the
number of runs that the verdict names; whatever is entered and is no run drops all of it. With what is kept a charge is
only ever admitted: one that does not fit is decided in full, and so is one in a thousand of those that do, which must
come to the same decision.

Of runs alike that come one after the other it is also known how many more certainly fit in their accounts: a settlement
between them leaves no less room, and anything else that could ends the count.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T")
KEPT_MAX: Final = 4_096
"""Verdicts that are kept; all are dropped when there is no place."""
SAMPLE: Final = 1_000
"""Of so many decisions by a kept verdict one is made in full too, and compared."""


class KeptVerdicts(Generic[T]):
    """What was found of requests, by what is alike in them. Of one thread."""

    def __init__(self) -> None:
        """Begin with none."""
        self._kept: dict[Hashable, T] = {}
        self._used = 0
        self._last: T | None = None
        self._fitting = 0

    def get(self, alike: Hashable) -> T | None:
        """What was found of a request like this."""
        return self._kept.get(alike)

    def keep(self, alike: Hashable, found: T) -> None:
        """Keep what was found of a request."""
        if len(self._kept) >= KEPT_MAX:
            self._kept.clear()
        self._kept[alike] = found

    def drop(self) -> None:
        """Something was entered on which verdicts rest."""
        self._kept.clear()
        self.forget_room()

    def forget_room(self) -> None:
        """Runs may be entered that are not like the last one."""
        self._last, self._fitting = None, 0

    def takes_room(self, found: T) -> bool:
        """Whether one more run certainly fits of those that ``found`` is kept of; it is counted."""
        if self._last is not found or not self._fitting:
            return False
        self._fitting -= 1
        return True

    def note_room(self, found: T, count: Callable[[], int]) -> None:
        """A run that ``found`` is kept of is entered now; from the second in a row on, ``count`` tells how many fit."""
        # Counting takes longer than looking whether one fits.
        self._fitting = max(0, count() - 1) if self._last is found else 0
        self._last = found

    def is_sampled(self) -> bool:
        """Whether the decision that is made now by what is kept is to be made in full too."""
        self._used += 1
        return self._used % SAMPLE == 0
