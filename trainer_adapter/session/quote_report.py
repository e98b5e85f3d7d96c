"""What the charge of a run would get now: the ε of the run, and every account as it would be afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

from client.http.problems import Reason, Refused
from client.service.service import Service
from ledger.accounts.run_epsilon import RunEpsilon, greatest
from ledger.domain.exit_codes import ExitCode
from ledger.filters import Rule, read_rule
from ledger.mechanisms.loss import Loss, Segment, loss_of, read_segments
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import ceil_decimal, format_number, parse_positive
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert

_Prices = dict[str, tuple[Rule, tuple[Segment, ...]]]
"""By partition, its rule and the price of the run."""


@dataclass(frozen=True, slots=True)
class AccountForecast:
    """One account as it would be after the run.

    Attributes:
        name: whose account it is.
        cap: the ε that binds it. share: of its capacity, used then. runs: how many more such runs would fit.
    """

    partition: str
    holder: str
    name: str
    cap: Fraction
    share: Fraction
    runs: int

    def __str__(self) -> str:
        """One line for people."""
        return (
            f"{self.partition}, {self.name}: {ceil_decimal(100 * self.share, 1)} % of ε {format_number(self.cap)} "
            f"used, {self.runs} more such runs fit"
        )


@dataclass(frozen=True, slots=True)
class QuoteReport:
    """What the charge of a run would get now.

    Attributes:
        permitted: whether it would be charged. reasons: why not.
        lines: the ε of the whole run, one line a partition; none where it was refused.
        accounts: every account that it would be charged to.
        advice: lines for people: what would be admitted instead.
    """

    permitted: bool
    reasons: tuple[Reason, ...]
    lines: tuple[RunEpsilon, ...]
    accounts: tuple[AccountForecast, ...]
    advice: tuple[str, ...] = ()

    @classmethod
    def of_refusal(cls, refused: Refused) -> QuoteReport:
        """The report of what a budget, a policy or a rule refuses. Raises: Refused, itself, for anything else."""
        if not refused.reasons and refused.exit_code != ExitCode.REFUSED:
            raise refused
        reasons = refused.reasons or (Reason(refused.code, refused.detail),)
        return cls(permitted=False, reasons=reasons, lines=(), accounts=(), advice=refused.advice)

    @property
    def epsilon(self) -> RunEpsilon:
        """The greatest of the lines. Raises: ValueError, where the run was refused."""
        return greatest(self.lines)

    def __str__(self) -> str:
        """For people."""
        if not self.permitted:
            reasons = (*(f"{reason.code}: {reason.detail}" for reason in self.reasons), *self.advice)
            return "\n".join(["The run would be refused:", *(f"  {reason}" for reason in reasons)])
        lines = self.lines if len(self.lines) > 1 else ()
        shown = (f"  {line}" for line in (*lines, *self.accounts))
        return "\n".join([f"The run would be charged {self.epsilon}.", *shown])


def quote_report(service: Service, body: c.Object, partitions: Iterable[str], steps: int) -> QuoteReport:
    """The report of a permitted quote, which answered ``body``. Raises: Refused, Unreachable, Malformed."""
    lines = convert(tuple[RunEpsilon, ...], body.get("run_epsilon"), "run_epsilon")
    prices, limits = _prices(service, body["prices"], partitions), body["limits"]
    assert isinstance(limits, list)
    accounts = tuple(_forecast(service, prices, limit, steps) for limit in limits)
    return QuoteReport(permitted=True, reasons=(), lines=lines, accounts=accounts)


def _prices(service: Service, prices: c.Json, partitions: Iterable[str]) -> _Prices:
    if not isinstance(prices, dict):
        raise Malformed("prices", "must be an object")
    # Of a range the first partition of each group has the price.
    priced = [ref for ref in partitions if ref in prices]
    rules = {ref: read_rule(c.dump(service.partition(ref)["terms"]).decode()) for ref in priced}
    return {ref: (rule, read_segments(prices[ref])) for ref, rule in rules.items()}


def _forecast(service: Service, prices: _Prices, limit: c.Json, steps: int) -> AccountForecast:
    members = c.fields(limit, "limits", ("cap", "holder", "partition"), ("share",))
    ref, holder = c.string(members["partition"], "partition"), c.string(members["holder"], "holder")
    epsilon = parse_positive(c.fields(members["cap"], "cap", ("capacity", "epsilon"))["epsilon"], "epsilon")
    rule, segments = prices[ref]
    run, cap = loss_of(segments, steps), rule.cap(epsilon)
    if "share" in members:
        cap = cap.part(parse_positive(members["share"], "share"))
    name, before = _current(service, ref, holder, len(run.finite))
    after = before + run
    return AccountForecast(ref, holder, name, epsilon, rule.share(after, cap), rule.runs(after, cap, run))


def _current(service: Service, ref: str, holder: str, width: int) -> tuple[str, Loss]:
    """Whose account it is, and its loss; nothing is lost of one that is not listed yet."""
    listed = service.accounts(ref)["accounts"]
    assert isinstance(listed, list)
    for limit in listed:
        if isinstance(limit, dict) and limit["holder"] == holder:
            return str(limit.get("name", holder)), _loss(limit["pending"]) + _loss(limit["posted"])
    return "everyone" if holder == "global" else "this lineage", Loss.zero(width)


def _loss(value: c.Json) -> Loss:
    members = c.fields(value, "loss", ("finite", "infinite"))
    return Loss(tuple(int(coordinate) for coordinate in members["finite"]), tuple(members["infinite"]))
