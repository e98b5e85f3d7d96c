"""A new generation of a run: the clean room that goes on with it, attested anew; the one before it ends.

A clean room that resumes a run first takes a new generation. From that entry on every older one gets a conflict when it
requests a lease, posts or requests a release: so a copy of the run's folder, or a machine put back to an older state,
ends as soon as another has gone on. What older generations leased stays leased.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ledger.accounts.account_sums import AccountSums
from ledger.commands.command_fields import Natural
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context
from ledger.commands.runs.step_lease import GENERATIONS_MAX, Generation, leases_of
from ledger.domain.charge_record import StepLeases
from ledger.domain.decision import Decision, Rejected
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import Code
from ledger.domain.roles import CCR
from ledger.wire.field_types import KeyBytes, Name, Sha256
from ledger.wire.records import Record


class TakeGeneration(Record, frozen=True):
    """A run goes on in the attested clean room that sends this; ``nonce`` answers a challenge."""

    charge: Name
    evidence: Sha256
    nonce: KeyBytes


class TakenOver(Record, frozen=True):
    """The recorded part of a new generation's entry: its number, and how many steps were leased before it."""

    generation: Generation
    leased: Natural


class Resumed(NamedTuple):
    """A new generation of a run."""

    charge: str
    generation: int

    def apply(self, state: MemoryState, _index: int, _sums: AccountSums) -> None:
        """Make it the live generation. Raises: AssertionError, for a generation that is not the next one."""
        charge = state.charges[self.charge]
        leases = charge.leases
        assert leases is not None, f"charge {charge.id} leases no steps"
        assert self.generation == leases.generation + 1, f"charge {charge.id} is at generation {leases.generation}"
        taken, refund = leases.steps if leases.refund else 0, leases.refund
        held = StepLeases(self.generation, leases.steps, leases.steps, "", leases.granted, refund, "", taken)
        state.charges[charge.id] = charge._replace(leases=held)


def decide(context: Context[TakeGeneration]) -> Decision:
    """Decide a new generation."""
    charge = context.charge(context.body.charge)
    context.require_clean_room(charge)
    leases = leases_of(charge)
    if leases.generation >= GENERATIONS_MAX:
        raise Rejected(Code.CONFLICT, f"charge {charge.id} has had {GENERATIONS_MAX} generations", "body.charge")
    context.require_evidence(context.body.evidence)
    return context.permit(TakenOver(leases.generation + 1, leases.steps))


def effect(entry: Recorded[TakeGeneration]) -> Resumed:
    """The effect of a new generation's entry."""
    return Resumed(entry.body.charge, entry.fixed(TakenOver).generation)


RUN_GENERATION: Final = CommandKind(
    "run_generation", TakeGeneration, decide, (CCR,), "/v1/run-generations", effect=effect, recorded=TakenOver
)
