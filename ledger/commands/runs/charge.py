"""A charge: one run's loss laid on all its partitions or on none, pending until it is settled.

Every account it touches is checked by its partition's rule; one that has no room refuses the whole, and the refusal
names every such account and how much would fit.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, NamedTuple

from ledger.accounts.account_sums import Prices
from ledger.accounts.headroom import Limit, Room
from ledger.accounts.limits import limits_on, no_room
from ledger.accounts.pricing import Bound, ComputedPrices
from ledger.commands.command_kind import CommandKind
from ledger.commands.context import Context
from ledger.commands.kept_verdicts import KeptVerdicts
from ledger.commands.runs.charge_entry import MakeCharge, Reserved, effect
from ledger.commands.runs.charge_reader import read_request
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import GLOBAL, Facts, Organisation, Partition, holder_of
from ledger.domain.gate import Caps, Verdict
from ledger.domain.organisation_graph import knows
from ledger.domain.outcomes import Code
from ledger.domain.roles import TDC
from ledger.filters import read_rule
from ledger.wire import canonical_json as c
from ledger.wire.exact_numbers import format_number

DEADLINE_MS_MAX: Final = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class PricedCharge:
    """A charge on every account that it touches, before any of them is checked for room.

    Attributes:
        verdict: the gate's, and until when it holds for charges alike.
    """

    body: MakeCharge
    author: Organisation
    partitions: tuple[Partition, ...]
    caps: tuple[tuple[str, Caps], ...]
    prices: Prices
    limits: list[Limit]
    verdict: Verdict

    def rooms(self, facts: Facts) -> list[Room]:
        """Every account before and after."""
        by_partition = dict(self.prices)
        return [Room.of(facts, limit, by_partition[limit.partition], self.body.plan.steps) for limit in self.limits]

    def derived(self) -> c.Object:
        """What its entry records of it; but for the alerts."""
        return {
            "author": self.author.node,
            "limits": [limit.to_json() for limit in self.limits],
            "plan": self.body.plan.digest,
            "prices": {ref: [one.to_json() for one in segments] for ref, segments in self.prices},
            **({"refund": self.refund} if self.refund else {}),
        }

    @property
    def refund(self) -> str:
        """What its policies state about leased steps that are not taken; empty of a run that leases none."""
        return self.verdict.refund if self.body.step_leases else ""

    def alerts(self, facts: Facts, numbers: ComputedPrices) -> list[c.Json]:
        """Each share that the used part of an account is below before the charge, and at or above afterwards.

        The global account is compared with the partition's own budget, capped or only watched; then the lineage's.
        """
        found: list[c.Json] = []
        caps, prices = dict(self.caps), dict(self.prices)
        for partition in (one for one in self.partitions if caps[one.ref].alerts):
            named, rule = caps[partition.ref], read_rule(partition.terms)
            for holder, epsilon in ((GLOBAL, partition.epsilon), (holder_of(self.author.node), named.lineage)):
                limit = Limit(partition.ref, holder, numbers.watched(Bound(partition, holder, epsilon)))
                room = Room.of(facts, limit, prices[partition.ref], self.body.plan.steps)
                low, high = rule.share(room.before, limit.cap), rule.share(room.after, limit.cap)
                passed = [share for share in named.alerts if low < share <= high]
                found += [{"holder": holder, "partition": partition.ref, "share": format_number(one)} for one in passed]
        return found


def decide(context: Context[MakeCharge]) -> Decision:
    """Reserve a whole run's loss on every account it touches, or refuse it with every reason."""
    if context.kept is None:
        return _admit(context, price(context))
    alike = _alike(context)
    found: _Kept | None = context.kept.get(alike)
    body = context.body
    own = OwnTerms(body.contract, body.deadline, body.clean_room.signing.thumbprint)
    if found is not None and still_holds(context.facts, found[0].verdict, own, context.now):
        priced, derived, spelled = found
        if _has_room(context.facts, context.kept, found):
            decided = _admitted(context, priced, derived, spelled)
            if context.kept.is_sampled():
                _compare(context, decided)
            return decided
    context.kept.forget_room()
    priced = price(context)
    decided = _admit(context, priced)
    if priced.verdict.until is not None and not context.body.base:
        derived = priced.derived()
        context.kept.keep(alike, (priced, derived, _spelled(derived)))
    return decided


_Kept = tuple[PricedCharge, c.Object, bytes]
"""What is kept of charges alike: one of them, what its entry records of it, and that in canonical bytes."""


def _has_room(facts: Facts, kept: KeptVerdicts[_Kept], found: _Kept) -> bool:
    """Whether every account has room for one more charge alike: known from the one before it, or looked up."""
    if kept.takes_room(found):
        return True
    rooms = found[0].rooms(facts)
    if not all(room.enough for room in rooms):
        return False
    kept.note_room(found, lambda: min((room.runs for room in rooms), default=0))
    return True


def _admit(context: Context[MakeCharge], priced: PricedCharge) -> Decision:
    """Admit what was priced, or refuse it for lack of room."""
    own = holder_of(priced.author.node)
    # Every account says yes, or nothing is charged: the refusal names all that have no room.
    if full := [room.check(context.facts.accounts, own) for room in priced.rooms(context.facts) if not room.enough]:
        raise no_room(full)
    return _admitted(context, priced, priced.derived())


def _admitted(context: Context[MakeCharge], priced: PricedCharge, derived: c.Object, spelled: bytes = b"") -> Decision:
    if alerts := priced.alerts(context.facts, context.prices):
        return Decision(Code.PENDING, derived={**derived, "alerts": alerts})
    return Decision(Code.PENDING, derived=derived, spelled=spelled)


def _spelled(derived: c.Object) -> bytes:
    """The canonical bytes of a pending charge's entry without its request."""
    return c.dump({**derived, "outcome": Code.PENDING.word})


def _alike(context: Context[MakeCharge]) -> Hashable:
    """All of a charge that its price and verdict rest on."""
    body, command = context.body, context.command
    return (
        command.actor,
        command.key_id,
        body.contract,
        body.partitions,
        # Equal bytes are hashed faster than equal plans.
        c.spelled(command.body["plan"]),
        body.recipients,
        body.base,
        body.pipeline,
        body.unit_records_max,
        body.step_leases,
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
    partitions = tuple(context.partition(ref, f"partitions[{place}]") for place, ref in enumerate(body.partitions))
    context.require_new_clean_room(body.clean_room, "run")
    context.organisations(body.recipients if isinstance(body.recipients, tuple) else (), "recipients")
    _check_base(context, author.node)
    if not context.now < body.deadline <= context.now + DEADLINE_MS_MAX:
        rule = "must lie after now and within thirty days of it"
        raise Rejected(Code.MALFORMED, f"body.deadline: {rule}", "body.deadline")
    prices = tuple((one.ref, numbers.price(one, body)) for one in partitions)
    epsilon = tuple((one.ref, numbers.epsilon(one, body)) for one in partitions)
    verdict = context.require_permit(epsilon=epsilon)
    limits = limits_on(context.facts, partitions, verdict, author, numbers)
    return PricedCharge(body, author, partitions, verdict.caps, prices, limits, verdict)


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
