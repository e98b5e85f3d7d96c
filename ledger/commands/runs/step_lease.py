"""A block lease: from this entry on one generation of a run may take a block of its steps, which count as begun.

A run that leases its steps (``step_leases`` of its charge) takes none before its lease is an entry, and requests each
lease while the one before it trains. Leases follow one another without a gap: the first step of each is the one after
all that are leased, no matter who leased them. So of two copies of a clean room that go on from one state, one gets the
steps and the other a conflict, and no step is ever leased twice. The command's id is the lease's: 256 bits drawn from
hardware for this one request, so that the same request sent again gets the same answer, and that of a copy is another.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, NamedTuple

from ledger.accounts.account_sums import AccountSums
from ledger.commands.command_kind import CommandKind, Recorded
from ledger.commands.context import Context, require_pending
from ledger.domain.charge_record import Charge, StepLeases
from ledger.domain.decision import Decision, Rejected
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import Code
from ledger.domain.roles import CCR
from ledger.mechanisms.mechanism import STEPS_MAX
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Name, Sha256, between
from ledger.wire.records import Record

LEASES_MAX: Final = 400
"""Leases of one run; a trainer leases half a per cent of its steps or more at once."""
GENERATIONS_MAX: Final = 100
"""Generations of one run."""
LEASE_ID: Final = re.compile(r"lease-[0-9a-f]{64}")
"""The id of a lease: 256 random bits, in hexadecimal."""
Generation = Annotated[int, between(1, GENERATIONS_MAX)]


class LeaseSteps(Record, frozen=True):
    """Lease the steps from ``first`` to ``last``, counted from 1, to the live generation of a run.

    Attributes:
        state: the digest of what the run had when its last finished lease ended; at first, when it began.
        output: the digest of all that leaves the clean room by this lease, once it is an entry: its public metrics.
        taken: how many steps this generation and those before it have taken at least; none of them is ever returned.
    """

    charge: Name
    generation: Generation
    first: Annotated[int, between(1, STEPS_MAX)]
    last: Annotated[int, between(1, STEPS_MAX)]
    state: Sha256
    output: Sha256 | None = None
    taken: Annotated[int, between(0, STEPS_MAX)] | None = None


class Leased(NamedTuple):
    """A lease: its id, the last step that is leased from now on, and how many are taken, if stated."""

    id: str
    charge: str
    last: int
    taken: int | None = None

    def apply(self, state: MemoryState, _index: int, _sums: AccountSums) -> None:
        """Record the leased steps. Raises: AssertionError, for a charge that does not lease its steps."""
        charge = state.charges[self.charge]
        leases = charge.leases
        assert leases is not None, f"charge {charge.id} leases no steps"
        leased = leases._replace(steps=self.last, newest=self.id, granted=leases.granted + 1)
        if leases.refund:
            # Without a statement every leased step counts as taken.
            taken = leases.steps if self.taken is None else self.taken
            leased = leased._replace(chain=chained(leases.chain, self.id), taken=taken)
        state.charges[charge.id] = charge._replace(leases=leased)


def chained(chain: str, lease: str) -> str:
    """The digest of a chain of lease ids with one more; the chain is empty before a generation's first lease."""
    return c.digest(c.dump([chain, lease]))


def leases_of(charge: Charge) -> StepLeases:
    """The leases of a pending run whose keys are released. Raises: Rejected."""
    require_pending(charge)
    if charge.leases is None:
        raise Rejected(Code.CONFLICT, f"charge {charge.id} was made without step leases", "body.charge")
    if charge.key_release is None:
        raise Rejected(Code.CONFLICT, f"the keys of charge {charge.id} are not released yet", "body.charge")
    return charge.leases


def require_live(charge: Charge, leases: StepLeases, generation: int | None) -> None:
    """Check that the live generation of a run sent the command. Raises: Rejected."""
    if generation != leases.generation:
        detail = f"charge {charge.id} is at generation {leases.generation}: this clean room must end"
        raise Rejected(Code.CONFLICT, detail, "body.generation")


def decide(context: Context[LeaseSteps]) -> Decision:
    """Decide a lease: the live generation's, of the steps right after all that are leased."""
    body, name = context.body, context.command.id
    charge = context.charge(body.charge)
    context.require_clean_room(charge)
    leases = leases_of(charge)
    require_live(charge, leases, body.generation)
    if not LEASE_ID.fullmatch(name):
        raise Rejected(Code.MALFORMED, "id: must be 'lease-' and 64 lower-case hexadecimal digits", "id")
    if body.first != leases.steps + 1:
        detail = f"{leases.steps} steps of charge {charge.id} are leased already: this clean room must end"
        raise Rejected(Code.CONFLICT, detail, "body.first")
    if not body.first <= body.last <= charge.steps:
        rule = f"must be from {body.first} to the {charge.steps} that were charged"
        raise Rejected(Code.MALFORMED, f"body.last: {rule}", "body.last")
    if body.taken is not None and not leases.taken <= body.taken <= leases.steps:
        rule = f"must be from {leases.taken} to the {leases.steps} that are leased"
        raise Rejected(Code.MALFORMED, f"body.taken: {rule}", "body.taken")
    if leases.granted >= LEASES_MAX:
        raise Rejected(Code.CONFLICT, f"charge {charge.id} has had {LEASES_MAX} leases", "body.charge")
    return context.permit()


def effect(entry: Recorded[LeaseSteps]) -> Leased:
    """The effect of a lease's entry."""
    return Leased(entry.id, entry.body.charge, entry.body.last, entry.body.taken)


STEP_LEASE: Final = CommandKind("step_lease", LeaseSteps, decide, (CCR,), "/v1/step-leases", effect=effect)
