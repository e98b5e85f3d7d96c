"""The end of a run: the post of what ran, with what it leased, what left it, and the digest of its model."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Final

from client.http.problems import Refused, Unreachable
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.run.block_leases import BlockLeases
from trainer_adapter.run.fenced_output import FencedOutput
from trainer_adapter.run.run_folder import open_step_log
from trainer_adapter.session.protocol import Say, Session

UNANSWERED_S: Final = 10.0
"""How long a run that broke waits for the answer to its last request for a lease."""


@dataclass(frozen=True, slots=True)
class Settlement:
    """Posts the steps of one run.

    Attributes:
        session: with the ledger.
        leases: of the run's steps; None of a run that leases none.
        output: what leaves with the post.
        model_data: the bytes of the one model that may leave; empty if the run has none.
        say: receives one line for each stage.
    """

    session: Session
    leases: BlockLeases | None
    output: FencedOutput
    model_data: bytes
    say: Say

    def post_briefly(self, steps: int) -> bool:
        """Whether it was posted; else the deadline posts all of the charge, or the ledger has settled it already."""
        try:
            self.post(steps, brief=True)
        except (Refused, Unreachable, Malformed) as unposted:
            self.say(f"nothing was posted, so the charge stays as it is: {unposted}")
            return False
        return True

    def post_unopened(self, assignment: Assignment, *, resumed: bool) -> bool:
        """Post a run whose data this process did not open; whether it was posted for no steps.

        A resumed run is posted for the steps that its log shows; where they are unknown, its deadline posts all.
        """
        begun = 0
        if resumed:
            try:
                with closing(open_step_log(assignment, self.session, resumed=True)) as log:
                    begun = log.steps_begun()
            except (Refused, Unreachable, Malformed, OSError) as unknown:
                self.say(f"nothing was posted, since it is not known how many steps began: {unknown}")
                return False
        return self.post_briefly(begun) and not begun

    def post(self, steps: int, *, brief: bool = False) -> None:
        """Post so many steps, and what is leased; ``brief``: with few retries. Raises: Refused, Unreachable."""
        session = self.session
        model: c.Object = {"model": c.digest(self.model_data)} if steps and self.model_data else {}
        if not session.identity.leases:
            session.posts.post_unleased(steps, model, brief=brief)
            return
        leases, named = self.leases, dict[str, c.Json](generation=1, **model)
        if leases is not None:
            leases.settle(UNANSWERED_S if brief else None)
            named["generation"] = leases.generation
            named |= {} if (output := self.output.seal()) is None else {"output": output}
            named |= {"lease": leases.newest} if leases.newest else {}
            chained = {**named, "chain": leases.chain}
            if not brief and session.posts.post_returning(steps, leases.granted - steps, chained):
                return
            steps = max(steps, leases.granted)
        session.posts.post(steps, named, brief=brief)
