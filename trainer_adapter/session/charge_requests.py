"""Requests about a run's charge once it is made: its state, its progress, and the post that settles it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from client.http.problems import Refused
from client.keys.signer import Signer
from client.service.service import Service
from ledger.commands.runs.step_refund import RETURNING
from ledger.domain.outcomes import ChargeState
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment


@dataclass(frozen=True, slots=True)
class ChargeStatus:
    """What the service has on record of a run's charge, as its clean room reads it.

    ``_service`` retries until the charge's deadline; ``_once`` does not retry.
    """

    _assignment: Assignment
    _service: Service
    _once: Service

    def steps_posted(self) -> int | None:
        """The steps that the charge was posted for, None while it is pending.

        Raises:
            Malformed: in any other state. Refused, Unreachable.
        """
        charge = self._service.charge(self._assignment.id)
        state, steps = charge.get("state"), charge.get("steps_posted")
        if state == ChargeState.PENDING.value:
            return None
        if state != ChargeState.POSTED.value or not isinstance(steps, int):
            raise Malformed("charge", f"is {state}: this run cannot go on")
        return steps

    def model_posted(self) -> str:
        """The digest of the model that the post names; empty if it names none. Raises: Refused, Unreachable."""
        return str(self._service.charge(self._assignment.id).get("model") or "")

    def steps_reported(self) -> int:
        """The steps of the newest progress report that the service has. Raises: Refused, Unreachable, Malformed."""
        progress = self._service.charge(self._assignment.id).get("progress")
        steps = progress.get("steps") if isinstance(progress, dict) else None
        return steps if isinstance(steps, int) else 0

    def report_progress(self, steps: int) -> None:
        """Report how many steps are done, without a retry. Raises: Refused, Unreachable."""
        self._once.report_progress(self._assignment.id, steps)

    def why_over(self) -> str:
        """Why the ledger allows no further step, or nothing. Raises: Refused, Unreachable, Malformed."""
        charge = self._once.charge(self._assignment.id)
        state = charge.get("state")
        if state != ChargeState.PENDING.value:
            return f"the charge is {state}"
        return "the contract was revoked" if self._once.contract(self._assignment.contract).get("revoked") else ""


@dataclass(frozen=True, slots=True)
class Posts:
    """Settles the charge of a run, as its clean room.

    ``_service`` retries until the charge's deadline, ``_brief`` a few times; ``_attest`` deposits fresh evidence and
    gives its nonce and its digest; ``_say`` receives one line for each stage.
    """

    _assignment: Assignment
    _signer: Signer
    _service: Service
    _brief: Service
    _attest: Callable[[], tuple[str, str]]
    _say: Callable[[str], None]

    def post(self, steps: int, named: c.Object, *, brief: bool = False) -> None:
        """Settle for what ran; sent again, it is the same statement. Raises: Refused, Unreachable.

        It is retried until the deadline, or a few times only if ``brief``. ``named`` holds the other members: its
        model, and where the run leases its steps its generation and its newest lease.
        """
        assignment = self._assignment
        body: c.Object = {"charge": assignment.id, "steps": steps, **named}
        name = f"post-{c.digest(c.dump(body))[:32]}"
        service = self._brief if brief else self._service
        answer = service.submit(self._signer, assignment.actor, "post", body, name)
        self._say(f"{steps} of {assignment.plan.steps} steps posted, entry {answer.index}")

    def post_unleased(self, steps: int, model: c.Object, *, brief: bool = False) -> None:
        """As :meth:`post`, of a run that leases no steps, to a service that may not know yet that a post names a model.

        What such a service refuses is not recorded; it accepts any model of the run.
        """
        try:
            self.post(steps, model, brief=brief)
        except Refused as refused:
            if not model or refused.field != "body.model" or refused.index is not None:
                raise
            self.post(steps, {}, brief=brief)

    def post_returning(self, steps: int, returned: int, named: c.Object) -> bool:
        """Post fewer steps than are leased, where the policies of the charge allow it; whether that is done.

        Whatever is refused of it, evidence too, leaves the charge as it was: then all that is leased counts.
        """
        assignment = self._assignment
        if returned <= 0:
            return False
        try:
            held = self._service.charge(assignment.id).get("leases")
            refund = held.get("refund") if isinstance(held, dict) else None
            if refund not in RETURNING:
                return False
            if refund == "attested":
                nonce, evidence = self._attest()
                named = {**named, "evidence": evidence, "nonce": nonce}
            self.post(steps, named)
        except Refused as refused:
            self._say(f"{returned} leased steps do not return: {refused}")
            return False
        self._say(f"{returned} leased steps returned, {refund}")
        return True
