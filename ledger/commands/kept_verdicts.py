"""Verdicts of the policy that are kept for requests alike: until they may change, or the state that they rest on does.

Most charges of a contract differ in their id, their clean room and their deadline alone. What the gate said of one, and
what it costs, is then true of the next. So it is kept under everything that the gate looks at, until the moment and the
number of runs that the verdict names; whatever is entered and is no run drops all of it. With what is kept a charge is
only ever admitted: one that does not fit is decided in full, and so is one in a thousand of those that do, which must
come to the same decision.
"""

from __future__ import annotations

from collections.abc import Hashable
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

    def is_sampled(self) -> bool:
        """Whether the decision that is made now by what is kept is to be made in full too."""
        self._used += 1
        return self._used % SAMPLE == 0
