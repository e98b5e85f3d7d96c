"""Whether an account has room for a run, with the numbers compared at the coordinate that decides.

    order 8: 6.9000 + 0.8000 > 7.5000 nat

The current loss, the run and the capacity, the first two rounded up and the last one down; in whole units where no
decimals up to a dozen places keep the sides as they are. An author may be shown the part of
others in an account rounded up; the decision is made on the exact sum, or on the rounded one where the policy says so.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from operator import add
from typing import Final, NamedTuple

from ledger.accounts.account_loss import counted_loss
from ledger.accounts.shared_account import counted_with_others, others_rounded_up
from ledger.domain.facts import GLOBAL, Account, Facts
from ledger.domain.gate import Check
from ledger.filters import Cap, Rule, read_rule
from ledger.mechanisms.loss import Loss, Segment, loss_of
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import NAT, ceil_decimal, format_number

CODE: Final = "no_room"
SUM_MAX: Final = 1 << 62
"""Units of loss at one coordinate of all charges on a partition, beyond which it took no more before
:data:`WIDE_SUMS_SINCE_MS`: a row had one integer for a sum. One charge has at most 2^48."""
WIDE_SUMS_SINCE_MS: Final = 1_797_292_800_000
"""2026-12-15: replay refuses what an earlier program refused for :data:`SUM_MAX`, by which one lineage could close a
partition to all others."""
Accounts = Mapping[tuple[str, str], Account]
_PLACES: Final = (4, 6, 8, 10, 12)


@dataclass(frozen=True, slots=True)
class Limit:
    """A cap on one account, as it binds one charge; ``share`` where it is a quota, so much of the capacity.

    Attributes:
        source: the document and version that states it; empty for the partition's own budget.
        rounded: whether the author is shown the part of others rounded up.
        counted_for: the holder of the author's lineage, where the part of all others counts rounded up; else empty.
    """

    partition: str
    holder: str
    cap: Cap
    share: Fraction | None = None
    source: str = ""
    rounded: bool = False
    counted_for: str = ""

    @property
    def counts_rounded(self) -> bool:
        """Whether the part of others counts rounded up: in the accounts that the author shares."""
        return bool(self.counted_for) and self.holder != self.counted_for

    def before(self, facts: Facts) -> Loss:
        """What counts of the account now; an account without charges is empty."""
        account = facts.accounts.get((self.partition, self.holder))
        nothing = Loss.zero(len(read_rule(facts.partitions[self.partition].terms).coordinates))
        whole = counted_loss(facts, account) if account else nothing
        if not self.counts_rounded:
            return whole
        own = facts.accounts.get((self.partition, self.counted_for))
        return counted_with_others(whole, own.loss if own else nothing, self.cap.capacity)

    def to_json(self) -> c.Object:
        """The form in the charge's entry, for replay to check."""
        quota: c.Object = {} if self.share is None else {"share": format_number(self.share)}
        return {"cap": self.cap.to_json(), "holder": self.holder, "partition": self.partition, **quota}


def is_infinite(rule: Rule, loss: Loss, cap: Cap) -> bool:
    """Whether a loss is no share of a capacity: some mechanism in it has no finite price where the cap has room."""
    return any(loss.infinite) and rule.decisive(loss, cap) is None


class Room(NamedTuple):
    """One account before and after a run, under its cap."""

    limit: Limit
    rule: Rule
    before: Loss
    segments: tuple[Segment, ...]
    steps: int

    @classmethod
    def of(cls, facts: Facts, limit: Limit, segments: tuple[Segment, ...], steps: int) -> Room:
        """The current account."""
        rule = read_rule(facts.partitions[limit.partition].terms)
        return cls(limit, rule, limit.before(facts), segments, steps)

    @property
    def used(self) -> Fraction:
        """The share of the capacity that would be used."""
        return self.rule.share(self.after, self.limit.cap)

    @property
    def run(self) -> Loss:
        """The loss of the whole run."""
        return loss_of(self.segments, self.steps)

    @property
    def after(self) -> Loss:
        """With the run."""
        return self.before + self.run

    @property
    def enough(self) -> bool:
        """Whether the rule admits the run."""
        return self.rule.admits(self.after, self.limit.cap)

    @property
    def runs(self) -> int:
        """How many such runs the rule admits one after the other, if nothing else is laid on the account."""
        return self.rule.runs(self.before, self.limit.cap, self.run)

    def as_shown(self, accounts: Accounts, own: str) -> Room:
        """The room as shown to the holder of the account ``own``: never less used than it is."""
        if not self.limit.rounded or self.limit.counts_rounded:
            return self
        part = self._own_part(accounts, own)
        return self._replace(before=part + others_rounded_up(self.before, part, self.limit.cap.capacity))

    def _own_part(self, accounts: Accounts, own: str) -> Loss:
        mine = accounts.get((self.limit.partition, own))
        return mine.loss if mine is not None else Loss.zero(len(self.rule.coordinates))

    def _is_shared(self, accounts: Accounts, own: str) -> bool:
        """Whether the holder of the account ``own`` is shown the part of others rounded, now or already before."""
        return self.limit.rounded and self.before.finite != self._own_part(accounts, own).finite

    def check(self, accounts: Accounts, own: str) -> Check:
        """The check that a decision lists. A coalition's account shows only whether it has room.

        Args:
            accounts: of the state that it is decided on, by partition and holder.
            own: the holder of the lineage that sent the command.
        """
        limit = self.limit
        if limit.holder not in {GLOBAL, own}:
            return Check(CODE, self.enough, silent(limit.partition, enough=self.enough), limit.holder)
        shown = self.as_shown(accounts, own)
        if limit.counts_rounded:
            text = f"{self.text()}; the part of others counts rounded up"
        elif self.enough and not shown.enough:
            text = f"the global account of {limit.partition} has room; the part of others is shown rounded up only"
        else:
            text = (
                f"{shown.text()}; the part of others is rounded up"
                if shown != self or self._is_shared(accounts, own)
                else self.text()
            )
        return Check(CODE, self.enough, text, limit.holder)

    def text(self) -> str:
        """How full the account is and would be, and the numbers that decide."""
        limit, cap = self.limit, self.limit.cap
        whose = "the global account" if limit.holder == GLOBAL else "the account of this lineage"
        whose = whose if limit.share is None else f"the quota of this lineage, {format_number(limit.share)} of all,"
        now, then = self._used_text(self.before), self._used_text(self.after)
        text = f"{whose} of {limit.partition} is {now} used and would be {then}"
        if not self.enough:
            fit = steps_that_fit(self.rule, self.before, cap, self.segments, self.steps)
            text = f"{text}; {fit} of the run's {self.steps} steps would fit"
        compared = self.compared()
        by = f"; the cap of ε {format_number(cap.epsilon)} is {self._says()}"
        return f"{text}{by} ({compared})" if compared else f"{text}{by}"

    def _used_text(self, loss: Loss) -> str:
        """How full the account is."""
        if is_infinite(self.rule, loss, self.limit.cap):
            return "infinite"
        return f"{ceil_decimal(100 * self.rule.share(loss, self.limit.cap), 1)} %"

    def _says(self) -> str:
        if self.limit.share is not None:
            return f"the partition's, the share that of {self.limit.source or 'a document'}"
        return f"that of {self.limit.source}" if self.limit.source else "the partition's"

    def compared(self) -> str:
        """The numbers at the coordinate that decides; empty where each holds an infinite charge or is closed."""
        place = self.rule.decisive(self.after, self.limit.cap)
        bound = None if place is None else self.limit.cap.capacity[place]
        if place is None or bound is None:
            return ""
        name, per_unit, unit = self.rule.coordinates[place]
        values = self.before.finite[place], self.run.finite[place], bound
        return f"{name}: {_sum(values, per_unit)} {unit}".rstrip()


def _sum(values: tuple[int, int, int], per_unit: int) -> str:
    """``a + b <= c`` with as few places as keep it true."""
    before, run, bound = values
    side = "<=" if before + run <= bound else ">"
    for places in _PLACES if per_unit == NAT else ():
        scale = 10**places
        up = [-(-value * scale // per_unit) for value in (before, run)]
        down = bound * scale // per_unit
        if (sum(up) <= down) == (before + run <= bound):
            decimals = (ceil_decimal(Fraction(value, scale), places) for value in (*up, down))
            return "{} + {} {side} {}".format(*decimals, side=side)
    of = "" if per_unit == 1 else f" times 1/{per_unit}"
    return f"{before} + {run} {side} {bound}{of}"


@dataclass(frozen=True, slots=True)
class GroupLimit:
    """A limit that binds a charge on several partitions alike, each by itself; ``limit`` names the first of them."""

    limit: Limit
    partitions: tuple[str, ...]

    def rooms(self, facts: Facts, segments: tuple[Segment, ...], steps: int) -> Iterator[Room]:
        """The account of each partition before and after a run."""
        for ref in self.partitions:
            yield Room.of(facts, replace(self.limit, partition=ref), segments, steps)

    def full(self, facts: Facts, segments: tuple[Segment, ...], steps: int) -> list[str]:
        """The partitions whose accounts have no room for a run."""
        if self.limit.counts_rounded:
            return [room.limit.partition for room in self.rooms(facts, segments, steps) if not room.enough]
        cap, holder, accounts, forgiven = self.limit.cap, self.limit.holder, facts.accounts, facts.forgiven
        rule, run = read_rule(facts.partitions[self.partitions[0]].terms), loss_of(segments, steps)
        # Many partitions usually have equal accounts.
        admitted: dict[Loss, bool] = {}
        full = []
        for ref in self.partitions:
            account = accounts.get((ref, holder))
            if account is None:
                before = Loss.zero(len(rule.coordinates))
            else:
                before = account.loss if (ref, holder) not in forgiven else counted_loss(facts, account)
            enough = admitted.get(before)
            if enough is None:
                enough = admitted[before] = rule.admits(before + run, cap)
            if not enough:
                full.append(ref)
        return full


def beyond_count(accounts: Accounts, refs: Iterable[str], now: int) -> str | None:
    """A partition that takes no more at a time (ms) because its charges together have too great a sum, if any."""
    if now >= WIDE_SUMS_SINCE_MS:
        return None
    found = ((ref, one) for ref in refs if (one := accounts.get((ref, GLOBAL))) is not None)
    # Many partitions usually have equal accounts, which share their sums.
    whole = {(id(one.posted), id(one.pending)): (ref, one) for ref, one in found}
    sums = ((ref, max(one.posted.finite) + max(one.pending.finite)) for ref, one in whole.values())
    return next((ref for ref, most in sums if most > SUM_MAX), None)


def runs_within_count(accounts: Accounts, losses: Mapping[str, Loss], now: int) -> int:
    """How many more runs of these losses :func:`beyond_count` certainly lets through, whatever is settled between."""
    if now >= WIDE_SUMS_SINCE_MS:
        return SUM_MAX
    # The greatest posted and the greatest pending sum are each at most the greatest of both together.
    most = (
        (max(map(add, one.posted.finite, one.pending.finite)) if one is not None else 0, max(run.finite))
        for one, run in ((accounts.get((ref, GLOBAL)), loss) for ref, loss in losses.items())
    )
    return min((max(0, SUM_MAX // 2 - total) // run for total, run in most if run), default=SUM_MAX)


def silent(partition: str, *, enough: bool) -> str:
    """Without amounts, which would show one member what the others spent."""
    return f"an account of a coalition has {'' if enough else 'no '}room on {partition}"


def steps_that_fit(rule: Rule, before: Loss, cap: Cap, segments: tuple[Segment, ...], steps: int) -> int:
    """The most first steps of a run that an account has room for."""

    def is_over(ran: int) -> bool:
        return not rule.admits(before + loss_of(segments, ran), cap)

    return bisect_left(range(1, steps + 1), x=True, key=is_over)
