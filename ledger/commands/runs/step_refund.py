"""The refund of a run that leases its steps: unleased steps always, leased ones if the policies allow it.

A policy states ``refund``. Where every policy of a charge does, the charge's entry records the strictest, and then a
lapse posts what was leased: that no other step was taken is the ledger's own fact. ``never`` counts every leased step.
``attested`` and ``stated`` let a post return leased steps that were not taken: of the live generation alone, which
names the chain of its lease ids, and none that its newest lease states as taken. So no step is refunded that an earlier
generation leased, or whose public results have left by a lease. ``attested`` requires fresh evidence with the post: it
proves that the attested code states so, and not that its memory is the run's newest; ``stated`` rests on the
statement of the holder of the clean room's key.
"""

from __future__ import annotations

from typing import Annotated, Final, Protocol

from ledger.commands.command_fields import Count
from ledger.domain.charge_record import Charge, StepLeases
from ledger.domain.decision import Rejected
from ledger.domain.outcomes import Code
from ledger.wire.field_types import words
from ledger.wire.records import Record

RETURNING: Final = ("attested", "stated")
"""The refunds that let leased steps return."""


class Returned(Record, frozen=True):
    """Leased steps that a post returns, and who states it: attested code, or the clean room."""

    refund: Annotated[str, words(*RETURNING)]
    steps: Count


class PostRecord(Record, frozen=True):
    """What the entry of a post records beside its request, if leased steps are refunded."""

    returned: Returned | None = None


class LeasedPost(Protocol):
    """The post of a run that leases its steps."""

    @property
    def steps(self) -> int:
        """The steps that ran."""

    @property
    def chain(self) -> str | None:
        """The digest of the chain of the live generation's lease ids."""

    @property
    def evidence(self) -> str | None:
        """The digest of fresh evidence."""


def returned_steps(leases: StepLeases, post: LeasedPost) -> int:
    """How many leased steps a post returns."""
    return max(0, leases.steps - post.steps)


def check_return(charge: Charge, leases: StepLeases, post: LeasedPost) -> PostRecord:
    """Check the leased steps of a post by the live generation; return what its entry records. Raises: Rejected."""
    if post.chain is not None and post.chain != leases.chain:
        detail = f"the chain of leases of charge {charge.id} is another: this clean room must end"
        raise Rejected(Code.CONFLICT, detail, "body.chain")
    steps = returned_steps(leases, post)
    if not steps:
        return PostRecord()
    if leases.refund not in RETURNING or post.chain is None:
        detail = f"{leases.steps} steps of charge {charge.id} were leased, which count as run"
        raise Rejected(Code.CONFLICT, detail, "body.steps")
    if post.steps < leases.taken:
        detail = f"{leases.taken} steps of charge {charge.id} were taken, by its leases"
        raise Rejected(Code.CONFLICT, detail, "body.steps")
    if leases.refund == "attested" and post.evidence is None:
        detail = f"leased steps of charge {charge.id} return on fresh evidence only"
        raise Rejected(Code.CONFLICT, detail, "body.evidence")
    return PostRecord(Returned("stated" if post.evidence is None else "attested", steps))
