"""What the entry of a charge records, and what it changes: the charge, its clean room's key and its accounts."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Final, Literal, NamedTuple

from ledger.accounts.account_sums import AccountSums, Prices, touched
from ledger.commands.command_fields import Count, Natural, NodeIndex, RecordedHolder
from ledger.commands.command_kind import Recorded
from ledger.commands.registration.partition import UnitRecords
from ledger.crypto.public_keys import CleanRoomKeys
from ledger.domain.facts import EVERYONE, Charge, SigningKey, StepLeases
from ledger.domain.gate import Refund
from ledger.domain.memory_state import MemoryState
from ledger.domain.outcomes import ChargeState
from ledger.filters import Cap
from ledger.mechanisms.loss import parse_segments
from ledger.mechanisms.plan import RunPlan
from ledger.wire import canonical_json as c
from ledger.wire.field_types import Did, Name, Ref, Sha256, Time, distinct
from ledger.wire.records import Record

RUNS_MAX: Final = 16
"""Recipients that a charge names, and runs that it starts from."""


Recipients = Annotated[tuple[Did, ...], distinct(RUNS_MAX)] | Literal["everyone"]
"""Organisations, or everyone: then the model is to be published whatever comes out."""


def named_recipients(recipients: Recipients) -> tuple[str, ...]:
    """As the charge keeps them."""
    return (EVERYONE,) if isinstance(recipients, str) else recipients


class MakeCharge(Record, frozen=True):
    """One run's loss laid on all its partitions or on none, for one clean room known by its two keys.

    Attributes:
        recipients: to whom the model will be handed over, fixed before anything runs; "everyone" if it is to be
            published.
        base: the charges of the models that the run starts from.
        pipeline: the digest of what the clean room is to run, where it is said; its attestation must say the same.
        unit_records_max: how many records one privacy unit has at most in what is trained on, after joins, where more
            than in the partition.
        step_leases: whether the run leases its steps, block by block, before it takes them; then a resumed run takes a
            new generation, and what is posted and released is of the live one.
    """

    contract: Sha256
    partitions: Annotated[tuple[Ref, ...], distinct(16)]
    plan: RunPlan
    clean_room: CleanRoomKeys
    deadline: Time
    recipients: Recipients = ()
    base: Annotated[tuple[Name, ...], distinct(RUNS_MAX)] = ()
    pipeline: Sha256 | None = None
    unit_records_max: UnitRecords | None = None
    step_leases: bool | None = None


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
    """A share of a capacity that this charge reached or crossed."""

    holder: RecordedHolder
    partition: Ref
    share: Fraction


class Reserved(Record, frozen=True):
    """What a charge's entry records: the node of its author, every limit, and the price of each partition.

    Attributes:
        refund: of a run that leases its steps, what the policies of all its partitions state about leased steps that it
            does not take, the strictest; absent where one of them is silent.
    """

    author: NodeIndex
    limits: tuple[RecordedLimit, ...]
    plan: Sha256
    prices: dict[Ref, tuple[PriceSegment, ...]]
    alerts: tuple[BudgetAlert, ...] = ()
    refund: Refund | None = None


class Charged(NamedTuple):
    """What a charge's entry says.

    Attributes:
        charge: the pending charge, without its index and prices.
        signing: the clean room's key for signatures.
        prices: each partition with its price as recorded, in canonical bytes.
    """

    charge: Charge
    signing: str
    prices: tuple[tuple[str, bytes], ...]

    def apply(self, state: MemoryState, index: int, sums: AccountSums) -> None:
        """Add the charge, the key of its clean room and a run of its contract; its loss is pending."""
        charge = self.charge_at(index)
        state.charges[charge.id] = charge
        state.keys[charge.key_id] = self.key_at(index)
        state.contracts[charge.contract] = state.contracts[charge.contract].counting(1)
        for places, segments in touched(state, charge.author, index, charge.prices):
            sums.add(places, segments, charge.steps, 0, 1)

    def charge_at(self, index: int) -> Charge:
        """The charge that the entry at ``index`` makes."""
        return self.charge._replace(prices=_prices(self.prices), index=index)

    def key_at(self, index: int) -> SigningKey:
        """The key of its clean room."""
        charge = self.charge
        return SigningKey(charge.key_id, charge.actor, self.signing, charge.id, index)


@lru_cache(maxsize=4_096)
def _prices(recorded: tuple[tuple[str, bytes], ...]) -> Prices:
    return tuple((ref, parse_segments(spelled)) for ref, spelled in recorded)


def effect(entry: Recorded[MakeCharge]) -> Charged:
    """What a charge changes."""
    body = entry.body
    derived: Any = entry.derived
    prices = tuple((ref, c.spelled(derived["prices"][ref])) for ref in body.partitions)
    return charged(entry.id, entry.actor, derived["author"], body, body.plan, prices, derived.get("refund", ""))


def charged(  # noqa: PLR0913, PLR0917 - what an entry says, part by part
    name: str,
    actor: str,
    author: int,
    body: MakeCharge,
    plan: RunPlan,
    prices: tuple[tuple[str, bytes], ...],
    refund: str = "",
) -> Charged:
    """What applying a charge takes of its entry."""
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
    )
    return Charged(charge, keys.signing.x, prices)
