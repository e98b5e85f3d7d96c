"""A run's ε at each δ, with what is named beside it: the bound on all runs of the partition, and its budget."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Annotated, Final

from msgspec import Meta

from api.auth.authorisation import OPERATIONS, Caller
from api.http.field_types import Number, Ref
from api.wire.account_book import everyones_epsilon
from ledger.accounting.epsilon_report import report_up
from ledger.accounts.odometer_curve import odometer_at
from ledger.accounts.pricing import COMPUTED
from ledger.book.past_snapshot import PastSnapshot
from ledger.commands.runs.model_ancestry import charged_body
from ledger.domain.charge_record import Charge
from ledger.domain.decision import Rejected
from ledger.domain.facts import Partition
from ledger.filters import read_rule
from ledger.store.snapshot import Snapshot
from ledger.wire.field_types import Name
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

DELTAS: Final = tuple(Fraction(1, 10**place) for place in range(3, 9))
"""Each δ of a curve."""


class CurvePoint(Record, frozen=True):
    """An ε at one δ."""

    delta: Number
    epsilon: Annotated[Number | None, Meta(description="rounded up; null where none is proven")]


class CurveAccount(Record, frozen=True):
    """What all runs of a partition reveal together, as the caller is shown its account: a bound at every moment.

    Attributes:
        bound: what proves the ε at the partition's own δ.
        points: by the partition's rule, each by itself; one alone where its proof holds at the partition's δ only.
    """

    bound: str
    epsilon: Annotated[Number | None, Meta(description="at the partition's δ; null where none is proven")]
    points: tuple[CurvePoint, ...]


class EpsilonCurve(Record, frozen=True):
    """The ε of one run at each δ, on the partition where it reveals most.

    Attributes:
        account: absent for a caller who is shown no account of the partition.
        points: of the whole plan, which bound the run whenever it stops.
    """

    budget: CurvePoint
    charge: Name
    partition: Ref
    points: tuple[CurvePoint, ...]
    account: CurveAccount | None = None


def epsilon_curve(
    facts: Snapshot | PastSnapshot, found: Partition, charge: Charge, caller: Caller, now: int
) -> EpsilonCurve:
    """The curve of a charge on one of its partitions, as a caller is shown it at ``now`` (ms). Raises: Malformed."""
    return EpsilonCurve(
        account=_account(facts, found, caller, now),
        budget=CurvePoint(delta=found.delta, epsilon=found.epsilon),
        charge=charge.id,
        partition=found.ref,
        points=tuple(CurvePoint(delta=one, epsilon=_plan_epsilon(facts, charge, found, one)) for one in DELTAS),
    )


def _account(facts: Snapshot | PastSnapshot, found: Partition, caller: Caller, now: int) -> CurveAccount | None:
    """Everyone's account, to who may read the accounts of the partition."""
    if not set(caller.roles) & set(OPERATIONS["read_accounts"]) or not caller.sees_partition(found, facts):
        return None
    used = everyones_epsilon(facts, found, now, caller)
    if used is None:
        return None
    loss, reported = used
    rule = read_rule(found.terms)
    at = {delta: odometer_at(rule, loss, delta) for delta in sorted({*DELTAS, found.delta}, reverse=True)}
    points = tuple(CurvePoint(delta=delta, epsilon=_shown(at_)) for delta, at_ in at.items() if at_ is not None)
    return CurveAccount(bound=reported.bound, epsilon=_shown(reported.epsilon), points=points)


def _shown(epsilon: Fraction | None) -> Fraction | None:
    return None if epsilon is None else report_up(epsilon)


def _plan_epsilon(facts: Snapshot | PastSnapshot, charge: Charge, found: Partition, delta: Fraction) -> Fraction | None:
    """The ε of the whole plan at another δ than the partition's; None where none is proven."""
    try:
        return COMPUTED.epsilon(replace(found, delta=delta), charged_body(facts, charge))
    except (Rejected, Malformed, ArithmeticError):
        return None
