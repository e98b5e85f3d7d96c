"""Buckets that refill evenly, one for each key: the generic cell rate algorithm (GCRA, ITU-T I.371).

Of a bucket only the time is held at which it is full again: what is in it follows from that. A cost that is known only
afterwards may take more than is in the bucket; then nothing is admitted until the debt is refilled.

At most :data:`KEYS_MAX` buckets are held. Beyond that the one that was used least recently is forgotten, which makes it
full: a caller may then have more than its quota, and never less.
"""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, NamedTuple

KEYS_MAX: Final = 4_096
"""Callers whose use of one quota is held in memory; the one that was seen least recently is forgotten first."""


class Level(NamedTuple):
    """What one bucket holds.

    Attributes:
        left: whole units that may be taken now, at least 0.
        full_s: seconds until it is full, rounded up.
    """

    left: int
    full_s: int


class RefillingBuckets:
    """Buckets of one size, used from any thread."""

    def __init__(
        self, amount: int, window_s: int, clock: Callable[[], float] = time.monotonic, keys_max: int = KEYS_MAX
    ) -> None:
        """Each holds ``amount`` units and refills in ``window_s`` seconds; ``clock`` gives seconds, never goes back."""
        self.amount, self.window_s = amount, window_s
        self._unit_s = window_s / amount
        self._clock, self._keys_max = clock, keys_max
        self._lock = threading.Lock()
        self._full_at: OrderedDict[Hashable, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at)

    def take(self, key: Hashable, cost: float = 1) -> float:
        """Take ``cost`` units and give 0; or take nothing and give the seconds until there are as many.

        A cost above the size of a bucket is admitted from a full one.
        """
        with self._lock:
            now = self._clock()
            full_at = max(self._full_at.get(key, now), now)
            wait_s = full_at + min(cost, self.amount) * self._unit_s - now - self.window_s
            if wait_s > self._unit_s * 1e-6:
                return wait_s
            self._hold(key, full_at + cost * self._unit_s)
            return 0.0

    def wait_s(self, key: Hashable, uncounted: float = 0.0) -> float:
        """Seconds until a whole unit is in the bucket beside ``uncounted`` ones, 0 if one is; nothing is taken."""
        with self._lock:
            now = self._clock()
            full_at = max(self._full_at.get(key, now), now) + uncounted * self._unit_s
            return max(0.0, full_at + self._unit_s - now - self.window_s)

    def charge(self, key: Hashable, cost: float) -> None:
        """Take ``cost`` units, also if fewer are there."""
        with self._lock:
            now = self._clock()
            self._hold(key, max(self._full_at.get(key, now), now) + cost * self._unit_s)

    def level(self, key: Hashable) -> Level:
        """What is in the bucket."""
        with self._lock:
            short_s = max(0.0, self._full_at.get(key, 0.0) - self._clock())
        return Level(max(0, math.floor(self.amount - short_s / self._unit_s + 1e-6)), math.ceil(short_s))

    def _hold(self, key: Hashable, full_at: float) -> None:
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        while len(self._full_at) > self._keys_max:
            self._full_at.popitem(last=False)
