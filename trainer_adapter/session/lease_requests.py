"""Requests of a clean room about the steps of its run: a lease of a block of them, a new generation."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from client.http.problems import Refused
from client.keys.signer import Signer
from client.service.service import Service
from ledger.domain.outcomes import Code
from ledger.mechanisms.mechanism import STEPS_MAX
from ledger.wire import canonical_json as c
from ledger.wire.malformed import Malformed
from trainer_adapter.job.job_spec import Assignment
from trainer_adapter.session.hardware_secret import hardware_secret
from trainer_adapter.session.receipt_check import check_recorded

CHALLENGES_MAX: Final = 8
"""How often fresh evidence is made, where the service has forgotten its challenge."""
Attest = Callable[[], tuple[str, str]]
"""Makes and deposits fresh evidence: its nonce, and its digest. Raises: Refused, Unreachable."""


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """A request for a lease; sent again it is the same request.

    Attributes:
        id: drawn for this request alone, which no copy of the process draws again.
        finished: the id of the newest lease whose steps were all taken; empty before the first.
        taken: how many steps of the run count as taken: none of them is returned.
        output: the digest of what leaves by this lease, None if nothing does.
        state: the digest of weights and optimiser when the newest finished lease ended; empty where that is not known.
    """

    id: str
    generation: int
    first: int
    last: int
    finished: str
    taken: int
    output: str | None = None
    state: str = ""

    @classmethod
    def fresh(
        cls, generation: int, span: tuple[int, int], finished: str, taken: int, output: str | None = None
    ) -> Self:
        """A request of its own, for the steps from the first to the last of a span."""
        return cls(f"lease-{hardware_secret().hex()}", generation, *span, finished, taken, output)

    def body(self, charge: str) -> c.Object:
        """The command's body: the run's state is which of its leases are finished, and what it had then."""
        known: c.Object = {"charge": charge, "finished": self.finished, "generation": self.generation, "v": 1}
        state = c.digest(c.dump({**known, "state": self.state, "v": 2} if self.state else known))
        return {
            "charge": charge,
            "first": self.first,
            "generation": self.generation,
            "last": self.last,
            "state": state,
            "taken": self.taken,
            **({} if self.output is None else {"output": self.output}),
        }


class LeaseRequests:
    """The requests of one run's clean room, which are sent again until the charge's deadline."""

    def __init__(self, service: Service, signer: Signer, assignment: Assignment, attest: Attest) -> None:
        """``service`` as the clean room calls it; ``signer`` is the key that the charge names."""
        self._own, self._signer, self._known, self._attest = service, signer, assignment, attest

    def lease(self, wanted: LeaseRequest) -> None:
        """Return once the steps are leased. Raises: Refused, if they are not; Unreachable, Malformed."""
        body = wanted.body(self._known.id)
        answer = self._own.submit(self._signer, self._known.actor, "step_lease", body, wanted.id)
        if answer.outcome != Code.PERMITTED.word or answer.id != wanted.id:
            raise Malformed("answer", f"is no lease of the steps {wanted.first} to {wanted.last}")

    def take_generation(self) -> tuple[int, int]:
        """A new generation, on fresh evidence: its number, and how many steps were leased before it.

        Raises:
            Refused, Unreachable, Malformed.
        """
        assignment = self._known
        for left in reversed(range(CHALLENGES_MAX)):
            nonce, evidence = self._attest()
            body: c.Object = {"charge": assignment.id, "evidence": evidence, "nonce": nonce}
            name = f"run_generation-{secrets.token_hex(16)}"
            try:
                answer = self._own.submit(self._signer, assignment.actor, "run_generation", body, name)
                break
            except Refused as refused:
                if refused.field != "body.nonce" or not left:
                    raise
        _, entry = check_recorded(self._own, answer, assignment.log, "run_generation", Code.PERMITTED)
        recorded = entry.body if isinstance(entry.body, dict) else {}
        return (
            c.integer(recorded.get("generation"), "answer.body.generation", 1, c.INTEGER_MAX),
            c.integer(recorded.get("leased"), "answer.body.leased", 0, STEPS_MAX),
        )
