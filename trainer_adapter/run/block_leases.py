"""Block leases: the ledger's leave to take a block of steps, requested one block ahead, so that no step waits.

A run that leases its steps takes none before the ledger has recorded that this process may. The next lease is requested
in a thread of its own once half of the one before it is used up; only where its answer is not there when the leased
steps are, training waits. Of two copies of one run one gets the next steps; the other ends before its next noise. An
answer that was lost is requested again with the same bytes, and is the same lease.

Each request names two digests: of what leaves the run by it (:mod:`trainer_adapter.run.fenced_output`), and of the
weights and the optimiser as they were when the newest finished lease ended, hashed in the thread that sends the
request.

A lease is for ``lease_s`` seconds of work, as fast as this process has worked so far, half a per cent of the run, or
one block of the step log: whichever is most; and longer while more requests were sent than there was time for, or
where the requests so far took more than ``COST_SHARE`` of the processor time that the training thread had (a loaded
machine gives it a part of each second), up to ``LONGER_MAX`` times. What is leased counts as begun, whether it is taken
or not.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Final

from client.http.problems import Refused, Unreachable
from ledger.commands.runs.step_lease import chained
from ledger.wire.malformed import Malformed
from trainer_adapter.run.fenced_output import FencedOutput
from trainer_adapter.run.state_digest import Digest
from trainer_adapter.session.lease_requests import LeaseRequest, LeaseRequests

SHARES: Final = 200
"""A lease is at least a run's steps divided by this."""
POLL_S: Final = 0.2
COST_SHARE: Final = 0.004
"""The share of the training thread's processor time that requests and digests of the state may take."""
LONGER_MAX: Final = 4
"""A lease is at most so many times as long as its seconds because requests are dear."""
_COPY: Final = frozenset({"body.first", "body.generation"})
"""The fields that a conflict names where another copy of the run has gone on."""


@dataclass(slots=True)
class _Request:
    """A request under way: until it is ``done``, whether it was granted is unknown."""

    wanted: LeaseRequest
    state: Digest
    error: Exception | None = field(default_factory=lambda: Unreachable("the request for a lease broke off"))
    done: threading.Event = field(default_factory=threading.Event)
    heeded: bool = False

    def superseded(self) -> Refused | None:
        """The conflict that says that another copy has gone on, if that is the answer."""
        error = self.error if self.done.is_set() else None
        if isinstance(error, Refused) and error.status == HTTPStatus.CONFLICT and error.field in _COPY:
            return error
        return None


def _unknown() -> str:
    return ""


class BlockLeases:
    """The leases of one process of a run.

    Attributes:
        generation: this process's.
        granted: so many steps, from the first one on, are leased, by this generation or one before it.
        newest: the id of this generation's newest lease; empty if it has none.
        chain: the digest of the chain of its lease ids.
        entered: how many leases this process has begun to use.
        refused: why no further step is leased; empty as long as none was refused.
    """

    def __init__(  # noqa: PLR0913 - what a lease depends on
        self,
        requests: LeaseRequests,
        steps: int,
        block_steps: int,
        lease_s: int,
        *,
        resumed: bool,
        output: FencedOutput | None = None,
        snapshot: Callable[[], Digest] | None = None,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """Of a run of so many ``steps``; one that is ``resumed`` takes a new generation.

        Args:
            output: what each lease fences; from here on nothing of it leaves by itself.
            snapshot: copies the state that was trained; called where a lease is finished.
            clock: seconds.
            cpu_clock: processor seconds of the thread that calls it.

        Raises:
            Refused, Unreachable, Malformed: if it gets none.
        """
        self.generation, self.granted = requests.take_generation() if resumed else (1, 0)
        self.newest, self.chain, self.entered, self.refused = "", "", 0, ""
        self._requests, self._steps = requests, steps
        self._clock, self._cpu_clock = clock, cpu_clock
        self._least, self._lease_s = max(block_steps, math.ceil(steps / SHARES)), lease_s
        self._sent, self._cost_s = 0, 0.0
        self._until, self._request_at = self.granted, self.granted + 1
        self._finished = ""
        self._output, self._snapshot = output or FencedOutput(), snapshot
        self._output.fence()
        self._state: Digest = _unknown
        self._began: tuple[int, float, float] | None = None
        self._pending: _Request | None = None

    @property
    def until(self) -> int:
        """The last step that may be taken now."""
        return self._until

    def reach(self, step: int, ends: Callable[[], str]) -> str:
        """Wait until a step is leased, and request the next lease in time; why the run ends instead, or nothing.

        Args:
            step: the next one, taken when this returns nothing.
            ends: polled while it waits: why the run ends, or nothing.

        Raises:
            Refused: if another copy of this run has gone on. What this process has trained cannot leave.
        """
        # Nearly every step goes by these comparisons alone.
        if self._pending is None and step < self._request_at and self._began is not None:
            return ""
        if self._pending is not None and not self._pending.heeded and self._pending.done.is_set():
            self._heed(self._pending)
        if step > self._until:
            pending = self._pending or self._request(step)
            while not pending.done.wait(POLL_S):
                if why := ends():
                    return why
            self._note()
            if step > self._until:
                return self.refused
        if self._began is None:
            self._began = (step, self._clock(), self._cpu_clock())
        if self._pending is None and step >= self._request_at and not self.refused and self._until < self._steps:
            self._request(step)
        return ""

    def settle(self, wait_s: float | None = None) -> None:
        """Wait for the answer to the newest request, at most so long: a lease that was granted counts."""
        if self._pending is not None and self._pending.done.wait(wait_s) and self._pending.error is None:
            self._add(self._pending.wanted)
            self._output.let_out()

    def _add(self, wanted: LeaseRequest) -> None:
        """Count a lease that was granted, once."""
        if wanted.id != self.newest:
            self.granted, self.newest = wanted.last, wanted.id
            self.chain = chained(self.chain, wanted.id)

    def _heed(self, pending: _Request) -> None:
        """Take note of an answer, once. Raises: Refused, each time, for a copy that has gone on."""
        if (superseded := pending.superseded()) is not None:
            raise superseded
        self._let_out()
        pending.heeded = True

    def _let_out(self) -> None:
        """Let out what the newest request fences, if it was granted."""
        if self._pending is not None and self._pending.done.is_set() and self._pending.error is None:
            self._output.let_out()

    def _request(self, step: int) -> _Request:
        first = self.granted + 1
        last = min(self._steps, max(first, step, self._until + 1) - 1 + self._size(step))
        # Of a torn step log more steps count than are leased.
        taken = min(step - 1, self.granted)
        wanted = LeaseRequest.fresh(self.generation, (first, last), self._finished, taken, self._output.seal())
        self._pending = pending = _Request(wanted, self._state)
        threading.Thread(target=self._send, args=(pending,), name="lease", daemon=True).start()
        return pending

    def _size(self, step: int) -> int:
        self._sent += 1
        if self._began is None:
            return self._least
        done, passed = step - self._began[0], self._clock() - self._began[1]
        worked = self._cpu_clock() - self._began[2]
        if passed <= 0 or not self._lease_s:
            return self._least
        # The first requests come before the speed is known: later leases are longer, until there was time for as many.
        seconds = self._lease_s + max(0.0, self._sent * self._lease_s - passed)
        dear = self._cost_s / max(1, self._sent - 1) / COST_SHARE * passed / worked if worked > 0 else 0.0
        return max(self._least, math.ceil(done * max(seconds, min(dear, LONGER_MAX * self._lease_s)) / passed))

    def _send(self, pending: _Request) -> None:
        began = self._cpu_clock()
        try:
            pending.wanted = replace(pending.wanted, state=pending.state())
            self._requests.lease(pending.wanted)
            pending.error = None
        except (Refused, Unreachable, Malformed, OSError) as error:
            pending.error = error
        finally:
            self._cost_s += self._cpu_clock() - began
            pending.done.set()

    def _note(self) -> None:
        """Begin to use the newest request, if it was granted. Raises: Refused, for a copy that has gone on."""
        self._let_out()
        pending, self._pending = self._pending, None
        assert pending is not None
        if (superseded := pending.superseded()) is not None:
            self._pending = pending
            raise superseded
        if pending.error is not None:
            self._pending = pending
            self.refused = f"no further steps are leased: {pending.error}"
            return
        self._finished = self.newest
        if self.newest and self._snapshot is not None:
            self._state = self._snapshot()
        self._add(pending.wanted)
        self._until = pending.wanted.last
        # The next lease is requested with the step that begins the second half of this one.
        self._request_at = pending.wanted.first + (pending.wanted.last - pending.wanted.first + 1) // 2
        self.entered += 1
