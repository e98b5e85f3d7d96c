"""Reports of a run's privacy loss: the ledger's own numbers, from the prices of the run's charge.

The reported ε is the odometer of the partition's rule at the partition's δ, of this run alone: it holds however early
the run ends. Where a run is charged to several partitions, the greatest ε is reported.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from client.http.problems import Reason, Refused
from client.service.service import Service
from ledger.domain.exit_codes import ExitCode
from ledger.filters import Rule, read_rule
from ledger.mechanisms.loss import Loss, loss_of, read_segments
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal, format_number, parse_positive
from ledger.wire.malformed import Malformed

PLACES: Final = 4


@dataclass(frozen=True, slots=True)
class EpsilonSpent:
    """A privacy loss as (ε, δ); ``epsilon`` is rounded up, None where it is infinite."""

    epsilon: Fraction | None
    delta: Fraction
    accountant: str

    def __str__(self) -> str:
        """As ``ε 0.7312``."""
        return f"ε {self.number}"

    def __float__(self) -> float:
        """The ε as a float of some library's, rounded to the nearest."""
        return float("inf") if self.epsilon is None else float(self.epsilon)

    @property
    def number(self) -> str:
        """As ``0.7312``."""
        return self.rounded_up(PLACES)

    def rounded_up(self, places: int) -> str:
        """With so many decimal places."""
        return "infinite" if self.epsilon is None else ceil_decimal(self.epsilon, places)


class LossReport:
    """The price of one run on each of its partitions.

    Attributes:
        prices: by partition, its rule and the price of the run's steps.
    """

    def __init__(self, service: Service, prices: c.Json, partitions: Iterable[str]) -> None:
        """The prices as the entry of a charge holds them. Raises: Refused, Unreachable, Malformed."""
        if not isinstance(prices, dict):
            raise Malformed("prices", "must be an object")
        rules = {ref: read_rule(c.dump(service.partition(ref)["terms"]).decode()) for ref in partitions}
        self.prices: Final = {ref: (rule, read_segments(prices[ref])) for ref, rule in rules.items()}

        self.spent: Final = lru_cache(maxsize=2)(self._spent)
        """The loss of the first steps of the run; cached, since each step of a block needs that and the whole run's."""

    def _spent(self, steps: int) -> EpsilonSpent:
        spent = [_spent(rule, loss_of(segments, steps)) for rule, segments in self.prices.values()]
        return max(spent, key=lambda one: (one.epsilon is None, one.epsilon or 0))


@dataclass(frozen=True, slots=True)
class AccountForecast:
    """One account as it would be after the run.

    Attributes:
        cap: the ε that binds it. share: of its capacity, used then. runs: how many more such runs would fit.
    """

    partition: str
    holder: str
    cap: Fraction
    share: Fraction
    runs: int

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"{self.partition}, {self.holder}: {ceil_decimal(100 * self.share, 1)} % of ε {format_number(self.cap)} "
            f"used, {self.runs} more such runs fit"
        )


@dataclass(frozen=True, slots=True)
class QuoteReport:
    """What the charge of a run would get now.

    Attributes:
        permitted: whether it would be charged. reasons: why not.
        spent: the loss of the whole run; None where it was refused before it was priced.
        accounts: every account that it would be charged to.
    """

    permitted: bool
    reasons: tuple[Reason, ...]
    spent: EpsilonSpent | None
    accounts: tuple[AccountForecast, ...]

    @classmethod
    def of_refusal(cls, refused: Refused) -> QuoteReport:
        """The report of what a budget, a policy or a rule refuses. Raises: Refused, itself, for anything else."""
        if not refused.reasons and refused.exit_code != ExitCode.REFUSED:
            raise refused
        reasons = refused.reasons or (Reason(refused.code, refused.detail),)
        return cls(permitted=False, reasons=reasons, spent=None, accounts=())

    def __str__(self) -> str:
        """For people."""
        if not self.permitted:
            return "\n".join(["The run would be refused:", *(f"  {one.code}: {one.detail}" for one in self.reasons)])
        lines = [f"The run would be charged {self.spent}.", *(f"  {one}" for one in self.accounts)]
        return "\n".join(lines)


def quote_report(service: Service, body: c.Object, partitions: Iterable[str], steps: int) -> QuoteReport:
    """The report of a permitted quote, whose entry would hold ``body``. Raises: Refused, Unreachable, Malformed."""
    losses, limits = LossReport(service, body["prices"], partitions), body["limits"]
    assert isinstance(limits, list)
    accounts = tuple(_forecast(service, losses, limit, steps) for limit in limits)
    return QuoteReport(permitted=True, reasons=(), spent=losses.spent(steps), accounts=accounts)


def _forecast(service: Service, losses: LossReport, limit: c.Json, steps: int) -> AccountForecast:
    known = c.fields(limit, "limits", ("cap", "holder", "partition"))
    ref, holder = c.string(known["partition"], "partition"), c.string(known["holder"], "holder")
    epsilon = parse_positive(c.fields(known["cap"], "cap", ("capacity", "epsilon"))["epsilon"], "epsilon")
    rule, segments = losses.prices[ref]
    run, cap = loss_of(segments, steps), rule.cap(epsilon)
    after = _current_loss(service, ref, holder, len(run.finite)) + run
    return AccountForecast(ref, holder, epsilon, rule.share(after, cap), rule.runs(after, cap, run))


def _current_loss(service: Service, ref: str, holder: str, width: int) -> Loss:
    listed = service.accounts(ref)["accounts"]
    assert isinstance(listed, list)
    total = Loss.zero(width)
    for one in listed:
        if isinstance(one, dict) and one["holder"] == holder:
            total = total + _loss(one["pending"]) + _loss(one["posted"])
    return total


def _loss(value: c.Json) -> Loss:
    known = c.fields(value, "loss", ("finite", "infinite"))
    return Loss(tuple(int(one) for one in known["finite"]), tuple(known["infinite"]))


def _spent(rule: Rule, loss: Loss) -> EpsilonSpent:
    kind = str(rule.to_json()["kind"])
    try:
        return EpsilonSpent(rule.odometer(loss), rule.delta, f"{kind} odometer")
    except ArithmeticError:
        return EpsilonSpent(None, rule.delta, f"{kind} odometer")
