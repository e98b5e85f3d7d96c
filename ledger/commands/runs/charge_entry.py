"""The entry of a charge and its effect: the charge, its clean room's key and its accounts."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Struct

from ledger.accounts.account_sums import AccountSums, Prices, touched
from ledger.accounts.partition_groups import group_by_terms
from ledger.accounts.pricing import for_first_run
from ledger.commands.command_fields import Count, Natural, NodeIndex, RecordedHolder
from ledger.commands.command_kind import Recorded
from ledger.commands.registration.partition import UnitRecords
from ledger.crypto.public_keys import CleanRoomKeys
from ledger.domain.charge_record import EVERYONE, Charge, StepLeases, grouped
from ledger.domain.decision import Rejected
from ledger.domain.facts import Facts, Partition, SigningKey
from ledger.domain.gate import Refund
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import ChargeState
from ledger.domain.partition_ranges import PARTITIONS_MAX, PartitionRange, Ranges, partitions_within
from ledger.filters import Cap
from ledger.mechanisms.loss import parse_segments
from ledger.mechanisms.plan_reader import AnyPlan
from ledger.mechanisms.run_plan import RunPlan
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, Name, Ref, Sha256, Time, distinct
from ledger.wire.malformed import Malformed
from ledger.wire.records import Record

RUNS_MAX: Final = 16
"""Recipients that a charge names, and runs that it starts from."""
LISTED_MAX: Final = 16
"""Partitions that a charge lists; it may name more in ranges."""


Recipients = Annotated[tuple[Did, ...], distinct(RUNS_MAX)] | Literal["everyone"]
"""Organisations, or everyone: then the model is to be published whatever the result."""


def named_recipients(recipients: Recipients) -> tuple[str, ...]:
    """The recipients as the charge's state stores them."""
    return (EVERYONE,) if isinstance(recipients, str) else recipients


def require_partitions(listed: tuple[str, ...], ranges: tuple[PartitionRange, ...]) -> None:
    """Check that some partition is named. Raises: Malformed."""
    if not listed and not ranges:
        raise Malformed("partitions", f"must have 1 to {LISTED_MAX} items, or there are ranges")


class MakeCharge(Record, frozen=True):
    """One run's loss laid on all its partitions or on none, for one clean room known by its two keys.

    Attributes:
        recipients: the organisations that will get the model, fixed before anything runs; "everyone" if it is to be
            published.
        base: the charges of the models that the run starts from.
        pipeline: the digest of what the clean room is to run, if stated; its attestation must state the same.
        unit_records_max: how many records one privacy unit has at most in what is trained on, after joins, where more
            than in the partition.
        step_leases: whether the run leases its steps, block by block, before it takes them; then a resumed run takes a
            new generation, and what is posted and released is of the live one.
        ranges: partitions that follow one another, beside those that are listed; at most 1,024 with them. Then none
            needs to be listed.
    """

    contract: Sha256
    partitions: Annotated[tuple[Ref, ...], distinct(LISTED_MAX, 0)]
    plan: AnyPlan
    clean_room: CleanRoomKeys
    deadline: Time
    recipients: Recipients = ()
    base: Annotated[tuple[Name, ...], distinct(RUNS_MAX)] = ()
    pipeline: Sha256 | None = None
    unit_records_max: UnitRecords | None = None
    step_leases: bool | None = None
    ranges: Ranges = ()

    def __post_init__(self) -> None:
        """Check that some partition is named. Raises: Malformed."""
        super().__post_init__()
        require_partitions(self.partitions, self.ranges)


OWN: Final = ("clean_room", "deadline")
"""The fields that differ between equal charges: price and verdict do not depend on them, but the clean room must be new
and the deadline ahead, which each charge is checked for."""
shared_terms: Final[Callable[[MakeCharge], tuple[object, ...]]] = attrgetter(
    *(name for name in MakeCharge.__struct_fields__ if name not in {*OWN, "plan"})
)
"""All other fields of a charge but its plan, which is compared by its bytes: equal charges have them equal."""


Pair = Annotated[tuple[Natural, ...], Meta(min_length=2, max_length=2)]
Groups = Annotated[tuple[Pair, ...], Meta(max_length=PARTITIONS_MAX)]
"""Numbers, each with a count."""


def reported_partitions(facts: Facts, body: MakeCharge) -> list[Partition]:
    """The partitions whose ε is reported for a run: of ranges, one for all partitions of the same terms.

    Raises:
        Rejected.
    """
    partitions = [facts.partitions[ref] for ref in partitions_within(facts, body.partitions, body.ranges)]
    return [group[0] for group in group_by_terms(partitions)] if body.ranges else partitions


class RecordedLimit(Record, frozen=True):
    """A cap that was checked for the charge."""

    cap: Cap
    holder: RecordedHolder
    partition: Ref
    share: Fraction | None = None


class PriceSegment(Record, frozen=True):
    """Steps that all cost the same, by coordinate; null where the loss has no bound."""

    price: tuple[Natural | None, ...]
    steps: Count
    unit: Count


class BudgetAlert(Record, frozen=True):
    """A share of a capacity that this charge reached or crossed.

    Attributes:
        places: of a charge that names ranges, all its partitions of which this is so: the place of one among them and
            how many follow one another from it on. ``partition`` is then the first.
    """

    holder: RecordedHolder
    partition: Ref
    share: Fraction
    places: Groups | None = None


class Reserved(Record, frozen=True):
    """The recorded part of a charge's entry: the node of its author, every limit, and the price of each partition.

    Attributes:
        refund: of a run that leases its steps, what the policies of all its partitions state about leased steps that it
            does not take, the strictest; absent where one of them is silent.
        groups: of a charge that names ranges, its partitions in order: the number of a group, and how many partitions
            in a row are of it. Partitions of one group have the same unit, rule, budget and caps. Limits and prices
            then name the first partition of each group, for all of it.
    """

    author: NodeIndex
    limits: tuple[RecordedLimit, ...]
    plan: Sha256
    prices: dict[Ref, tuple[PriceSegment, ...]]
    alerts: tuple[BudgetAlert, ...] = ()
    refund: Refund | None = None
    groups: Groups | None = None


class Charged(Struct, frozen=True):
    """A charge's effect.

    Attributes:
        charge: the pending charge, without its index and prices.
        signing: the clean room's key for signatures.
        prices: each partition with its price as recorded, in canonical bytes; of a charge that names ranges, the first
            partition of each group.
        ranges: that it names; the state has their partitions.
    """

    charge: Charge
    signing: str
    prices: tuple[tuple[str, bytes], ...]
    ranges: tuple[PartitionRange, ...] = ()

    def apply(self, state: MemoryState, index: int, sums: AccountSums) -> None:
        """Add the charge, the key of its clean room and a run of its contract; its loss is pending.

        Of a partition that it is the first charge of, it may choose the rule, for good: it does if it is voided too.
        """
        charge = self.charge_at(index, state)
        state.charges[charge.id] = charge
        state.keys[charge.key_id] = self.key_at(index)
        state.contracts[charge.contract] = state.contracts[charge.contract].counting(1)
        for refs, places, segments in touched(state, charge):
            sums.add(places, segments, charge.steps, 0, 1)
            for partition in map(state.partitions.__getitem__, refs):
                chosen = for_first_run(partition, segments, charge.steps)
                if chosen is not partition:
                    state.partitions[partition.ref] = chosen

    def charge_at(self, index: int, state: MemoryState) -> Charge:
        """The charge that the entry at ``index`` makes; its partitions are open in ``state``. Raises: Malformed."""
        prices = _prices(self.prices)
        if not self.ranges:
            return self.charge.entered(index, prices)
        try:
            partitions = state.partitions_of(self.charge.partitions, self.ranges)
            members = grouped(partitions, self.charge.groups or ())
        except (Rejected, ValueError) as error:
            raise Malformed("body.groups", str(error)) from None
        # A recorded object has its names sorted, so the order of groups is not kept.
        by_first = dict(prices)
        if {refs[0] for refs in members} != by_first.keys():
            raise Malformed("body.prices", "names other partitions than the first of each group")
        in_order = _order_prices(prices, tuple(refs[0] for refs in members))
        return self.charge._replace(partitions=partitions, prices=in_order, index=index)

    def key_at(self, index: int) -> SigningKey:
        """The key of its clean room."""
        charge = self.charge
        return SigningKey(charge.key_id, charge.actor, self.signing, charge.id, index)


@lru_cache(maxsize=512)
def _order_prices(prices: Prices, refs: tuple[str, ...]) -> Prices:
    by_ref = dict(prices)
    return tuple((ref, by_ref[ref]) for ref in refs)


@lru_cache(maxsize=4_096)
def _prices(recorded: tuple[tuple[str, bytes], ...]) -> Prices:
    return tuple((ref, parse_segments(segments)) for ref, segments in recorded)


def effect(entry: Recorded[MakeCharge]) -> Charged:
    """The effect of a charge's entry."""
    body = entry.body
    derived: Any = entry.derived
    recorded = derived["prices"]
    prices = tuple((ref, c.spelled(recorded[ref])) for ref in (recorded if body.ranges else body.partitions))
    refund, groups = derived.get("refund", ""), derived.get("groups")
    return charged(entry.id, entry.actor, derived["author"], body, body.plan, prices, refund, groups)


def charged(  # noqa: PLR0913, PLR0917 - what an entry says, part by part
    name: str,
    actor: str,
    author: int,
    body: MakeCharge,
    plan: RunPlan,
    prices: tuple[tuple[str, bytes], ...],
    refund: str = "",
    groups: Any = None,  # noqa: ANN401 - JSON as recorded
) -> Charged:
    """The effect of a charge's entry. Raises: Malformed."""
    if bool(body.ranges) != (groups is not None):
        raise Malformed("body.groups", "are for a charge that names ranges only")
    keys = body.clean_room
    charge = Charge(
        id=name,
        contract=body.contract,
        actor=actor,
        author=author,
        partitions=body.partitions,
        plan=plan.digest,
        steps=plan.steps,
        steps_posted=None,
        state=ChargeState.PENDING,
        key_id=keys.signing.thumbprint,
        sealing=keys.sealing.x,
        key_release=None,
        deadline=body.deadline,
        prices=(),
        recipients=named_recipients(body.recipients),
        base=body.base,
        index=-1,
        pipeline=body.pipeline,
        leases=StepLeases(refund=refund) if body.step_leases else None,
        groups=None if groups is None else tuple((number, count) for number, count in groups),
    )
    return Charged(charge, keys.signing.x, prices, body.ranges)
