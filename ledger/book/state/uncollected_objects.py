"""Objects that the collector does not search while a book is open or verified: a full search stops every thread.

What is alive when a book is opened (modules, documents, the state) is some hundred thousand objects, and the collector
walks all of them again and again: 0.2 s in which no one gets an answer. The state has no reference cycles, so
nothing is lost by leaving them out. What becomes garbage later is searched too, though not after each 700 new objects:
a batch has more that are all in use, and nothing is found in them. The rest is searched again when the last book of the
process is closed.
"""

from __future__ import annotations

import gc
from threading import Lock
from typing import Final

SEARCHED_AFTER: Final = 20_000
"""New objects after which they are searched while a book is open: that takes less than a millisecond."""


class UncollectedObjects:
    """Counts who wants no searches; of the whole process, as the collector is."""

    def __init__(self) -> None:
        """No holder yet."""
        self._lock = Lock()
        self._holders = 0
        self._thresholds = gc.get_threshold()

    def hold(self) -> None:
        """Leave what is alive out of every search, until as many :meth:`release` were called."""
        with self._lock:
            self._holders += 1
            if self._holders == 1:
                self._thresholds = gc.get_threshold()
                gc.set_threshold(max(SEARCHED_AFTER, self._thresholds[0]), *self._thresholds[1:])
                gc.freeze()

    def hold_more(self) -> None:
        """The same of what has become alive since, for a holder."""
        gc.freeze()

    def release(self) -> None:
        """Search everything again, once there is no holder."""
        with self._lock:
            self._holders -= 1
            if not self._holders:
                gc.unfreeze()
                gc.set_threshold(*self._thresholds)


UNCOLLECTED = UncollectedObjects()
"""The one of this process."""
