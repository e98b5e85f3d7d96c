"""Leases of a run that answers: each names the answers before it, which leave once it is an entry.

A run that trains requests its next lease while it works. One that answers waits for questions, so it leases where a
batch of answers is to leave, in the thread that gives them: as many steps as the batch took, and more where a run of
many questions would otherwise need more leases than the ledger grants. Of two copies of one room one gets the entry, so
what the other answered is never seen.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from client.http.problems import Refused, Unreachable
from ledger.commands.runs.step_lease import LEASES_MAX
from trainer_adapter.run.block_leases import BlockLeases
from trainer_adapter.run.fenced_output import FencedOutput
from trainer_adapter.session.lease_requests import LeaseRequest, LeaseRequests

BATCHES_MAX: Final = LEASES_MAX - 20
"""Batches of answers that leave one run; the rest of its leases are for processes that began anew."""


class AnswerLeases(BlockLeases):
    """The leases of one process of a run that answers."""

    def __init__(
        self, requests: LeaseRequests, steps: int, at_once: int, *, resumed: bool, output: FencedOutput
    ) -> None:
        """Of a run of so many questions, ``at_once`` of which are answered together. Raises: as of training."""
        super().__init__(requests, steps, at_once, 0, resumed=resumed, output=output)
        self._ahead = max(at_once, math.ceil(steps / BATCHES_MAX))
        self._unanswered: LeaseRequest | None = None
        self._taken_of: list[tuple[str, int]] = []

    def reach(self, step: int, ends: Callable[[], str]) -> str:
        """Lease until a step may be taken; why the run ends instead, or nothing. Raises: Refused."""
        return "" if step <= self._until else self.extend(step - 1, ends)

    def extend(self, taken: int, ends: Callable[[], str]) -> str:
        """Lease so many more steps that a batch is leased beyond those taken; what is held leaves by it.

        Returns:
            Why no further step is leased, or nothing. Where all steps are leased, what is held leaves with the post.

        Raises:
            Refused: if another copy of this run has gone on.
        """
        if self.granted >= self._steps and self._unanswered is None:
            return ""
        if why := self.refused or ends():
            return why
        if self._unanswered is None:
            first = self.granted + 1
            last = min(self._steps, max(first, taken + self._ahead))
            finished = next((name for name, end in reversed(self._taken_of) if end <= taken), "")
            held = self._output.seal()
            self._unanswered = LeaseRequest.fresh(
                self.generation, (first, last), finished, min(taken, self.granted), held
            )
        return self._send_again(self._unanswered)

    def settle(self, wait_s: float | None = None) -> None:
        """Retry the request of a lease whose answer was lost: if it was granted it counts."""
        del wait_s
        if self._unanswered is not None and not self.refused:
            self._send_again(self._unanswered)

    def _send_again(self, wanted: LeaseRequest) -> str:
        try:
            self._requests.lease(wanted)
        except Refused as refused:
            if refused.field in {"body.first", "body.generation"}:
                raise
            self.refused = f"no further question is taken: {refused}"
            return self.refused
        except Unreachable as error:
            return f"no answer leaves: {error}"
        self._unanswered = None
        self._add(wanted)
        self._taken_of.append((wanted.id, wanted.last))
        self._until = wanted.last
        self.entered += 1
        self._output.let_out()
        return ""
