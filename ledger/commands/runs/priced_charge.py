"""A priced charge: what a run costs on every account that it touches, before any of them is checked for room."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from ledger.accounts.account_loss import counted_loss
from ledger.accounts.account_sums import Prices
from ledger.accounts.headroom import GroupLimit, Room
from ledger.accounts.limits import coalition_caps, limits_on
from ledger.accounts.partition_groups import Group, group_by_caps, group_by_terms, group_runs, require_same_unit
from ledger.accounts.pricing import Bound, ComputedPrices, for_first_run
from ledger.accounts.run_epsilon import RunEpsilon
from ledger.commands.context import Context
from ledger.commands.runs.charge_entry import MakeCharge
from ledger.domain.decision import Rejected
from ledger.domain.facts import GLOBAL, Facts, Organisation, Partition, holder_of
from ledger.domain.gate import Caps, Verdict
from ledger.domain.organisation_graph import knows
from ledger.domain.outcomes import Code
from ledger.domain.partition_ranges import partitions_within, runs_of_places
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, loss_of
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number

DEADLINE_MS_MAX: Final = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class PricedCharge:
    """A charge on every account that it touches, before any of them is checked for room.

    Attributes:
        partitions: with the rules that they have once it is admitted.
        groups: its partitions, grouped by equal terms and caps; without ranges each is a group.
        prices: of each group, under the name of its first partition.
        limits: of each group.
        epsilon: the ε of the run: one for each partition, or for ranges one for all partitions of the same terms.
        verdict: the gate's, and until when it holds for charges with the same terms.
    """

    body: MakeCharge
    author: Organisation
    partitions: tuple[Partition, ...]
    groups: tuple[Group, ...]
    caps: tuple[tuple[str, Caps], ...]
    prices: Prices
    limits: list[GroupLimit]
    epsilon: tuple[RunEpsilon, ...]
    verdict: Verdict

    def rooms(self, facts: Facts) -> Iterator[Room]:
        """Every account before and after."""
        prices = dict(self.prices)
        for limit in self.limits:
            yield from limit.rooms(facts, prices[limit.limit.partition], self.body.plan.steps)

    def full(self, facts: Facts) -> list[GroupLimit]:
        """The accounts that have no room, as limits on these alone."""
        if self.body.ranges:
            holders = {limit.limit.holder for limit in self.limits}
            facts.fetch_accounts([partition.ref for partition in self.partitions], sorted(holders))
        prices, steps = dict(self.prices), self.body.plan.steps
        full = ((limit, limit.full(facts, prices[limit.limit.partition], steps)) for limit in self.limits)
        return [replace(limit, partitions=tuple(refs)) for limit, refs in full if refs]

    def derived(self) -> c.Object:
        """What its entry records beside the request and the alerts."""
        return {
            "author": self.author.node,
            **({"groups": group_runs(self.partitions, self.groups)} if self.body.ranges else {}),
            "limits": [limit.limit.to_json() for limit in self.limits],
            "plan": self.body.plan.digest,
            "prices": {ref: [segment.to_json() for segment in segments] for ref, segments in self.prices},
            **({"refund": self.refund} if self.refund else {}),
        }

    def answered(self) -> c.Object:
        """What its answer adds to the entry: the ε of the run."""
        return {"run_epsilon": [epsilon.to_json() for epsilon in self.epsilon]}

    def chooses_rule(self, facts: Facts) -> bool:
        """Whether it is the first charge of a partition, and chooses its rule."""
        return any(facts.partitions[partition.ref].terms != partition.terms for partition in self.partitions)

    @property
    def refund(self) -> str:
        """What its policies state about leased steps that are not taken; empty for a run without step leases."""
        return self.verdict.refund if self.body.step_leases else ""

    def alerts(self, facts: Facts, numbers: ComputedPrices) -> list[c.Json]:
        """Each share that the used part of an account is below before the charge, and at or above afterwards.

        The global account is compared with the partition's own budget, capped or only watched; then the lineage's.
        """
        alerts: list[c.Json] = []
        if not any(caps.alerts for _, caps in self.caps):
            return alerts
        crossed: dict[tuple[str, Fraction], list[str]] = {}
        for group, (_, segments) in zip(self.groups, self.prices, strict=True):
            for holder, share, ref in self._crossed_shares(
                facts, numbers, group, loss_of(segments, self.body.plan.steps)
            ):
                crossed.setdefault((holder, share), []).append(ref)
                alerts.append({"holder": holder, "partition": ref, "share": format_number(share)})
        return self._alerts_in_ranges(crossed) if self.body.ranges else alerts

    def _crossed_shares(
        self, facts: Facts, numbers: ComputedPrices, group: Group, run: Loss
    ) -> Iterator[tuple[str, Fraction, str]]:
        caps, first = dict(self.caps), group[0]
        watched = [partition.ref for partition in group if caps[partition.ref].alerts]
        if not watched:
            return
        rule = read_rule(first.terms)
        for holder, epsilon in ((GLOBAL, first.epsilon), (holder_of(self.author.node), caps[first.ref].lineage)):
            cap = numbers.watched(Bound(first, holder, epsilon))
            # Many partitions usually have equal accounts: each distinct one is computed once.
            crossed: dict[tuple[Loss, tuple[Fraction, ...]], list[Fraction]] = {}
            for ref in watched:
                account, shares = facts.accounts.get((ref, holder)), caps[ref].alerts
                before = counted_loss(facts, account) if account else Loss.zero(len(rule.coordinates))
                passed = crossed.get((before, shares))
                if passed is None:
                    low, high = rule.share(before, cap), rule.share(before + run, cap)
                    passed = crossed[before, shares] = [share for share in shares if low < share <= high]
                yield from ((holder, share, ref) for share in passed)

    def _alerts_in_ranges(self, crossed: dict[tuple[str, Fraction], list[str]]) -> list[c.Json]:
        """Alerts of a charge that names ranges: each share once for each holder, with the places of partitions."""
        places = {partition.ref: place for place, partition in enumerate(self.partitions)}
        alerts: list[c.Json] = []
        for (holder, share), refs in crossed.items():
            at = sorted(places[ref] for ref in refs)
            alerts.append(
                {
                    "holder": holder,
                    "partition": self.partitions[at[0]].ref,
                    "places": [[*run] for run in runs_of_places(at)],
                    "share": format_number(share),
                }
            )
        return alerts


def price(context: Context[MakeCharge]) -> PricedCharge:
    """Make every decision on a charge except whether its accounts have room. Raises: Malformed, Rejected."""
    body, numbers, author = context.body, context.prices, context.require_role()
    context.contract(body.contract)
    partitions = charged_partitions(context)
    context.require_new_clean_room(body.clean_room, "run")
    context.organisations(body.recipients if isinstance(body.recipients, tuple) else (), "recipients")
    _check_base(context, author.node)
    if not context.now < body.deadline <= context.now + DEADLINE_MS_MAX:
        rule = "must lie after now and within thirty days of it"
        raise Rejected(Code.MALFORMED, f"body.deadline: {rule}", "body.deadline")
    by_terms = group_by_terms(partitions) if body.ranges else [(partition,) for partition in partitions]
    priced = [(group, numbers.price(group[0], body)) for group in by_terms]
    price_of = {member.ref: segments for group, segments in priced for member in group}
    reports = [numbers.report(group[0], body) for group in by_terms]
    epsilon_of = {
        member.ref: report.epsilon for group, report in zip(by_terms, reports, strict=True) for member in group
    }
    verdict = context.require_permit(epsilon=tuple((member.ref, epsilon_of[member.ref]) for member in partitions))
    partitions = tuple(for_first_run(member, price_of[member.ref], body.plan.steps) for member in partitions)
    groups: tuple[Group, ...] = tuple((member,) for member in partitions)
    if body.ranges:
        groups = group_by_caps(partitions, dict(verdict.caps), coalition_caps(context.facts, author))
    members = {group[0].ref: tuple(member.ref for member in group) for group in groups}
    limits = limits_on(context.facts, tuple(group[0] for group in groups), verdict, author, numbers, members)
    return PricedCharge(
        body,
        author,
        partitions,
        groups,
        verdict.caps,
        tuple((ref, price_of[ref]) for ref in members),
        [GroupLimit(limit, members[limit.partition]) for limit in limits],
        tuple(RunEpsilon.of_report(report, group[0]) for group, report in zip(by_terms, reports, strict=True)),
        verdict,
    )


def charged_partitions(context: Context[MakeCharge]) -> tuple[Partition, ...]:
    """The partitions that a charge lists, and those of its ranges. Raises: Rejected."""
    body = context.body
    listed = tuple(context.partition(ref, f"partitions[{place}]") for place, ref in enumerate(body.partitions))
    if not body.ranges:
        return listed
    refs = partitions_within(context.facts, body.partitions, body.ranges)
    partitions = tuple(context.facts.partitions[ref] for ref in refs)
    require_same_unit(partitions)
    return partitions


def _check_base(context: Context[MakeCharge], author: int) -> None:
    """Check that the author knows every model that the run starts from. Raises: Rejected."""
    for place, name in enumerate(context.body.base):
        field = f"base[{place}]"
        charge = context.charge(name, field)
        if not knows(context.facts.nodes, author, charge.author, charge.index):
            detail = f"this lineage does not know charge {name}: enter the transfer of its model first"
            raise Rejected(Code.CONFLICT, detail, f"body.{field}")
