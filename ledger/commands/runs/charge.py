"""A charge: one run's loss laid on all its partitions or on none, pending until it is settled.

Every account it touches is asked by its partition's rule; one that has no room refuses the whole, and the refusal
names every such account and how much would fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Final, NamedTuple

from ledger.accounts.account_sums import AccountSums, Prices, touched
from ledger.accounts.alerts import crossed
from ledger.accounts.headroom import Limit, Room
from ledger.accounts.limits import limits_on, no_room
from ledger.accounts.pricing import PriceSource
from ledger.commands.command_kind import TDC, CommandKind, Recorded
from ledger.commands.context import Context
from ledger.commands.registration.partition import UnitRecords
from ledger.crypto.public_keys import CleanRoomKeys
from ledger.domain.decision import Decision, Rejected
from ledger.domain.facts import Charge, Facts, Organisation, Partition, SigningKey, State, holder_of
from ledger.domain.gate import Caps
from ledger.domain.lineage_graph import knows
from ledger.domain.outcomes import ChargeState, Code
from ledger.mechanisms.loss import parse_segments
from ledger.mechanisms.plan import RunPlan
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, Name, Ref, Sha256, Time, distinct
from ledger.wire.records import Record

DEADLINE_MS_MAX: Final = 30 * 86_400_000
RUNS_MAX: Final = 16
"""Recipients that a charge names, and runs that it starts from."""


class MakeCharge(Record, frozen=True):
    """One run's loss laid on all its partitions or on none, for one clean room known by its two keys.

    Attributes:
        recipients: to whom the model will be handed over, fixed before anything runs.
        base: the charges of the models that the run starts from.
        pipeline: the digest of what the clean room is to run, where it is said; its attestation must say the same.
        unit_records_max: how many records one privacy unit has at most in what is trained on, after joins, where more
            than in the partition.
    """

    contract: Sha256
    partitions: Annotated[tuple[Ref, ...], distinct(16)]
    plan: RunPlan
    clean_room: CleanRoomKeys
    deadline: Time
    recipients: Annotated[tuple[Did, ...], distinct(RUNS_MAX)] = ()
    base: Annotated[tuple[Name, ...], distinct(RUNS_MAX)] = ()
    pipeline: Sha256 | None = None
    unit_records_max: UnitRecords | None = None


@dataclass(frozen=True, slots=True)
class PricedCharge:
    """A charge on every account that it touches, before any of them is asked for room."""

    body: MakeCharge
    author: Organisation
    partitions: tuple[Partition, ...]
    caps: tuple[tuple[str, Caps], ...]
    prices: Prices
    limits: list[Limit]

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
        }

    def alerts(self, facts: Facts, numbers: PriceSource) -> list[c.Json]:
        """What it crosses."""
        steps, author = self.body.plan.steps, self.author.node
        return crossed(facts, self.partitions, dict(self.caps), dict(self.prices), steps, author, numbers)


def decide(context: Context[MakeCharge]) -> Decision:
    """Reserve a whole run's loss on every account it touches, or refuse it with every reason."""
    facts = context.facts
    priced = price(context, context.prices)
    own = holder_of(priced.author.node)
    # Every account says yes, or nothing is charged: the refusal names all that have no room.
    if full := [room.check(own) for room in priced.rooms(facts) if not room.enough]:
        raise no_room(full)
    alerts = priced.alerts(facts, context.prices)
    return Decision(Code.PENDING, derived={**priced.derived(), **({"alerts": alerts} if alerts else {})})


def price(context: Context[MakeCharge], numbers: PriceSource) -> PricedCharge:
    """Everything that is decided of a charge but whether there is room. Raises: Malformed, Rejected."""
    body, author = context.body, context.require_role()
    context.contract(body.contract)
    partitions = tuple(context.partition(ref, f"partitions[{place}]") for place, ref in enumerate(body.partitions))
    context.require_new_clean_room(body.clean_room, "run")
    context.organisations(body.recipients, "recipients")
    _check_base(context, author.node)
    if not context.now < body.deadline <= context.now + DEADLINE_MS_MAX:
        rule = "must lie after now and within thirty days of it"
        raise Rejected(Code.MALFORMED, f"body.deadline: {rule}", "body.deadline")
    prices = tuple((one.ref, numbers.price(one, body)) for one in partitions)
    epsilon = tuple((one.ref, numbers.epsilon(one, body)) for one in partitions)
    verdict = context.require_permit(epsilon=epsilon)
    limits = limits_on(context.facts, partitions, verdict, author, numbers)
    return PricedCharge(body, author, partitions, verdict.caps, prices, limits)


def _check_base(context: Context[MakeCharge], author: int) -> None:
    """What a run starts from is known to its author. Raises: Rejected."""
    for place, name in enumerate(context.body.base):
        field = f"base[{place}]"
        found = context.charge(name, field)
        if not knows(context.facts.nodes, author, found.author, found.index):
            detail = f"this lineage does not know charge {name}: enter the transfer of its model first"
            raise Rejected(Code.CONFLICT, detail, f"body.{field}")


class Charged(NamedTuple):
    """What a charge's entry says. ``prices``: each partition with its price as recorded, in canonical bytes."""

    id: str
    contract: str
    actor: str
    author: int
    partitions: tuple[str, ...]
    plan: str
    steps: int
    key_id: str
    signing: str
    sealing: str
    deadline: int
    prices: tuple[tuple[str, bytes], ...]
    recipients: tuple[str, ...]
    base: tuple[str, ...]
    pipeline: str | None

    def apply(self, state: State, index: int, sums: AccountSums) -> None:
        """Add the charge, the key of its clean room and a run of its contract; its loss is pending."""
        priced = _prices(self.prices)
        state.charges[self.id] = Charge(
            id=self.id,
            contract=self.contract,
            actor=self.actor,
            author=self.author,
            partitions=self.partitions,
            plan=self.plan,
            steps=self.steps,
            steps_posted=None,
            state=ChargeState.PENDING,
            key_id=self.key_id,
            sealing=self.sealing,
            key_release=None,
            deadline=self.deadline,
            prices=priced,
            recipients=self.recipients,
            base=self.base,
            index=index,
            pipeline=self.pipeline,
        )
        state.keys[self.key_id] = SigningKey(self.key_id, self.actor, self.signing, self.id, index)
        state.contracts[self.contract] = state.contracts[self.contract].counting(1)
        for places, segments in touched(state, self.author, index, priced):
            sums.add(places, segments, self.steps, 0, 1)


@lru_cache(maxsize=4_096)
def _prices(recorded: tuple[tuple[str, bytes], ...]) -> Prices:
    return tuple((ref, parse_segments(spelled)) for ref, spelled in recorded)


def effect(entry: Recorded[MakeCharge]) -> Charged:
    """What a charge changes."""
    body = entry.body
    derived: Any = entry.derived
    prices = tuple((ref, c.spelled(derived["prices"][ref])) for ref in body.partitions)
    return charged(entry.id, entry.actor, derived["author"], body, body.plan, prices)


def charged(  # noqa: PLR0913, PLR0917 - what an entry says, part by part
    name: str, actor: str, author: int, body: MakeCharge, plan: RunPlan, prices: tuple[tuple[str, bytes], ...]
) -> Charged:
    """What applying a charge takes of its entry."""
    signing = body.clean_room.signing
    return Charged(
        id=name,
        contract=body.contract,
        actor=actor,
        author=author,
        partitions=body.partitions,
        plan=plan.digest,
        steps=plan.steps,
        key_id=signing.thumbprint,
        signing=signing.x,
        sealing=body.clean_room.sealing.x,
        deadline=body.deadline,
        prices=prices,
        recipients=body.recipients,
        base=body.base,
        pipeline=body.pipeline,
    )


CHARGE: Final = CommandKind("charge", MakeCharge, decide, (TDC,), "/v1/charges", effect=effect)
