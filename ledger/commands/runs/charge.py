"""A charge: one run's loss laid on all its partitions or on none, pending until it is settled.

Every account it touches is checked by its partition's rule; one that has no room refuses the whole, and the refusal
names every such account and how much would fit.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, NamedTuple

from ledger.accounts.account_loss import counted_loss
from ledger.accounts.account_sums import Prices
from ledger.accounts.headroom import GroupLimit, Room
from ledger.accounts.limits import limits_on, no_room
from ledger.accounts.partition_groups import Group, group_by_caps, group_by_terms, group_runs, require_same_unit
from ledger.accounts.pricing import Bound, ComputedPrices
from ledger.accounts.run_epsilon import RunEpsilon
from ledger.commands.command_kind import CommandKind
from ledger.commands.context import Context
from ledger.commands.kept_verdicts import KeptVerdicts
from ledger.commands.runs.charge_entry import MakeCharge, Reserved, effect, shared_terms
from ledger.commands.runs.charge_reader import read_request
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import GLOBAL, Facts, Organisation, Partition, holder_of
from ledger.domain.gate import Caps, Check, Verdict
from ledger.domain.organisation_graph import knows
from ledger.domain.outcomes import Code
from ledger.domain.partition_ranges import in_words, partitions_within, runs_of_places
from ledger.domain.roles import TDC
from ledger.filters import read_rule
from ledger.mechanisms.loss import Loss, loss_of
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number

DEADLINE_MS_MAX: Final = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class PricedCharge:
    """A charge on every account that it touches, before any of them is checked for room.

    Attributes:
        groups: its partitions, those alike together; without ranges each is alone.
        prices: of each group, under the name of its first partition.
        limits: of each group.
        epsilon: what the run reveals: of each partition, of ranges one for all of the same terms.
        verdict: the gate's, and until when it holds for charges alike.
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
            facts.fetch_accounts([one.ref for one in self.partitions], sorted(holders))
        prices, steps = dict(self.prices), self.body.plan.steps
        found = ((limit, limit.full(facts, prices[limit.limit.partition], steps)) for limit in self.limits)
        return [replace(limit, partitions=tuple(refs)) for limit, refs in found if refs]

    def derived(self) -> c.Object:
        """What its entry records of it; but for the alerts."""
        return {
            "author": self.author.node,
            **({"groups": group_runs(self.partitions, self.groups)} if self.body.ranges else {}),
            "limits": [one.limit.to_json() for one in self.limits],
            "plan": self.body.plan.digest,
            "prices": {ref: [one.to_json() for one in segments] for ref, segments in self.prices},
            **({"refund": self.refund} if self.refund else {}),
        }

    def answered(self) -> c.Object:
        """What its answer says beside its entry: the ε of the run."""
        return {"run_epsilon": [one.to_json() for one in self.epsilon]}

    @property
    def refund(self) -> str:
        """What its policies state about leased steps that are not taken; empty of a run that leases none."""
        return self.verdict.refund if self.body.step_leases else ""

    def alerts(self, facts: Facts, numbers: ComputedPrices) -> list[c.Json]:
        """Each share that the used part of an account is below before the charge, and at or above afterwards.

        The global account is compared with the partition's own budget, capped or only watched; then the lineage's.
        """
        found: list[c.Json] = []
        many: dict[tuple[str, Fraction], list[str]] = {}
        for group, (_, segments) in zip(self.groups, self.prices, strict=True):
            for holder, share, ref in self._crossed(facts, numbers, group, loss_of(segments, self.body.plan.steps)):
                many.setdefault((holder, share), []).append(ref)
                found.append({"holder": holder, "partition": ref, "share": format_number(share)})
        return self._in_ranges(many) if self.body.ranges else found

    def _crossed(
        self, facts: Facts, numbers: ComputedPrices, group: Group, run: Loss
    ) -> Iterator[tuple[str, Fraction, str]]:
        caps, first = dict(self.caps), group[0]
        watched = [one.ref for one in group if caps[one.ref].alerts]
        if not watched:
            return
        rule = read_rule(first.terms)
        for holder, epsilon in ((GLOBAL, first.epsilon), (holder_of(self.author.node), caps[first.ref].lineage)):
            cap = numbers.watched(Bound(first, holder, epsilon))
            # Of many partitions most accounts are equal.
            crossed: dict[tuple[Loss, tuple[Fraction, ...]], list[Fraction]] = {}
            for ref in watched:
                account, shares = facts.accounts.get((ref, holder)), caps[ref].alerts
                before = counted_loss(facts, account) if account else Loss.zero(len(rule.coordinates))
                passed = crossed.get((before, shares))
                if passed is None:
                    low, high = rule.share(before, cap), rule.share(before + run, cap)
                    passed = crossed[before, shares] = [share for share in shares if low < share <= high]
                yield from ((holder, share, ref) for share in passed)

    def _in_ranges(self, many: dict[tuple[str, Fraction], list[str]]) -> list[c.Json]:
        """Alerts of a charge that names ranges: each share once for each holder, with the places of partitions."""
        places = {one.ref: place for place, one in enumerate(self.partitions)}
        found: list[c.Json] = []
        for (holder, share), refs in many.items():
            at = sorted(places[ref] for ref in refs)
            found.append(
                {
                    "holder": holder,
                    "partition": self.partitions[at[0]].ref,
                    "places": [[*run] for run in runs_of_places(at)],
                    "share": format_number(share),
                }
            )
        return found


def decide(context: Context[MakeCharge]) -> Decision:
    """Reserve a whole run's loss on every account it touches, or refuse it with every reason."""
    if context.kept is None:
        return _admit(context, price(context))
    alike = alike_terms(context)
    found: _Kept | None = context.kept.get(alike)
    body = context.body
    own = OwnTerms(body.contract, body.deadline, body.clean_room.signing.thumbprint)
    holds = found is not None and still_holds(context.facts, found[0].verdict, own, context.now)
    if found is not None and holds and _has_room(context.facts, context.kept, found):
        decided = _admitted(context, *found)
        if context.kept.is_sampled():
            _compare(context, decided)
        return decided
    context.kept.forget_room()
    priced = price(context)
    decided = _admit(context, priced)
    if priced.verdict.until is not None and not context.body.base:
        derived = priced.derived()
        context.kept.keep(alike, (priced, derived, priced.answered(), _spelled(derived)))
    return decided


_Kept = tuple[PricedCharge, c.Object, c.Object, bytes]
"""What is kept of charges alike: one of them, what its entry records of it, what its answer says beside that, and what
is recorded in canonical bytes."""


def _has_room(facts: Facts, kept: KeptVerdicts[_Kept], found: _Kept) -> bool:
    """Whether every account has room for one more charge alike: known from the one before it, or looked up."""
    if found[0].body.ranges:
        # To count how many fit would take longer than to look whether one does.
        kept.forget_room()
        return not found[0].full(facts)
    if kept.takes_room(found):
        return True
    rooms = [*found[0].rooms(facts)]
    if not all(room.enough for room in rooms):
        return False
    kept.note_room(found, lambda: min((room.runs for room in rooms), default=0))
    return True


def _admit(context: Context[MakeCharge], priced: PricedCharge) -> Decision:
    """Admit what was priced, or refuse it for lack of room."""
    # Every account says yes, or nothing is charged: the refusal names all that have no room.
    if full := priced.full(context.facts):
        raise no_room([check for limit in full for check in _checks(context.facts, priced, limit)])
    return _admitted(context, priced, priced.derived(), priced.answered())


def _checks(facts: Facts, priced: PricedCharge, full: GroupLimit) -> list[Check]:
    """What a refusal says of accounts without room: of each, or of a charge that names ranges, of all of one holder."""
    own, segments = holder_of(priced.author.node), dict(priced.prices)
    price = segments[next(group[0].ref for group in priced.groups if full.partitions[0] in {one.ref for one in group})]
    rooms = [*full.rooms(facts, price, priced.body.plan.steps)]
    if not priced.body.ranges:
        return [room.check(facts.accounts, own) for room in rooms]
    every = [one.ref for one in priced.partitions]
    fullest = max(rooms, key=lambda room: room.used).check(facts.accounts, own)
    text = f"no room on {len(rooms)} of {len(every)} partitions: {in_words(every, full.partitions)}; {fullest.text}"
    return [Check(fullest.code, passed=False, text=text, source=fullest.source)]


def _admitted(
    context: Context[MakeCharge], priced: PricedCharge, derived: c.Object, answered: c.Object, spelled: bytes = b""
) -> Decision:
    if alerts := priced.alerts(context.facts, context.prices):
        return Decision(Code.PENDING, derived={**derived, "alerts": alerts}, answered=answered)
    return Decision(Code.PENDING, derived=derived, spelled=spelled, answered=answered)


def _spelled(derived: c.Object) -> bytes:
    """The canonical bytes of a pending charge's entry without its request."""
    return c.dump({**derived, "outcome": Code.PENDING.word})


def alike_terms(context: Context[MakeCharge]) -> Hashable:
    """All of a charge that its price and verdict rest on."""
    command = context.command
    return (
        command.actor,
        command.key_id,
        # Equal bytes are hashed faster than equal plans.
        c.spelled(command.body["plan"]),
        shared_terms(context.body),
    )


class OwnTerms(NamedTuple):
    """What of a charge is compared with the time and the state, though a verdict on one alike is kept."""

    contract: str
    deadline: int
    key_id: str


def still_holds(facts: Facts, verdict: Verdict, own: OwnTerms, now: int) -> bool:
    """Whether a verdict on a charge alike permits this one now (ms), but for the room in its accounts."""
    return (
        verdict.until is not None
        and now < verdict.until
        and now < own.deadline <= now + DEADLINE_MS_MAX
        and (verdict.runs_max is None or facts.contracts[own.contract].runs < verdict.runs_max)
        and own.key_id not in facts.keys
    )


def _compare(context: Context[MakeCharge], decided: Decision) -> None:
    """Raises: AssertionError, if a charge gets another decision in full."""
    try:
        full = _admit(context, price(context))
    except Rejected as refusal:
        full = refusal.decided
    kept = f"charge {context.command.id} was admitted by a kept verdict"
    assert full == decided, f"{kept}, and would not be in full"
    assert not decided.spelled or decided.spelled == _spelled(full.derived), f"{kept}, and would be written otherwise"


def price(context: Context[MakeCharge]) -> PricedCharge:
    """Everything that is decided of a charge but whether there is room. Raises: Malformed, Rejected."""
    body, numbers, author = context.body, context.prices, context.require_role()
    context.contract(body.contract)
    partitions = charged_partitions(context)
    context.require_new_clean_room(body.clean_room, "run")
    context.organisations(body.recipients if isinstance(body.recipients, tuple) else (), "recipients")
    _check_base(context, author.node)
    if not context.now < body.deadline <= context.now + DEADLINE_MS_MAX:
        rule = "must lie after now and within thirty days of it"
        raise Rejected(Code.MALFORMED, f"body.deadline: {rule}", "body.deadline")
    alike = group_by_terms(partitions) if body.ranges else [(one,) for one in partitions]
    price_of = {one.ref: found for group in alike for found in (numbers.price(group[0], body),) for one in group}
    reports = [numbers.report(group[0], body) for group in alike]
    epsilon_of = {one.ref: report.epsilon for group, report in zip(alike, reports, strict=True) for one in group}
    verdict = context.require_permit(epsilon=tuple((one.ref, epsilon_of[one.ref]) for one in partitions))
    groups = group_by_caps(partitions, dict(verdict.caps)) if body.ranges else tuple((one,) for one in partitions)
    members = {group[0].ref: tuple(one.ref for one in group) for group in groups}
    limits = limits_on(context.facts, tuple(group[0] for group in groups), verdict, author, numbers)
    return PricedCharge(
        body,
        author,
        partitions,
        groups,
        verdict.caps,
        tuple((ref, price_of[ref]) for ref in members),
        [GroupLimit(one, members[one.partition]) for one in limits],
        tuple(RunEpsilon.of_report(report, group[0]) for group, report in zip(alike, reports, strict=True)),
        verdict,
    )


def charged_partitions(context: Context[MakeCharge]) -> tuple[Partition, ...]:
    """The partitions that a charge lists, and those of its ranges. Raises: Rejected."""
    body = context.body
    listed = tuple(context.partition(ref, f"partitions[{place}]") for place, ref in enumerate(body.partitions))
    if not body.ranges:
        return listed
    found = tuple(
        context.facts.partitions[ref] for ref in partitions_within(context.facts, body.partitions, body.ranges)
    )
    require_same_unit(found)
    return found


def _check_base(context: Context[MakeCharge], author: int) -> None:
    """What a run starts from is known to its author. Raises: Rejected."""
    for place, name in enumerate(context.body.base):
        field = f"base[{place}]"
        found = context.charge(name, field)
        if not knows(context.facts.nodes, author, found.author, found.index):
            detail = f"this lineage does not know charge {name}: enter the transfer of its model first"
            raise Rejected(Code.CONFLICT, detail, f"body.{field}")


CHARGE: Final = CommandKind(
    "charge", MakeCharge, decide, (TDC,), "/v1/charges", effect=effect, recorded=Reserved, read_bytes=read_request
)
