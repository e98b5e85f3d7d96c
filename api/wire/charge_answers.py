"""Answers about runs: a charge in its state, what is leased of it, how far it is, and what was waived for it."""

from __future__ import annotations

from typing import Annotated, Any, Self

from msgspec import Meta

from api.http.field_types import Digest, Index, KeyBytes, Natural, Ref, Steps, Time, one_of
from ledger.commands.runs.step_refund import Returned
from ledger.domain import charge_record
from ledger.domain.facts import Facts
from ledger.domain.gate import Refund
from ledger.domain.outcomes import ChargeState
from ledger.wire.field_types import Did, Name
from ledger.wire.records import Record
from policy.decisions.documents_in_force import read_contract
from policy.documents.contract import WAIVABLE


class Leases(Record, frozen=True):
    """How many steps of a pending run are leased, in how many leases, and to which generation."""

    generation: Annotated[int, Meta(ge=1)]
    granted: Natural
    newest: Annotated[Name | None, Meta(description="the id of the newest lease of this generation")]
    steps: Steps
    refund: Annotated[Refund | None, Meta(description="what the policies state of leased steps not taken")] = None
    taken: Annotated[Steps | None, Meta(description="so many of them never return, by the newest lease")] = None

    @classmethod
    def of_state(cls, held: charge_record.StepLeases) -> Self:
        """As the registry has it; what only a stated refund keeps is absent without one."""
        stated = {"refund": held.refund, "taken": held.taken} if held.refund else {"refund": None, "taken": None}
        return cls.project(held, newest=held.newest or None, **stated)


class Charge(Record, frozen=True):
    """A charge in its current state."""

    actor: Did
    contract: Digest
    deadline: Time
    id: Name
    index: Index
    key_id: KeyBytes
    key_release: Name | None
    partitions: tuple[Ref, ...]
    plan: Digest
    sealing: KeyBytes
    state: Annotated[str, one_of(*ChargeState)]
    steps: Steps
    steps_posted: Steps | None
    leases: Leases | None = None
    model: Digest | None = None
    post: Name | None = None

    @classmethod
    def of_record(cls, record: charge_record.Charge, **fields: Any) -> Self:  # noqa: ANN401 - each has the type of its field
        """As the registry has it; what is leased of a pending run that leases its steps."""
        held = record.leases if record.state is ChargeState.PENDING else None
        leases = None if held is None else Leases.of_state(held)
        return cls.project(record, leases=leases, **fields)


class Progress(Record, frozen=True):
    """The newest report of the steps that are done."""

    steps: Steps
    time: Time


class Waiver(Record, frozen=True):
    """What an SRO let the run's pipeline do without a price."""

    ends: Time
    issuer: Did
    pipeline: Digest
    reason: str
    waives: Annotated[str, one_of(*WAIVABLE)]


class ChargeWithProgress(Charge, frozen=True, kw_only=True):
    """A charge in its current state, and the newest report of its clean room."""

    progress: Progress | None
    waivers: Annotated[tuple[Waiver, ...] | None, Meta(description="of the contract, for the pipeline of this run")] = (
        None
    )
    returned: Returned | None = None

    @classmethod
    def of_charge(
        cls, found: charge_record.Charge, facts: Facts, progress: Progress | None, returned: Returned | None
    ) -> Self:
        """As the registry has it, with what its contract says of its pipeline."""
        stated = read_contract(facts.documents[found.contract]).waivers or ()
        own = tuple(
            Waiver.project(waiver, ends=int(waiver.ends)) for waiver in stated if waiver.pipeline == found.pipeline
        )
        return cls.of_record(found, progress=progress, returned=returned, waivers=own or None)
