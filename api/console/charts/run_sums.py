"""How runs use up one budget: after each of them the ε of all until then, which charts draw and tables list."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from ledger.domain import facts as domain
from ledger.domain.charge_record import Charge
from ledger.domain.outcomes import ChargeState
from ledger.filters import Rule, read_rule
from ledger.mechanisms.loss import Loss, loss_of
from ledger.store.snapshot import Log


@dataclass(frozen=True, slots=True)
class RunSum:
    """One run as it counts now: of a pending one all that is charged.

    Attributes:
        time: when it was charged (ms).
        sum: the ε of this run and all before it; None where none is proven.
        counted: without those that are pending.
    """

    charge: Charge
    time: int
    sum: Fraction | None
    counted: Fraction | None


def run_sums(partition: domain.Partition, charges: Iterable[Charge], log: Log) -> list[RunSum]:
    """Runs on a partition in their order, none of them voided, each with the odometer of all of them until then."""
    charges = [*charges]
    times, rule = log.times([one.index for one in charges]), read_rule(partition.terms)
    total = settled = Loss.zero(len(rule.coordinates))
    runs = []
    for one in charges:
        steps = one.steps if one.steps_posted is None else one.steps_posted
        price = loss_of(one.price_of(partition.ref), steps) if steps else Loss.zero(len(rule.coordinates))
        total += price
        settled = settled if one.state is ChargeState.PENDING else settled + price
        runs.append(RunSum(one, times[one.index], _odometer(rule, total), _odometer(rule, settled)))
    return runs


def _odometer(rule: Rule, loss: Loss) -> Fraction | None:
    """The ε of a loss at the partition's δ; None where none is proven."""
    try:
        return rule.odometer(loss)
    except ArithmeticError:
        return None
