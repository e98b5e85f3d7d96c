"""What the charge of a run would get now: the ε of the run, and every account as it would be afterwards.

The service computes every number here: decrees, quotas, coalitions and the part of others count as they would for the
charge itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from client.http.problems import Reason, Refused
from client.service.answers import Answer
from ledger.accounts.run_epsilon import RunEpsilon, greatest
from ledger.domain.exit_codes import ExitCode
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number, parse_positive
from ledger.wire.malformed import Malformed
from ledger.wire.records import convert


@dataclass(frozen=True, slots=True)
class AccountForecast:
    """One account as it would be after the run.

    Attributes:
        name: whose account it is.
        cap: the ε that binds it. quota: the part of that ε's capacity that a lineage has, if it has a quota.
        used: in per cent of its capacity, rounded up. runs: how many more such runs would fit.
    """

    partition: str
    holder: str
    name: str
    cap: Fraction
    used: str
    runs: int
    quota: Fraction | None = None

    def __str__(self) -> str:
        """One line for people."""
        part = "" if self.quota is None else f"the quota, {format_number(self.quota)} of "
        capacity = f"{part}ε {format_number(self.cap)}"
        more = "1 more such run fits" if self.runs == 1 else f"{self.runs} more such runs fit"
        return f"{self.partition}, {self.name}: {self.used} of {capacity} used with this run, {more}"


@dataclass(frozen=True, slots=True)
class QuoteReport:
    """What the charge of a run would get now.

    Attributes:
        permitted: whether it would be charged. reasons: why not.
        lines: the ε of the whole run, one line a partition; none where it was refused.
        accounts: every account that it would be charged to; of many alike in a range, one.
        advice: lines for people: what would be admitted instead.
        warnings: that an account which is shared with others may have no room.
        more: how many more such runs would be admitted after it, contract and policy included, if no one else charged;
            None where it was refused.
    """

    permitted: bool
    reasons: tuple[Reason, ...]
    lines: tuple[RunEpsilon, ...]
    accounts: tuple[AccountForecast, ...]
    advice: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    more: int | None = None

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
        shown = [f"  {line}" for line in (*lines, *self.accounts)]
        more = () if self.more is None else (f"  After it {self.more} more such runs would be admitted.",)
        warnings = (f"  Warning: {warning}" for warning in self.warnings)
        return "\n".join([f"The run would be charged {self.epsilon}.", *shown, *more, *warnings])


def quote_report(quoted: Answer, planned: c.Object) -> QuoteReport:
    """The report of a permitted quote, and of the service's report on the same run as a plan. Raises: Malformed."""
    lines = convert(tuple[RunEpsilon, ...], quoted.body.get("run_epsilon"), "run_epsilon")
    runs = c.members(planned.get("runs"), "runs")
    accounts, more = runs.get("accounts"), c.integer(runs.get("more"), "runs.more", 0, c.INTEGER_MAX)
    if not isinstance(accounts, list):
        raise Malformed("runs.accounts", "must be an array")
    return QuoteReport(
        permitted=True,
        reasons=(),
        lines=lines,
        accounts=tuple(_forecast(c.members(account, "runs.accounts")) for account in accounts),
        warnings=quoted.warnings,
        more=max(more - 1, 0),
    )


def _forecast(account: c.Object) -> AccountForecast:
    quota = account.get("share_max")
    return AccountForecast(
        partition=c.string(account.get("partition"), "partition"),
        holder=c.string(account.get("holder"), "holder"),
        name=c.string(account.get("name"), "name"),
        cap=parse_positive(account.get("epsilon_max"), "epsilon_max"),
        used=c.string(account.get("used_after"), "used_after"),
        # Counted from the run itself on, which is the first of them.
        runs=max(c.integer(account.get("runs"), "runs", 0, c.INTEGER_MAX) - 1, 0),
        quota=None if quota is None else parse_positive(quota, "share_max"),
    )
