"""The accounts of a partition as a caller is shown them, and what is left of each for a refused charge."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Final, Self

from api.auth.authorisation import Caller
from api.http.pagination import Page, fetch_from
from api.http.problems import RemainingShare
from api.wire.account_answers import Account, AccountLoss, AccountPage, Budget, FrozenAccount
from ledger.book.past_snapshot import PastSnapshot
from ledger.commands.runs.account_epsilon import AccountEpsilon, account_epsilon, odometer_epsilon
from ledger.commands.runs.charge_entry import MakeCharge
from ledger.commands.runs.model_ancestry import charged_body
from ledger.domain import charge_record
from ledger.domain import facts as domain
from ledger.domain.decision import Rejected
from ledger.domain.facts import GLOBAL, Facts, holder_of
from ledger.domain.partition_ranges import partitions_within
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, loss_of
from ledger.organisation_lineage.holder_names import holder_name
from ledger.store.snapshot import Snapshot
from ledger.wire.exact_numbers import ceil_decimal, format_number
from policy.decisions.documents_in_force import bindings
from policy.decisions.last_run import LastRun
from policy.planning.account_caps import AccountStatus, PartitionBounds, account_status, partition_bounds
from policy.planning.account_figures import PartitionFigures
from policy.planning.shared_account import facts_as_shown, is_rounded, rounded_account
from policy.planning.streams.slice_status import slice_status

_SHARE_UNIT: Final = 10_000
_LINEAGES_MAX: Final = 200
_RUNS_MAX: Final = 20
"""Lineages of a partition, and newest runs of each, among which the last charge is looked for."""


@dataclass(frozen=True)
class AccountBook:
    """The accounts of one partition under all that binds them at one time.

    ``runs_like_the_last`` is how many more runs at the full price of the newest charge would be admitted
    if no one else charged; null before the first charge.
    """

    facts: Snapshot | PastSnapshot
    partition: domain.Partition
    bounds: PartitionBounds | None
    figures: PartitionFigures
    newest: dict[str, charge_record.Charge]
    rounded: domain.Account | None

    @classmethod
    def at(
        cls,
        facts: Snapshot | PastSnapshot,
        partition: domain.Partition,
        now: int,
        caller: Caller,
        newest: dict[str, charge_record.Charge] | None = None,
    ) -> Self:
        """Under the bounds in force at ``now`` (ms), as ``caller`` is shown them.

        ``newest`` is the newest charge of each lineage, where it is known.
        """
        newest = _newest(facts, partition.ref) if newest is None else newest
        rounded = _rounded(facts, partition, now, caller)
        if rounded is not None:
            newest = {holder: charge for holder, charge in newest.items() if caller.sees_charge(charge, facts)}
        last = max(newest.values(), key=lambda charge: charge.index, default=None)
        run = _last_run(facts, partition, last) if last else None
        organisation = facts.organisations.get(caller.organisation)
        own = holder_of(organisation.node) if organisation else ""
        shown = facts if rounded is None else facts_as_shown(facts, (partition,), now, own)
        figures = PartitionFigures.at(shown, partition, now, run)
        return cls(facts, partition, partition_bounds(facts, partition, now), figures, newest, rounded)

    def page(self, page: Page[Account]) -> AccountPage:
        """A page of accounts, with what all of them share."""
        one = self.partition
        return AccountPage.project(
            page,
            bounds=self.bounds,
            budget=Budget.project(one),
            partition=one.ref,
            retired=one.retired,
            state=slice_status(self.figures.facts, one, self.figures.now).status,
        )

    def account(self, account: domain.Account) -> Account:
        """One of them, with what a person wants to know."""
        rule, account = read_rule(self.partition.terms), self._shown(account)
        epsilon = odometer_epsilon if account is self.rounded else account_epsilon
        found = epsilon(self.facts, account)
        figures = self.figures.of(account.holder, self._contract(account.holder))
        return Account(
            binding=figures.binding,
            bound=found.bound,
            closed=figures.closed,
            holder=account.holder,
            name=holder_name(self.facts, account.holder),
            odometer=None if found.epsilon is None else ceil_decimal(found.epsilon, 4),
            organisations=_organisations(self.facts, account.holder),
            pending=AccountLoss.of_loss(account.pending),
            posted=AccountLoss.of_loss(account.posted),
            runs_like_the_last=figures.runs,
            share=figures.share,
            share_of_budget=ceil_decimal(rule.share(account.loss, rule.cap(self.partition.epsilon)), 4),
            under_its_cap=self._status(account),
        )

    def _contract(self, holder: str) -> domain.Contract | None:
        """The newest version of the contract of the newest run that a lineage itself has charged."""
        charge = self.newest.get(holder)
        contract = self.facts.contracts.get(charge.contract) if charge else None
        return self.facts.contracts[self.facts.contract_heads[contract.id]] if contract else None

    def frozen(self, account: domain.Account) -> FrozenAccount | None:
        """One of them, if it is over its cap."""
        status = self._status(self._shown(account))
        if status is None or not status.over:
            return None
        return FrozenAccount.project(status, organisations=_organisations(self.facts, account.holder))

    def _shown(self, account: domain.Account) -> domain.Account:
        """Everyone's as the caller is shown it; every other one as it is."""
        return self.rounded if self.rounded is not None and account.holder == GLOBAL else account

    def _status(self, account: domain.Account) -> AccountStatus | None:
        return account_status(self.facts, account, self.bounds) if self.bounds else None


def _rounded(
    facts: Snapshot | PastSnapshot, partition: domain.Partition, now: int, caller: Caller
) -> domain.Account | None:
    """The global account as a caller sees it who does not watch the partition; None where it is shown exactly."""
    if caller.watches(partition) or not is_rounded(facts, partition, now):
        return None
    organisation = facts.organisations.get(caller.organisation)
    return rounded_account(facts, partition, holder_of(organisation.node) if organisation else "")


def everyones_epsilon(
    facts: Snapshot | PastSnapshot, partition: domain.Partition, now: int, caller: Caller
) -> tuple[Loss, AccountEpsilon] | None:
    """What all runs of a partition have used, as the caller is shown it, and its ε; None before the first charge."""
    exact = facts.accounts.get((partition.ref, GLOBAL))
    if exact is None:
        return None
    rounded = _rounded(facts, partition, now, caller)
    if rounded is None:
        return exact.loss, account_epsilon(facts, exact)
    return rounded.loss, odometer_epsilon(facts, rounded)


def _last_run(facts: Snapshot | PastSnapshot, partition: domain.Partition, charge: charge_record.Charge) -> LastRun:
    body = charged_body(facts, charge)
    price = loss_of(charge.price_of(partition.ref), charge.steps)
    return LastRun(price, body.plan, body.unit_records_max)


def _newest(facts: Snapshot | PastSnapshot, ref: str) -> dict[str, charge_record.Charge]:
    """By lineage that knows something of the partition its newest charge to it, among its newest ones."""
    holders = (holder for (_, holder), _ in fetch_from(facts.accounts, partition=ref)(None, _LINEAGES_MAX))
    authors = {holder: int(holder.partition(":")[2]) for holder in holders if holder != GLOBAL}
    found = (
        (holder, next((charge for charge in facts.latest(at, _RUNS_MAX) if ref in charge.partitions), None))
        for holder, at in authors.items()
    )
    return {holder: charge for holder, charge in found if charge}


def last_charge(facts: Snapshot | PastSnapshot, ref: str, caller: Caller, *, all_: bool) -> charge_record.Charge | None:
    """The newest charge to a partition; ``all_``: of every charge, else of those that the caller may see."""
    found = (charge for charge in _newest(facts, ref).values() if all_ or caller.sees_charge(charge, facts))
    return max(found, key=lambda charge: charge.index, default=None)


def _organisations(facts: Facts, holder: str) -> tuple[str, ...]:
    node = None if holder == GLOBAL else facts.nodes.get(int(holder.partition(":")[2]))
    return () if node is None else tuple(sorted(node.members))


_LEAST_MAX: Final = 32
"""Shares that the refusal of a charge with ranges shows."""


def remaining(facts: Snapshot, body: MakeCharge, caller: Caller) -> tuple[RemainingShare, ...]:
    """For a rejected charge: the share left of what binds the global account and that of the caller's lineage.

    Of a lineage that is the least over its cap, its quota, everyone's budget, its coalitions and its contract's runs.
    Nothing is left of what takes no more charges. Of ranges, the least shares alone.
    """
    organisation = facts.organisations.get(caller.organisation)
    own = holder_of(organisation.node) if organisation else ""
    holders = [GLOBAL, *([own] if organisation else [])]
    try:
        refs = partitions_within(facts, body.partitions, body.ranges)
    except Rejected:
        return ()
    visible = [one for ref in refs if (one := facts.partitions.get(ref)) and caller.sees_partition(one, facts)]
    shown = facts_as_shown(
        facts, [partition for partition in visible if not caller.watches(partition)], facts.time, own
    )
    if body.ranges:
        shown.fetch_accounts(refs, holders)
    contract = facts.contracts.get(body.contract)
    shares: list[tuple[Fraction, RemainingShare]] = []
    for partition, binds in zip(visible, bindings(facts, visible, facts.time), strict=True):
        figures = PartitionFigures(shown, partition, facts.time, binds, None)
        for holder in holders:
            found = figures.of(holder, None if holder == GLOBAL else contract)
            used = found.share.share
            left = Fraction(0) if found.closed or used is None else max(1 - used, Fraction(0))
            floor = Fraction(int(left * _SHARE_UNIT), _SHARE_UNIT)
            shares.append((floor, RemainingShare(holder=holder, partition=partition.ref, share=format_number(floor))))
    least = sorted(shares, key=lambda pair: pair[0])[:_LEAST_MAX] if body.ranges else shares
    return tuple(used for _, used in least)
