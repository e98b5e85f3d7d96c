"""The step budget of one charge: never more steps than were charged, none before its block is durable."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ledger.accounts.run_epsilon import RunEpsilon
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire.malformed import Malformed
from trainer_adapter.job.step_log import StepLog
from trainer_adapter.run.block_leases import BlockLeases

End = Callable[[], str]
"""Called before each step: why the run ends there, or nothing. It never looks at records."""


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is left of a run.

    Attributes:
        steps: that may still be taken.
        epsilon: of the whole run, whichever of its steps were taken.
    """

    steps: int
    epsilon: RunEpsilon

    def __str__(self) -> str:
        """For people."""
        return f"{self.steps} steps left; the run is {self.epsilon}"


class StepBudget:
    """Steps to take, in order.

    Attributes:
        taken: the last step taken, at first that of a process that died, whose begun blocks all count; what to post, if
            nothing broke.
        ended: why the run ended before its last step; empty if it did not.
    """

    def __init__(
        self, plan: RunPlan, log: StepLog, ends: Sequence[End] = (), leases: BlockLeases | None = None
    ) -> None:
        """The steps that ``log`` has not begun yet, each leased by ``leases`` where the run leases its steps.

        Raises:
            Malformed: if the log is another plan's.
        """
        if log.plan_digest != plan.digest:
            raise Malformed("log", "belongs to another plan")
        self.taken = log.steps_begun()
        self.ended = ""
        self._log, self._ends, self._steps = log, tuple(ends), plan.steps
        self._leases = leases
        self._process: Final = os.getpid()

    @property
    def left(self) -> int:
        """How many steps may still be taken."""
        return self._steps - self.taken

    @property
    def steps_durable(self) -> int:
        """How many steps count if the run breaks now: those of all blocks that began."""
        return self._log.steps_begun()

    @property
    def lease(self) -> int:
        """How many leases this process has begun to use: randomness is drawn anew for each."""
        return 0 if self._leases is None else self._leases.entered

    @property
    def at_block_boundary(self) -> bool:
        """Whether every step that was begun was taken, so that nothing is lost if the process dies here."""
        return self.taken == self._log.steps_begun()

    def next_step(self) -> int | None:
        """The next step, leased and with its block durable when this returns; None when the run is over, for good.

        Raises:
            Refused: if another copy of this run has gone on.
            OSError: if the block cannot be made durable; it counts all the same, and no further step can be taken.
            Malformed: in a process that was forked off.
        """
        if self.ended or self.left == 0:
            return None
        self.ended = self.why_ends()
        if self.ended:
            return None
        if os.getpid() != self._process:
            raise Malformed("run", "goes on in the process that began it alone: a copy would take the same steps")
        step, until = self.taken + 1, self._steps
        if self._leases is not None:
            self.ended = self._leases.reach(step, self.why_ends)
            if self.ended:
                return None
            until = self._leases.until
        if step > self._log.steps_begun():
            self._log.begin(step, min(step + self._log.block_steps - 1, until))
        self.taken = step
        return step

    def why_ends(self) -> str:
        """Why no further work may begin, or nothing; inside a long step too."""
        return next((why for end in self._ends if (why := end())), "")

    def close(self) -> str:
        """Allow no further step, those of a begun block neither; why the run had ended before, or nothing."""
        why, self.ended = self.ended, self.ended or "it was posted"
        return why

    def __iter__(self) -> Iterator[int]:
        """Until the run is over."""
        return iter(self.next_step, None)
